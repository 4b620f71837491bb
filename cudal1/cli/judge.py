"""`cudal1 judge`: a verdict on one's own module.

The module is long because one command judges two files or many, and refuses options that go with
the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.baseline import Baseline, on
from cudal1.cli.answer import answer, answer_json
from cudal1.cli.ending import BAD, CANNOT, GOOD, INTERRUPTED, fail, say
from cudal1.cli.settings import (
    ContractOption,
    DeviceOption,
    ModeOption,
    ParamsOption,
    PrecisionOption,
    ProtocolOption,
    Settings,
    WaitOption,
    choose,
)
from cudal1.cli.suites import SizesOption, SuiteOption, load_named
from cudal1.cli.waiting import Waiting, waiting
from cudal1.errors import ConfigError, CudaL1Error, SuiteError
from cudal1.problem import DeviceClass, Problem

if TYPE_CHECKING:
    from cudal1.harness.admission.admission import Probe
    from cudal1.harness.builds.builder import Builder
    from cudal1.harness.device.device import Device
    from cudal1.harness.schedule.device_processes import DeviceProcess
    from cudal1.verdict import Verdict

REFERENCE, COMPILING, JUDGING = "trying the reference", "compiling", "judging"
"""Parts of a user's wait, in their order."""

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


InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="With package.module:Class: a Python file with get_inputs, and get_init_inputs",
    ),
]
PathOption = Annotated[
    Path | None,
    typer.Option(
        "--path",
        metavar="FOLDER",
        help="With package.module:Class: the folder that holds the package, if not installed",
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
            code = _judge_one(problem, candidate, settings, asks)
        else:
            code = _judge_many(candidates, of_many, settings, asks)
    except CudaL1Error as error:
        fail(str(error))
    raise typer.Exit(code)


@dataclass(frozen=True)
class OfMany:
    """Options that only a file of candidates, or a suite's references, can have."""

    suite: str | None
    sizes: Path | None
    out: Path | None
    baselines: str | None
    cluster: str | None


@dataclass(frozen=True)
class Asks:
    """Options for one candidate and for many."""

    timing: bool
    wait_s: float
    as_json: bool
    invariants: bool
    inputs: Path | None = None
    """File with example inputs of a problem that is a class of a module."""
    folder: Path | None = None
    """Folder that holds the class's package; None where it is installed."""


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


def _named_baselines(names: str | None, device_class: DeviceClass) -> list[Baseline]:
    """Return the baselines that an option names, in their own order.

    Raises:
        ConfigError: there is none of that name, or the device cannot run it.
    """
    possible = on(device_class)
    if names in ("all", "none"):
        return possible if names == "all" else []
    found: set[Baseline] = set()
    for name in (names or Baseline.EAGER).split(","):
        if name.strip() not in set(Baseline):
            raise ConfigError(
                f"--baselines {name.strip()}: must be all, none, or of {', '.join(Baseline)}"
            )
        found.add(Baseline(name.strip()))
    if impossible := found.difference(possible):
        raise ConfigError(f"--baselines {min(impossible)}: needs a GPU; leave it out")
    return [each for each in possible if each in found]


def _judge_many(file: Path | None, of_many: OfMany, settings: Settings, asks: Asks) -> int:
    """Judge candidates, baselines or both; return the exit code."""
    from cudal1.cli.judge_many import judge_many
    from cudal1.cli.verdicts.candidate_rows import is_pipe, summed_up
    from cudal1.cli.verdicts.show_outcome import as_text, show_outcome

    if file is not None and of_many.out is None and is_pipe(file):
        raise ConfigError(f"{file}: is no file beside which verdicts can be kept; name their --out")
    named = file or Path("baselines")
    out = of_many.out or named.parent / f"{named.stem}.verdicts.jsonl"
    baselines = _named_baselines(of_many.baselines, settings.device_class)
    with _device_processes(of_many.cluster, settings.device_class) as (device_processes, left_out):
        problems = load_named(of_many.suite, settings.device_class, sizes=of_many.sizes)
        for line in left_out:
            say(f"note: not judged on {line}")
        outcome = judge_many(
            file,
            problems,
            out,
            settings,
            device_processes,
            timing=asks.timing,
            baselines=baselines,
            wait_s=asks.wait_s,
        )
    for complaint in summed_up(outcome.complaints):
        say(complaint)
    if asks.as_json:
        answer(as_text(outcome, settings, out))
    elif outcome.judged or not outcome.stopped:
        show_outcome(outcome, settings, out)
    if outcome.is_interrupted:
        return INTERRUPTED
    if outcome.stopped:
        fail(outcome.stopped)
    return BAD if outcome.num_without or outcome.num_references_without else GOOD


@contextmanager
def _device_processes(
    cluster: str | None, device_class: DeviceClass
) -> Iterator[tuple[list[DeviceProcess], list[str]]]:
    """Yield devices of the most common kind, and a line on each that is left out.

    The devices are of one kind, since verdicts are compared within one.
    """
    from cudal1.harness.cluster.cluster import processes_on_cluster
    from cudal1.harness.device.device import find_devices
    from cudal1.harness.schedule import assignment
    from cudal1.harness.schedule.device_processes import processes_found_here

    with ExitStack() as opening:
        if cluster is None:
            find = partial(find_devices, device_class)
            device_processes, left_out = opening.enter_context(processes_found_here(find)), []
        else:
            device_processes, left_out = opening.enter_context(
                processes_on_cluster(cluster, device_class)
            )
        kinds = Counter(sorted(device_process.device.kind for device_process in device_processes))
        kind = kinds.most_common(1)[0][0]
        others = [
            f"{device_process}: not of kind {kind}"
            for device_process in device_processes
            if device_process.device.kind != kind
        ]
        chosen = [
            device_process
            for device_process in device_processes
            if device_process.device.kind == kind
        ]
        for device_process in chosen if cluster is None else ():  # while problems are read
            device_process.process.submit(assignment.begin_zygote, device_process.device)
        yield chosen, left_out + others


def _judge_one(problem: Path, candidate: Path | None, settings: Settings, asks: Asks) -> int:
    """Judge two files, or look at a problem's inputs alone; return the exit code."""
    from cudal1.cli.verdicts.beside import remedy
    from cudal1.cli.verdicts.show import Row, show, verdict_rows

    if len(shapes := _shapes(problem, candidate, settings, asks)) > 1:
        assert candidate is not None
        return _judge_shapes(problem, shapes, candidate, settings, asks)
    with waiting() as wait:
        verdict, invariants = _verdict(problem, candidate, settings, asks, wait)
        spent_s = wait.spent_s()
    if verdict and candidate and (note := remedy(candidate, verdict.reason or "")):
        say(f"note: {note}")
    if asks.as_json and verdict is None:
        answer_json({"invariants": invariants}, indent=2)
    elif asks.as_json:
        answer_json(verdict, indent=2)
        for line in invariants if asks.invariants else ():
            say(f"note: {line}")
    else:
        rows = [] if verdict is None else verdict_rows(verdict, settings, spent_s)
        if asks.invariants:
            lines = invariants or ("nothing is known to hold of them in every draw",)
            rows += [Row("inputs", line) for line in lines]
        show(rows)
    return GOOD if verdict is None or verdict.is_successful else BAD


def _shapes(problem: Path, candidate: Path | None, settings: Settings, asks: Asks) -> list[Problem]:
    """Return the problems of a folder of one module's sets of shapes; of all else nothing."""
    from cudal1.cli.files import read_problems

    if candidate is None or not problem.is_dir():
        return []
    return read_problems(problem, settings.device_class, inputs=asks.inputs, folder=asks.folder)


def _judge_shapes(
    folder: Path, shapes: list[Problem], candidate: Path, settings: Settings, asks: Asks
) -> int:
    """Judge a candidate on each set of shapes; return the exit code of the worst."""
    from cudal1.cli.files import read_candidate
    from cudal1.cli.verdicts.show import Row, headline, show, style

    if asks.invariants:
        raise ConfigError(f"{folder}: holds {len(shapes)} problems; --invariants goes with one")
    source = read_candidate(candidate)
    code = GOOD
    rows: list[Row] = []
    verdicts: dict[str, Verdict | str] = {}
    with waiting() as wait, _judging(source, candidate, settings, asks, wait) as judged:
        for shape in shapes:
            try:
                verdict, _ = judged(folder / shape.name, shape)
            except SuiteError as error:
                code, verdicts[shape.name] = CANNOT, str(error)
                say(str(error))
                continue
            assert verdict is not None
            verdicts[shape.name] = verdict
            if not verdict.is_successful and code == GOOD:
                code = BAD
            said = headline(verdict, settings.protocol)
            reason = f": {verdict.reason}" if verdict.reason else ""
            rows.append(Row(shape.name, said + reason, style(verdict)))
    if asks.as_json:
        answer_json(verdicts, indent=2)
    elif rows:
        show(rows)
    return code


def _verdict(
    problem: Path, candidate: Path | None, settings: Settings, asks: Asks, wait: Waiting
) -> tuple[Verdict | None, tuple[str, ...]]:
    """Return the verdict on the candidate, if there is one, and what holds of the inputs."""
    from cudal1.cli.files import read_candidate, read_pair, read_problem
    from cudal1.suite.modules import is_module

    source = ""
    if candidate is None or is_module(problem) or asks.inputs or asks.folder:
        item = read_problem(problem, settings.device_class, inputs=asks.inputs, folder=asks.folder)
        source = "" if candidate is None else read_candidate(candidate)
    else:
        item, source = read_pair(problem, candidate, settings.device_class)
    with _judging(source, candidate, settings, asks, wait) as judged:
        return judged(problem, item)


@contextmanager
def _judging(
    source: str, candidate: Path | None, settings: Settings, asks: Asks, wait: Waiting
) -> Iterator[Callable[[Path, Problem], tuple[Verdict | None, tuple[str, ...]]]]:
    """Yield a function that judges a candidate on a problem of a name; see `_verdict`."""
    from cudal1.candidate import Candidate
    from cudal1.harness.builds import toolchain
    from cudal1.harness.device.device import find_devices
    from cudal1.harness.schedule.device_processes import processes_found_here
    from cudal1.harness.schedule.one_device import OneDevice

    if missing := toolchain.missing_for(source, settings.device_class):
        raise ConfigError(f"{candidate}: {toolchain.remedy(missing)}")
    with (
        processes_found_here(partial(find_devices, settings.device_class)) as (device_process, *_),
        _builder(source, device_process.device, settings) as builder,
        OneDevice(
            device_process.device,
            settings.protocol,
            wait_s=asks.wait_s,
            builder=builder,
            device_process=device_process,
        ) as judge,
    ):

        def judged(name: Path, item: Problem) -> tuple[Verdict | None, tuple[str, ...]]:
            asked = Candidate(problem_id=item.id, source=source)
            wait.begin(REFERENCE)
            built = None
            if builder is not None and builder.takes(asked):
                built = builder.begin(item, asked)
            probe = _tried(name, item, settings, device_process.device)
            if candidate is None:
                return None, probe.invariants
            if probe.rejection:
                say(f"note: a correct verdict says little here: {probe.rejection}")
            if built is not None:  # before the device is held
                wait.begin(COMPILING)
                wait_for([built])
            wait.begin(JUDGING)
            try:
                return judge.judge(item, asked, timing=asks.timing).verdict, probe.invariants
            except SuiteError as error:
                reason = str(error).removeprefix(f"{item.key}: ")
                raise SuiteError(f"{name}: cannot be judged: {reason}") from error

        yield judged


def _tried(name: Path, item: Problem, settings: Settings, device: Device) -> Probe:
    """Return what a trial of the reference found.

    Raises:
        SuiteError: the reference cannot be judged.
    """
    from cudal1.harness.admission import known_references
    from cudal1.harness.admission.admission import Check, admit
    from cudal1.suite.modules import remedy_for

    probe = admit(
        item,
        max_reference_ms=settings.max_reference_ms,
        time_limit_s=settings.trial_limit_s,
        check=Check(settings.protocol, device),
        known=known_references.of_this_user(),
    )
    if probe.reason is not None:
        raise SuiteError(f"{name}: cannot be judged: {probe.reason}{remedy_for(probe.reason)}")
    return probe


def _builder(
    source: str, device: Device, settings: Settings
) -> AbstractContextManager[Builder | None]:
    """Return a builder that compiles the candidate while its reference is tried.

    It is None if the candidate cannot compile anything.
    """
    from cudal1.harness.builds.build_cache import default_folder
    from cudal1.harness.builds.builder import Builder, may_compile

    if not may_compile(source, device.device_class):
        return nullcontext()
    return Builder([device], settings.protocol, default_folder())
