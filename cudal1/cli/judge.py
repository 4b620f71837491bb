"""`cudal1 judge`: a verdict on one's own module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.ending import BAD, GOOD, INTERRUPTED, fail, say
from cudal1.cli.settings import (
    DeviceOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    Settings,
    WaitOption,
    choose,
)
from cudal1.cli.suites import SizesOption, SuiteOption, load_named
from cudal1.errors import ConfigError, CudaL1Error, SuiteError

if TYPE_CHECKING:
    from cudal1.problem import Problem
    from cudal1.verdict import Verdict

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE",
        help="Where their verdicts go, and are looked for first. Default: beside them",
    ),
]  # fmt: skip
NullTestOption = Annotated[
    bool,
    typer.Option(
        "--null-test/--no-null-test",
        help="Of a file: each problem's reference is judged as a candidate, too",
    ),
]


def judge(
    problem: Annotated[
        Path | None,
        typer.Argument(metavar="PROBLEM", help="A file with Model, get_inputs, get_init_inputs"),
    ] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="CANDIDATE", help="A file with ModelNew")
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(
            "--candidates",
            metavar="FILE",
            help="Instead: many, as JSON lines of level, problem_id, source",
        ),
    ] = None,
    suite: SuiteOption = None,
    sizes: SizesOption = None,
    out: OutOption = None,
    null_test: NullTestOption = True,
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
    """Judge a candidate, or a file of them: correct, and by how much certified faster?

    Needs no params.yaml; of a single candidate nothing is written. Problems are run as trusted
    code, candidates in a sandbox. Exit code: 0 correct, 1 not correct, 2 could not judge; of a
    file: 0 each row has a verdict, 1 some have none, 2 could not judge, 130 interrupted.

    Example: cudal1 judge model.py faster.py

    Example: cudal1 judge --suite kernelbench:../KernelBench --candidates answers.jsonl
    """
    asks = Asks(timing=not checks_only, null_test=null_test, wait_s=wait, as_json=as_json)
    try:
        _refuse_half(problem, candidate, candidates, (suite, sizes, out))
        settings = choose(params, device, protocol, precision)
        if candidates is not None:
            out = out or candidates.parent / f"{candidates.stem}.verdicts.jsonl"
            problems = load_named(suite, settings.device_class, sizes=sizes)
            code = _judge_file(candidates, problems, out, settings, asks)
        else:
            assert problem is not None
            assert candidate is not None
            code = _judge_one(problem, candidate, settings, asks)
    except CudaL1Error as error:
        fail(str(error))
    raise typer.Exit(code)


@dataclass(frozen=True)
class Asks:
    """What is wanted of one as of many."""

    timing: bool
    null_test: bool
    wait_s: float
    as_json: bool


def _refuse_half(
    problem: Path | None, candidate: Path | None, candidates: Path | None,
    only_of_many: Sequence[object],
) -> None:  # fmt: skip
    if candidates is not None and problem is not None:
        raise ConfigError("give two files, or --candidates with a --suite, not both")
    if candidates is None and any(option is not None for option in only_of_many):
        raise ConfigError("--suite, --sizes and --out go with --candidates")
    if candidates is None and candidate is None:
        raise ConfigError("give a PROBLEM and a CANDIDATE, or --candidates FILE")


def _judge_file(
    file: Path, problems: list[Problem], out: Path, settings: Settings, asks: Asks
) -> int:
    """Judge many; returns the exit code."""
    from cudal1.cli.judge_many import judge_many
    from cudal1.cli.show_outcome import as_text, show_outcome

    outcome = judge_many(
        file, problems, out, settings, timing=asks.timing, null_test=asks.null_test,
        wait_s=asks.wait_s,
    )  # fmt: skip
    for complaint in outcome.complaints:
        say(complaint)
    if asks.as_json:
        typer.echo(as_text(outcome, settings, out))
    elif outcome.judged or not outcome.stopped:
        show_outcome(outcome, settings, out)
    if outcome.is_interrupted:
        return INTERRUPTED
    if outcome.stopped:
        fail(outcome.stopped)
    return BAD if outcome.num_without else GOOD


def _judge_one(problem: Path, candidate: Path, settings: Settings, asks: Asks) -> int:
    """Judge two files; returns the exit code."""
    from cudal1.cli.show import show_verdict

    verdict = _verdict(problem, candidate, settings, asks)
    if asks.as_json:
        typer.echo(verdict.model_dump_json(indent=2))
    else:
        show_verdict(verdict, settings)
    return GOOD if verdict.is_successful else BAD


def _verdict(problem: Path, candidate: Path, settings: Settings, asks: Asks) -> Verdict:
    from rich.console import Console

    from cudal1.candidate import Candidate
    from cudal1.cli.files import read_candidate, read_problem, refuse_swapped
    from cudal1.harness import Pool, find_device
    from cudal1.harness.mutants import kill_table
    from cudal1.suite.admission import admit

    refuse_swapped(problem, candidate)
    item = read_problem(problem, settings.device_class)
    source = read_candidate(candidate)
    found = find_device(settings.device_class)
    with Console(stderr=True).status("trying the reference") as spinner:
        admission = admit(item, max_reference_ms=settings.max_reference_ms)
        if not admission.admitted:
            raise SuiteError(f"{problem}: cannot be judged: {admission.reason}")
        table = kill_table(item, settings.protocol, found)
        if table.rejection:
            say(f"note: a correct verdict says little here: {table.rejection}")
        spinner.update("judging")
        with Pool(found, settings.protocol, wait_s=asks.wait_s) as pool:
            asked = Candidate(problem_id=item.id, source=source)
            return pool.judge(item, asked, timing=asks.timing).verdict
