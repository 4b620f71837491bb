"""`cudal1 judge`: a verdict on one's own module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.ending import BAD, GOOD, fail, say
from cudal1.cli.settings import (
    DeviceOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    Settings,
    WaitOption,
    choose,
)
from cudal1.errors import CudaL1Error, SuiteError

if TYPE_CHECKING:
    from rich.status import Status as Spinner

    from cudal1.verdict import Verdict


def judge(
    problem: Annotated[
        Path,
        typer.Argument(metavar="PROBLEM", help="A file with Model, get_inputs, get_init_inputs"),
    ],
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A file with ModelNew")],
    params: ParamsOption = None,
    device: DeviceOption = None,
    protocol: ProtocolOption = None,
    precision: PrecisionOption = None,
    checks_only: Annotated[
        bool, typer.Option("--checks-only", help="Is it correct? Time nothing")
    ] = False,
    wait: WaitOption = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole verdict, for machines")
    ] = False,
) -> None:
    """Judge one candidate: is it correct, and by how much is it certified faster?

    Needs no params.yaml and writes nothing. The problem file is run as trusted code, the candidate
    in a sandbox. Exit code: 0 correct, 1 not correct, 2 could not judge.

    Example: cudal1 judge model.py faster.py
    """
    from rich.console import Console

    from cudal1.cli.show import show_verdict

    waiting = Console(stderr=True)
    try:
        settings = choose(params, device, protocol, precision)
        with waiting.status("trying the reference") as spinner:
            verdict = _judge(
                problem, candidate, settings, timing=not checks_only, wait_s=wait, spinner=spinner
            )
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        typer.echo(verdict.model_dump_json(indent=2))
    else:
        show_verdict(verdict, settings)
    raise typer.Exit(GOOD if verdict.is_successful else BAD)


def _judge(
    problem: Path, candidate: Path, settings: Settings, *, timing: bool, wait_s: float,
    spinner: Spinner,
) -> Verdict:  # fmt: skip
    from cudal1.candidate import Candidate
    from cudal1.cli.files import read_candidate, read_problem, refuse_swapped
    from cudal1.harness import Pool, find_device
    from cudal1.harness.mutants import kill_table
    from cudal1.suite.admission import admit

    refuse_swapped(problem, candidate)
    item = read_problem(problem, settings.device_class)
    source = read_candidate(candidate)
    found = find_device(settings.device_class)
    admission = admit(item, max_reference_ms=settings.max_reference_ms)
    if not admission.admitted:
        raise SuiteError(f"{problem}: cannot be judged: {admission.reason}")
    table = kill_table(item, settings.protocol, found)
    if table.rejection:
        say(f"note: a correct verdict says little here: {table.rejection}")
    spinner.update("judging")
    with Pool(found, settings.protocol, wait_s=wait_s) as pool:
        asked = Candidate(problem_id=item.id, source=source)
        return pool.judge(item, asked, timing=timing).verdict
