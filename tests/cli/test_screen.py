"""A source is read from the command line, and what would not be built is said."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("# coding: raw_unicode_escape\n# \\u000aevil()\n", "declares encoding raw_unicode_escape"),
        ("def f(:\n", "SyntaxError: invalid syntax"),
    ],
)
def test_what_would_not_be_built_is_said(run: Run, tmp_path: Path, source: str, why: str) -> None:
    (tmp_path / "candidate.py").write_text(source)
    done = run("screen", "candidate.py")
    assert done.returncode == 0
    assert done.stdout.startswith("not built")
    assert why in done.stdout
    kinds = {note["kind"] for note in json.loads(run("screen", "candidate.py", "--json").stdout)}
    assert kinds & {"other_text", "unparsed"}


def test_what_cannot_be_seen_is_shown(run: Run, tmp_path: Path) -> None:
    text = "x = 1  # \u202e\nif x:\n    \f\ty = 2\n"
    (tmp_path / "candidate.py").write_text(text, encoding="utf-8")
    done = run("screen", "candidate.py")
    assert "line 1: x = 1 # <U+202E>" in done.stdout
    assert "line 3: <U+000C>" in done.stdout
    assert "\u202e" not in done.stdout
