"""Give commands that texts show to the parsers that would read them; run nothing."""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import shlex
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from typer.core import TyperGroup

from cudal1.cli import Waiting, app

ROOT = Path(__file__).parent.parent


class Parsed(BaseException):
    """Control flow: a module's own parser has accepted its arguments."""


def parse(command: str) -> None:
    """Raise an error unless the program would understand the command."""
    words = [word for word in words_of(command) if not re.match(r"^[A-Z0-9_]+=", word)]
    match words:
        case ["cudal1", *arguments]:
            parse_cudal1(arguments)
        case ["dvc", *arguments]:
            from dvc.cli import parse_args

            parse_args(arguments)
        case ["python", "-c", code]:
            compile(code, command, "exec")
        case ["python", "-m", "pytest", *arguments]:
            files = [word for word in arguments if word.startswith("tests/")]
            assert [file for file in files if not (ROOT / file).exists()] == []
        case ["python", "-m", module, *arguments]:
            parse_module(module, arguments)
        case ["make", *_]:
            done = subprocess.run(
                ["make", "--dry-run", *words_of(command)[1:]],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        case ["prefect", *arguments]:
            parse_prefect(arguments)
        case _:
            raise AssertionError(f"no parser for: {command}")


def words_of(command: str) -> list[str]:
    """Return a command's words without comments, redirections and later commands of a pipe."""
    return shlex.split(re.split(r"\s[|>&]+(\s|$)", command)[0], comments=True)


def parse_cudal1(arguments: list[str]) -> None:
    """Parse arguments with the real parser; a command without arguments is a mention of it."""
    command: Any = typer.main.get_command(app)
    name, context = "cudal1", None
    if arguments[0].startswith("--"):  # they act while they are parsed
        assert arguments[0] in {option for each in command.params for option in each.opts}
        return
    while True:
        if isinstance(command, Waiting):
            command = command.load()
        if name != "cudal1" and not arguments:
            return
        context = command.make_context(name, list(arguments), parent=context)
        if not isinstance(command, TyperGroup):
            return
        rest = [*context._protected_args, *context.args]
        name, command, arguments = command.resolve_command(context, rest)


def parse_module(module: str, arguments: list[str]) -> None:
    """Run one of our modules until it has read its arguments."""
    read = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, *_: object, **__: object) -> None:
        read(self, arguments)
        raise Parsed

    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # modules that were imported before
                runpy.run_path(file_of(module), run_name="__main__")
        except Parsed:
            return
    raise AssertionError(f"{module} reads no arguments")


def file_of(module: str) -> str:
    """Return the file that `python -m` runs; pytest's own loader hides the code of our modules."""
    found = importlib.util.find_spec(module)
    if found is not None and found.submodule_search_locations:
        found = importlib.util.find_spec(f"{module}.__main__")
    assert found is not None, f"{module}: there is no such module"
    assert found.origin is not None, f"{module}: it is a folder"
    return found.origin


def parse_prefect(arguments: list[str]) -> None:
    """Check that the words name one of Prefect's commands, and that its options exist."""
    done = subprocess.run(
        ["prefect", *(word for word in arguments if not word.startswith("http")), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def commands() -> dict[str, Any]:
    """Return every command and subcommand, by its whole name."""
    root: Any = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name, each in root.commands.items():
        command = each.load() if isinstance(each, Waiting) else each
        subs = command.commands if isinstance(command, TyperGroup) else {}
        found |= {f"cudal1 {name} {sub}": under for sub, under in subs.items()}
        if not subs:
            found[f"cudal1 {name}"] = command
    return found


def examples(text: str) -> Iterator[str]:
    """Return the commands after "Example:" in a command's help."""
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split())
        if words.startswith("Example: "):
            yield words.removeprefix("Example: ")
