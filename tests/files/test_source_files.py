"""Tests that several files are one text, and come back unchanged."""

from __future__ import annotations

import pytest

from cudal1.files.source_files import MAIN, join, split

HELPERS = "from __future__ import annotations\n\nW = 2.0\n"


def test_files_come_back_unchanged() -> None:
    others = {"helpers.py": HELPERS, "package/__init__.py": "", "package/more.py": "x = 1"}
    text = join("import helpers\n", others)
    assert split(text) == {MAIN: "import helpers\n", **others, "package/__init__.py": ""} | {
        "package/more.py": "x = 1"
    }


def test_a_text_of_one_file_stays_unchanged() -> None:
    assert join("x = 1", {}) == "x = 1"
    assert split("x = 1\n# cudal1: file no module\n") == {MAIN: "x = 1\n# cudal1: file no module\n"}


@pytest.mark.parametrize("path", ["../x.py", "/etc/x.py", "a b.py", "x.so", "x/../y.py", ""])
def test_only_modules_inside_the_folder_have_a_place(path: str) -> None:
    with pytest.raises(ValueError, match="not the path"):
        join("x = 1", {path: ""})
    assert split(f"x = 1\n# cudal1: file {path}\n").keys() == {MAIN}
