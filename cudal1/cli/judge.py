"""`cudal1 judge`: a verdict on one's own module.

One command judges two files or many, and refuses options that go with the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.baseline import Baseline
from cudal1.cli.judging.asks import Asks, OfMany
from cudal1.cli.judging.file import judge_file
from cudal1.cli.judging.one import judge_one
from cudal1.cli.options.files import InputsOption, PathOption
from cudal1.cli.options.settings import (
    ContractOption,
    DeviceOption,
    ModeOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    WaitOption,
    choose,
)
from cudal1.cli.options.suites import SizesOption, SuiteOption
from cudal1.cli.terminal.ending import fail
from cudal1.errors import ConfigError, CudaL1Error

CandidatesOption = Annotated[
    Path | None,
    typer.Option(
        "--candidates",
        metavar="FILE",
        help="Instead: many, as JSON lines of level, problem_id, source",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Where their verdicts go, and are looked for first. Default: beside them",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Judge on all machines of a Ray cluster: host:port, or auto for the one here",
    ),
]
BaselinesOption = Annotated[
    str | None,
    typer.Option(
        "--baselines",
        metavar="NAMES",
        help="Ways of running each reference that are judged, too: all, none, or some, with "
        f"commas, of {', '.join(Baseline)}. Default: eager, the null test",
    ),
]

ChecksOption = Annotated[bool, typer.Option("--checks-only", help="Is it correct? Time nothing")]


InvariantsOption = Annotated[
    bool,
    typer.Option(
        "--invariants",
        help="Also say what holds of the problem's inputs in every draw; needs no CANDIDATE",
    ),
]


def judge(
    problem: Annotated[
        Path | None,
        typer.Argument(
            metavar="PROBLEM",
            help="A file with Model, get_inputs, get_init_inputs; a folder, of several problems if "
            "they are shapes of one module; or package.module:Class with --inputs",
        ),
    ] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="CANDIDATE", help="A file with ModelNew, or a folder")
    ] = None,
    inputs: InputsOption = None,
    path: PathOption = None,
    candidates: CandidatesOption = None,
    suite: SuiteOption = None,
    sizes: SizesOption = None,
    out: OutOption = None,
    baselines: BaselinesOption = None,
    cluster: ClusterOption = None,
    params: ParamsOption = None,
    device: DeviceOption = None,
    protocol: ProtocolOption = None,
    precision: PrecisionOption = None,
    contract: ContractOption = None,
    mode: ModeOption = None,
    checks_only: ChecksOption = False,
    invariants: InvariantsOption = False,
    wait: WaitOption = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole verdict, for machines")
    ] = False,
) -> None:
    """Judge a candidate, or a file of them: correct, and by how much certified faster?

    Needs no params.yaml; of a single candidate nothing is written, unless it compiles: what it
    compiled goes to the user's cache. Problems are run as trusted code, candidates in a sandbox.
    Exit code: 0 correct, 1 not correct, 2 could not judge; of a file: 0 each row has a verdict,
    1 some have none, 2 could not judge, 130 interrupted.

    Example: cudal1 judge model.py faster.py

    Example: cudal1 judge model.py --invariants

    Example: cudal1 judge captured faster.py

    Example: cudal1 judge package.module:Layer faster.py --inputs inputs.py --path src

    Example: cudal1 judge --suite kernelbench:../KernelBench --candidates answers.jsonl

    Example: cudal1 judge --suite shipped --baselines all
    """
    asks = Asks(
        timing=not checks_only,
        wait_s=wait,
        as_json=as_json,
        invariants=invariants,
        inputs=inputs,
        folder=path,
    )
    of_many = OfMany(suite, sizes, out, baselines, cluster)
    is_one = candidates is None and (problem is not None or baselines is None)
    try:
        _refuse_half(problem, candidate, candidates, of_many, asks, is_one=is_one)
        if checks_only and baselines is not None:
            raise ConfigError("--baselines are timed; leave out --checks-only")
        settings = choose(params, device, protocol, precision, contract, mode)
        if is_one:
            assert problem is not None
            code = judge_one(problem, candidate, settings, asks)
        else:
            code = judge_file(candidates, of_many, settings, asks)
    except CudaL1Error as error:
        fail(str(error))
    raise typer.Exit(code)


def _refuse_half(
    problem: Path | None,
    candidate: Path | None,
    candidates: Path | None,
    of_many: OfMany,
    asks: Asks,
    *,
    is_one: bool,
) -> None:
    if candidates is not None and problem is not None:
        raise ConfigError("give two files, or --candidates with a --suite, not both")
    if is_one and of_many != OfMany(None, None, None, None, None):
        raise ConfigError("--suite, --sizes, --out, --baselines, --cluster go with --candidates")
    if not is_one and (asks.inputs or asks.folder):
        raise ConfigError("--inputs and --path go with one PROBLEM and a CANDIDATE")
    if asks.invariants and (problem is None or not is_one):
        raise ConfigError("--invariants goes with one PROBLEM; the ledger has those of a suite")
    if is_one and candidate is None and not asks.invariants:
        raise ConfigError("give a PROBLEM and a CANDIDATE, or --candidates FILE")
