"""Tests that help is quick and consistent, and that its examples are commands that exist."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from cudal1.cli import COMMANDS, app
from tests.commands import commands, examples, parse

HEAVY = (
    "torch",
    "transformers",
    "trl",
    "numpy",
    "duckdb",
    "polars",
    "pyarrow",
    "prefect",
    "mlflow",
    "dvc",
    "ray",
    "openai",
    "altair",
    "jinja2",
    "pydantic",
    "yaml",
    "cudal1.settings.params",
    "cudal1.harness",
    "cudal1.ledger",
    "cudal1.suite",
    "cudal1.llm",
)


ALL = commands()


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom cudal1.cli import app\ntry:\n    app(['--help'])\n"
        f"except SystemExit:\n    print([n for n in {HEAVY!r} if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "providers" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_help_begins_with_its_line_in_the_list(name: str) -> None:
    root: Any = typer.main.get_command(app)
    own = root.commands[name].load().help
    assert " ".join(own.split("\n\n")[0].split()) == COMMANDS[name]


@pytest.mark.parametrize("name", ALL)
def test_every_command_appears_in_an_example(name: str) -> None:
    shown = list(examples(ALL[name].help or ""))
    assert shown
    assert [example for example in shown if not example.startswith(name)] == []


@pytest.mark.parametrize(
    "example", [example for command in ALL.values() for example in examples(command.help or "")]
)
def test_an_example_is_a_command_that_exists(example: str) -> None:
    parse(example)


@pytest.mark.parametrize("wrong", ["cudal1 judge --suit shipped", "cudal1 hacks confrm 3f9a1c"])
def test_a_command_that_does_not_exist_is_noticed(wrong: str) -> None:
    with pytest.raises(typer.TyperException):
        parse(wrong)


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_the_option_json(name: str) -> None:
    options = {option for parameter in ALL[name].params for option in parameter.opts}
    assert "--json" in options
