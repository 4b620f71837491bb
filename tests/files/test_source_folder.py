"""Tests that a folder of Python files is one text: the main file, and the files that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.errors import SuiteError
from cudal1.files.source_files import MAIN, split
from cudal1.files.source_folder import MAX_FILES, read_folder

NAMES = ("Model", "get_inputs")
MAIN_TEXT = "import helpers\n\n\nclass Model: ...\n\n\ndef get_inputs(): ...\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MAIN_TEXT)
    (tmp_path / "helpers.py").write_text("from package.more import x\n")
    return tmp_path


def _package(folder: Path, name: str) -> None:
    for path, text in (("__init__.py", ""), ("more.py", "x = 1\n"), ("inner/deep.py", "y = 2\n")):
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_only_mentioned_files_are_taken(folder: Path) -> None:
    _package(folder, "package")
    _package(folder, "unused")
    (folder / "faster.py").write_text("class ModelNew: ...\n")
    assert split(read_folder(folder, NAMES)) == {
        MAIN: MAIN_TEXT,
        "helpers.py": "from package.more import x\n",
        "package/__init__.py": "",
        "package/inner/deep.py": "y = 2\n",
        "package/more.py": "x = 1\n",
    }


def test_a_module_named_in_a_string_is_taken(folder: Path) -> None:
    (folder / "helpers.py").write_text("import importlib\nx = importlib.import_module('late')\n")
    (folder / "late.py").write_text("z = 3\n")
    assert "late.py" in split(read_folder(folder, NAMES))


def test_a_broken_file_that_is_not_needed_is_ignored(folder: Path) -> None:
    (folder / "other.py").write_bytes(b"\xff\0")
    assert split(read_folder(folder, NAMES)).keys() == {MAIN, "helpers.py"}


def test_a_broken_file_that_is_needed_is_named(folder: Path) -> None:
    (folder / "helpers.py").write_bytes(b"\xff\xff")
    with pytest.raises(SuiteError, match=r"helpers\.py: not UTF-8 text"):
        read_folder(folder, NAMES)


def test_files_are_read_as_python_reads_them(folder: Path) -> None:
    (folder / "helpers.py").write_bytes("# coding: latin-1\r\nname = '\xe9'\r\n".encode("latin-1"))
    found = split(read_folder(folder, NAMES))
    assert found["helpers.py"] == "# coding: utf-8\nname = '\xe9'\n"


def test_a_candidate_that_mentions_the_names_is_not_the_main_file(folder: Path) -> None:
    (folder / "faster.py").write_text("from model import Model, get_inputs\n\n\nclass New: ...\n")
    assert split(read_folder(folder, NAMES))[MAIN] == MAIN_TEXT


def test_a_folder_without_exactly_one_problem_is_refused_with_a_remedy(folder: Path) -> None:
    with pytest.raises(SuiteError, match="in which no file has ModelNew; name another"):
        read_folder(folder, ("ModelNew",))
    (folder / "second.py").write_text(MAIN_TEXT)
    with pytest.raises(SuiteError, match=r"in which model\.py, second\.py each have Model, get_in"):
        read_folder(folder, NAMES)


def test_a_link_out_of_the_folder_is_refused(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "key.py"
    elsewhere.write_text("secret = 1\n")
    (folder / "helpers.py").unlink()
    (folder / "helpers.py").symlink_to(elsewhere)
    with pytest.raises(SuiteError, match=r"helpers\.py: is a link out of .*; put the file itself"):
        read_folder(folder, NAMES)


def test_links_within_the_folder_are_followed_and_each_folder_once(folder: Path) -> None:
    (folder / "more.py").symlink_to(folder / "helpers.py")
    (folder / "loop").symlink_to(folder)
    (folder / "helpers.py").write_text("import more, loop\n")
    assert split(read_folder(folder, NAMES)).keys() == {MAIN, "helpers.py", "more.py"}


def test_a_folder_of_too_many_files_is_refused(folder: Path) -> None:
    for number in range(MAX_FILES):
        (folder / f"m{number}.py").touch()
    with pytest.raises(SuiteError, match="holds more than 1000 Python files"):
        read_folder(folder, NAMES)


def test_a_line_that_looks_like_the_beginning_of_a_file_is_refused(folder: Path) -> None:
    (folder / "helpers.py").write_text("x = 1\n# cudal1: file other.py\ny = 2\n")
    with pytest.raises(SuiteError, match=r"a line of helpers\.py reads as the beginning of a file"):
        read_folder(folder, NAMES)
    (folder / "helpers.py").write_text("x = 1\n# cudal1: file helpers.py\ny = 2\n")
    with pytest.raises(SuiteError, match=r"a line of helpers\.py reads as the beginning of a file"):
        read_folder(folder, NAMES)
