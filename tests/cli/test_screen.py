"""Tests of screening a source from the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_source_that_would_not_be_built_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "candidate.py").write_text("def f(:\n")
    done = run("screen", "candidate.py")
    assert done.returncode == 0
    assert done.stdout.startswith("not built")
    assert "SyntaxError: invalid syntax" in done.stdout
    notes = json.loads(run("screen", "candidate.py", "--json").stdout)
    assert {note["kind"] for note in notes} == {"unparsed"}


def test_code_hidden_by_a_codec_is_read_as_python_reads_it(run: Run, tmp_path: Path) -> None:
    hidden = "# coding: raw_unicode_escape\nimport os\n# rows \\u000aos.fork()\n"
    (tmp_path / "candidate.py").write_text(hidden)
    notes = json.loads(run("screen", "candidate.py", "--json").stdout)
    assert {note["kind"] for note in notes} == {"subprocess"}


def test_invisible_characters_are_shown(run: Run, tmp_path: Path) -> None:
    text = "x = 1  # \u202e\nif x:\n    \f\ty = 2\n"
    (tmp_path / "candidate.py").write_text(text, encoding="utf-8")
    done = run("screen", "candidate.py")
    assert "line 1: x = 1 # <U+202E>" in done.stdout
    assert "line 3: <U+000C>" in done.stdout
    assert "\u202e" not in done.stdout
