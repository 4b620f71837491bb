"""Run the user's program in this process, and capture a module of it.

    python -I -X utf8 cudal1/start.py cudal1.capturing.program ANSWER JSON

`cudal1 capture` starts it. JSON states what to do (`Asked`); the file ANSWER gets the written files
and complaints. The program is trusted as a problem is: it runs as the user, without keys, in a
process of its own that has no clock, answer or verdict.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field

from cudal1.capturing.capture import MAX_SETS, capture
from cudal1.errors import CudaL1Error, describe
from cudal1.record import Record


class Asked(Record):
    """One capture."""

    program: str
    """Path of the program."""
    arguments: tuple[str, ...] = ()
    module: str
    """`package.module:Class`."""
    folder: str
    """Folder for the files."""
    paths: tuple[str, ...] = ()
    """Folders in which modules are found besides the program's own and the installed ones."""
    limit: int = Field(default=MAX_SETS, ge=1)
    data: bool = False


class Answer(Record):
    """The outcome of a capture."""

    files: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    reason: str | None = None
    """The reason for which no file was written; None where there are files."""


BEGIN = "__cudal1_begin__"
"""The name that a program calls with its own class, once it has defined it."""


def run(asked: Asked) -> Answer:
    """Run the program, and return the outcome."""
    program = Path(asked.program)
    sys.argv = [asked.program, *asked.arguments]
    sys.path[:0] = [str(program.absolute().parent), *asked.paths]
    main = ModuleType("__main__")
    vars(main).update(__file__=str(program.absolute()), __builtins__=__builtins__)
    sys.modules["__main__"] = main
    module, _, name = asked.module.partition(":")
    try:
        tree = ast.parse(program.read_bytes(), str(program))
    except (SyntaxError, ValueError) as error:
        return Answer(reason=f"{program}: is no Python ({error})")
    if module in ("__main__", program.stem):
        return _of_itself(asked, tree, main, name)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return Answer(
            reason=f"{asked.module}: {describe(error)}; install it, or give --path FOLDER, the "
            "folder that holds it"
        )
    except Exception as error:  # noqa: BLE001 -- the user's own code may raise anything
        return Answer(reason=f"{asked.module}: cannot be imported: {describe(error)}")
    if not hasattr(found, name):
        return Answer(reason=f"{asked.module}: the module has no {name}{_near(name, vars(found))}")
    capturing = _begun(asked, getattr(found, name))
    return _ended(capturing, _failure_of(tree, main))


def _of_itself(asked: Asked, tree: ast.Module, main: ModuleType, name: str) -> Answer:
    """Capture a class that the program defines at its top level, from its definition on."""
    places = [
        place
        for place, node in enumerate(tree.body)
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    if not places:
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        return Answer(
            reason=f"{asked.module}: {asked.program} defines no class {name} at its top level"
            f"{_near(name, classes)}"
        )
    begin = ast.parse(f"{BEGIN}({name})").body[0]
    after = tree.body[places[-1]]
    for node in ast.walk(begin):
        ast.copy_location(node, after)
    tree.body.insert(places[-1] + 1, begin)
    begun: list[capture] = []
    vars(main)[BEGIN] = lambda cls: begun.append(_begun(asked, cls))
    failure = _failure_of(tree, main)
    if not begun:
        return Answer(reason=failure or f"{asked.module}: was never defined")
    return _ended(begun[0], failure)


def _begun(asked: Asked, cls: Any) -> capture:
    return capture(cls, asked.folder, limit=asked.limit, data=asked.data).__enter__()


def _failure_of(tree: ast.Module, main: ModuleType) -> str | None:
    """Run the program; return how it failed, or None."""
    file = str(vars(main)["__file__"])
    try:
        exec(compile(tree, file, "exec"), vars(main))
    except SystemExit as error:
        if error.code not in (None, 0):
            return f"{file}: exits with {error.code}"
    except BaseException as error:  # noqa: BLE001 -- the user's own code may raise anything
        line = next(
            (
                f.lineno
                for f in reversed(traceback.extract_tb(error.__traceback__))
                if f.filename == file
            ),
            None,
        )
        return f"{file}{f', line {line}' if line else ''}: raises {describe(error)}"
    return None


def _ended(capturing: capture, failure: str | None) -> Answer:
    """Write the files; those of a program that failed hold the calls before."""
    complaints = [] if failure is None else [failure]
    try:
        capturing.__exit__(None, None, None)
    except CudaL1Error as error:
        reason = str(error)
        if failure is not None:
            reason = f"{failure}; before that: {reason}"
        return Answer(reason=reason)
    complaints += capturing.complaints
    return Answer(files=tuple(map(str, capturing.files)), complaints=tuple(complaints))


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else "; check its name"


def main() -> None:
    """Do what the arguments ask."""
    file, asked = sys.argv[1:]
    try:
        answer = run(Asked.model_validate_json(asked))
    except CudaL1Error as error:
        answer = Answer(reason=str(error))
    Path(file).write_text(answer.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
