"""Tests of `--version` and of completion in a shell, through the program, a shell script."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cudal1.processes import START
from tests.wheel import PROJECT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMPLETE = """
eval "$(cudal1 --show-completion bash)"
COMP_WORDS=({words}) COMP_CWORD={place}
_cudal1_completion cudal1
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the program, and an interpreter beside it that has this checkout."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "cudal1").write_bytes((ROOT / "bin" / "cudal1").read_bytes())
    ours = shlex.join([sys.executable, "-I", "-X", "utf8", START, "cudal1.cli"])
    (folder / "python").write_text(
        '#!/bin/sh\n[ "$1 $2 $3 $4 $5" = "-I -X utf8 -m cudal1.cli" ] || exit 9\n'
        f'shift 5\nexec {ours} "$@"\n'
    )
    for program in folder.iterdir():
        program.chmod(0o755)
    return folder


def bash(programs: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cudal1", "ju"], {"judge"}),
        (["cudal1", "judge", "--prec"], {"--precision"}),
        (["cudal1", "judge", "--precision", ""], {"strict", "tf32", "half"}),
        (["cudal1", "hacks", "c"], {"confirm"}),
        (["cudal1", "sql", "--vi"], {"--view", "--views"}),
    ],
)
def test_bash_completes_commands_options_and_values(
    programs: Path, words: list[str], expected: set[str]
) -> None:
    done = bash(programs, COMPLETE.format(words=shlex.join(words), place=len(words) - 1))
    assert (set(done.stdout.split()), done.stderr) == (expected, "")


def test_the_version_is_the_distribution_s(programs: Path) -> None:
    done = bash(programs, "cudal1 --version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"cudal1 {PROJECT['version']}\n", "")
