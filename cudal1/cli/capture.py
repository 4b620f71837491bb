"""`cudal1 capture`: problem files from a program of one's own."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1 import processes
from cudal1.cli.terminal.answer import answer, answer_json
from cudal1.cli.terminal.ending import CANNOT, GOOD, fail, say
from cudal1.errors import ConfigError, CudaL1Error

if TYPE_CHECKING:
    from cudal1.capturing.program import Answer, Asked

app = typer.Typer()


def capture(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="A Python program that calls the module")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Its own arguments; behind -- if they are options"),
    ] = None,
    *,
    module: Annotated[
        str,
        typer.Option(
            "--module",
            metavar="MODULE:CLASS",
            help="The class, such as package.module:Layer; of the program itself __main__:Layer",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where the problem files go")
    ],
    path: Annotated[
        list[Path] | None,
        typer.Option(
            "--path",
            metavar="FOLDER",
            help="A folder in which the program finds modules, besides its own; may be repeated",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Sets of shapes to write, at most")
    ] = 8,
    data: Annotated[
        bool,
        typer.Option("--data", help="Write down the values of tensors of at most 1024 elements"),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Files and complaints")] = False,
) -> None:
    """Write problem files from the calls that a program of your own makes to a module.

    The program runs as the user, in a process of its own, as problems do. Each set of shapes and
    dtypes becomes one file, with generators of inputs like the seen ones; the inputs are not kept.
    Exit code: 0 files were written, 2 none were.

    Example: cudal1 capture program.py --module package.module:Layer --out captured

    Example: cudal1 capture program.py --module __main__:Layer --out captured -- --batch 8
    """
    try:
        answered = _run(program, arguments or [], module, out, path or [], limit, data=data)
    except CudaL1Error as error:
        fail(str(error))
    for line in answered.complaints:
        say(f"note: {line}")
    if as_json:
        answer_json(answered, indent=2)
    elif answered.reason is None:
        for file in answered.files:
            answer(file)
    if answered.reason is not None:
        say(answered.reason)
    raise typer.Exit(GOOD if answered.files else CANNOT)


def _run(
    program: Path,
    arguments: list[str],
    module: str,
    out: Path,
    paths: list[Path],
    limit: int,
    *,
    data: bool,
) -> Answer:
    from cudal1.capturing.program import Asked
    from cudal1.suite.modules import SPELLED

    if not SPELLED.fullmatch(module):
        raise ConfigError(f"--module {module}: must be package.module:Class")
    if not program.is_file():
        raise ConfigError(f"{program}: there is no such program")
    for folder in paths:
        if not folder.is_dir():
            raise ConfigError(f"--path {folder}: there is no such folder")
    asked = Asked(
        program=str(program),
        arguments=tuple(arguments),
        module=module,
        folder=str(out.absolute()),
        paths=tuple(str(each.absolute()) for each in paths),
        limit=limit,
        data=data,
    )
    return _answer_of(asked)


def _answer_of(asked: Asked) -> Answer:
    """Return the answer of the process that runs the program.

    Raises:
        ConfigError: the process ended without one.
    """
    from pydantic import ValidationError

    from cudal1.capturing.program import Answer

    with tempfile.TemporaryDirectory(prefix="cudal1-capture-") as folder:
        file = Path(folder, "answer.json")
        done = subprocess.run(
            processes.python("cudal1.capturing.program", str(file), asked.model_dump_json()),
            env=processes.sparse(),
            stdout=2,  # what the program prints is no answer of this command
            check=False,
        )
        try:
            return Answer.model_validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            raise ConfigError(
                f"{asked.program}: ends its process (exit status {done.returncode}) before its "
                "calls are written; let it return"
            ) from error
