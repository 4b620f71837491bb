"""`cudal1 screen`: cheats that a source alone gives away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.cli.terminal.answer import answer_json
from cudal1.cli.terminal.ending import fail
from cudal1.errors import CudaL1Error


def screen(
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A source file")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines")] = False,
) -> None:
    """Read a source without running it. Notes are advice: they decide no verdict.

    A source that is no Python, or that Python would read as another text, is said not to be built.

    Example: cudal1 screen faster.py
    """
    from cudal1.cli.options.files import read_candidate
    from cudal1.cli.verdicts.show import Row, show
    from cudal1.harness.screen.screen import screen as notes_on
    from cudal1.harness.screen.screen import syntax_error

    try:
        source = read_candidate(candidate)
    except CudaL1Error as error:
        fail(str(error))
    notes, said = notes_on(source), syntax_error(source)
    if as_json:
        answer_json(notes, indent=2)
        return
    rows = [Row(note.kind, note.evidence) for note in notes] or [Row("notes", "none")]
    show(rows if said is None else [Row("not built", said), *rows])
