"""No benchmark takes an empty text for the current folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.arguments import Parser

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def parser() -> Parser:
    made = Parser(prog="it")
    made.add_argument("folder", type=Path)
    made.add_argument("--out", type=Path)
    made.add_argument("--name")
    return made


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["a", "--out", ""], "--out"),
        (["a", "--out="], "--out"),
        (["--out", "b", ""], "folder"),
        (["a", "--name", ""], "--name"),
    ],
)
def test_an_empty_text_is_refused_by_its_name(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(words)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"it: error: argument {name}: it is empty; give a value, or leave it out"


def test_all_else_is_read_as_ever() -> None:
    given = parser().parse_args(["a", "--out", "b"])
    assert (given.folder, given.out) == (Path("a"), Path("b"))


def test_no_default_is_a_text_that_is_refused() -> None:
    """`argparse` reads a default as it reads what is given."""
    sources = [path for path in BENCHMARKS.rglob("*.py") if 'default=""' in path.read_text()]
    assert sources == []


def test_every_benchmark_has_such_a_parser() -> None:
    sources = [path for path in BENCHMARKS.rglob("*.py") if path.name != "arguments.py"]
    assert [path for path in sources if "argparse.ArgumentParser(" in path.read_text()] == []
    assert sum("Parser(" in path.read_text() for path in sources) > 20
