"""Tests that every command refuses an empty argument, which an unset variable of a shell leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cudal1.cli import app
from tests.commands import commands


def with_an_empty_one() -> Iterator[Any]:
    """Return each command with an empty text for one parameter, and the name of the parameter."""
    for name, command in commands().items():
        words, before = name.split()[1:], list[str]()
        for parameter in command.params:
            if getattr(parameter, "is_flag", False):
                continue
            if parameter.param_type_name == "argument":
                given = [*before, ""]
                before.append("x")
            else:
                given = [parameter.opts[0], ""]
            shown = parameter.get_error_hint()
            yield pytest.param([*words, *given], shown, id=f"{name} {shown}")


EMPTY = list(with_an_empty_one())


@pytest.mark.parametrize(("arguments", "name"), EMPTY)
def test_every_parameter_refuses_an_empty_text(
    arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments, prog_name="cudal1")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"Invalid value for {name}: it is empty; give a value")


def test_paths_are_among_the_parameters() -> None:
    known = {each.id for each in EMPTY}
    assert known >= {
        "cudal1 judge 'PROBLEM'",
        "cudal1 judge '--params'",
        "cudal1 judge '--protocol'",
        "cudal1 judge '--suite'",
        "cudal1 screen 'CANDIDATE'",
        "cudal1 report 'FILE...'",
        "cudal1 null-test '[PROBLEM]...'",
        "cudal1 sql '--data'",
        "cudal1 training use '--params'",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["judge", "model.py", ""], "'CANDIDATE': it is empty; give a value; see cudal1 judge"),
        (
            ["judge", "--candidates", "a.jsonl", "--out="],
            "'--out': it is empty; give a value, or leave the option out; see cudal1 judge",
        ),
        (["report", "a.jsonl", ""], "'FILE...': it is empty"),
        (["null-test", "model.py", ""], "'[PROBLEM]...': it is empty"),
        (["hacks", "list", "--data", ""], "'--data': it is empty"),
        (["providers", "add", "paper", "--only", "a", "--only", ""], "'--only': it is empty"),
    ],
)
def test_an_empty_text_is_refused_among_others(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, arguments, prog_name="cudal1")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert done.stderr.endswith(" --help\n")
