"""`cudal1 show`: one candidate or one problem, with all that the ledger holds of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.cli.terminal.answer import answer_json
from cudal1.cli.terminal.ending import fail
from cudal1.errors import ConfigError, CudaL1Error


def show(
    which: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATE|PROBLEM",
            help="An id, its first characters, or a problem's name or key",
        ),
    ],
    exemplars: Annotated[
        bool, typer.Option("--exemplars", help="Compare with its prompts' exemplars, too")
    ] = False,
    data: Annotated[Path, typer.Option(help="Where ledger and shards are")] = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="For machines")] = False,
) -> None:
    """Show a candidate or a problem: source, verdicts, timing, lineage, difference, curve.

    Example: cudal1 show 3f9a1c

    Example: cudal1 show cudal1/L1/03_softmax

    Example: cudal1 show 3f9a1c --exemplars
    """
    from cudal1.cli.showing.candidate import shown_candidate
    from cudal1.cli.showing.lines import show_candidate, show_problem
    from cudal1.cli.showing.naming import find
    from cudal1.cli.showing.problem import ShownProblem, shown_problem
    from cudal1.ledger import Ledger

    try:
        with Ledger.read(data) as ledger:
            named = find(ledger, which)
            if named.is_problem and exemplars:
                raise ConfigError(f"{which}: is a problem, and --exemplars goes with a candidate")
            if named.is_problem:
                shown = shown_problem(ledger, named.id)
            else:
                shown = shown_candidate(ledger, named.id, exemplars=exemplars)
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        answer_json({"kind": "problem" if named.is_problem else "candidate", **dict(shown)})
    elif isinstance(shown, ShownProblem):
        show_problem(shown)
    else:
        show_candidate(shown)
