"""Answer for one candidate, on one problem or on several sets of shapes of one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cudal1.cli.judging.asks import Asks
from cudal1.cli.options.settings import Settings
from cudal1.cli.terminal.answer import answer_json
from cudal1.cli.terminal.ending import BAD, CANNOT, GOOD, say
from cudal1.cli.terminal.waiting import Waiting, waiting
from cudal1.errors import ConfigError, SuiteError
from cudal1.problem import Problem

if TYPE_CHECKING:
    from cudal1.harness.admission.admission import Probe
    from cudal1.harness.builds.builder import Builder
    from cudal1.harness.device.device import Device
    from cudal1.verdict import Verdict

REFERENCE, COMPILING, JUDGING = "trying the reference", "compiling", "judging"
"""Parts of a user's wait, in their order."""


def judge_one(problem: Path, candidate: Path | None, settings: Settings, asks: Asks) -> int:
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
    from cudal1.cli.options.files import read_problems

    if candidate is None or not problem.is_dir():
        return []
    return read_problems(problem, settings.device_class, inputs=asks.inputs, folder=asks.folder)


def _judge_shapes(
    folder: Path, shapes: list[Problem], candidate: Path, settings: Settings, asks: Asks
) -> int:
    """Judge a candidate on each set of shapes; return the exit code of the worst."""
    from cudal1.cli.options.files import read_candidate
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
    from cudal1.cli.options.files import read_candidate, read_pair, read_problem
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
    from cudal1.harness.admission.trying import ReferenceTrial
    from cudal1.harness.builds import toolchain
    from cudal1.harness.device.device import find_devices
    from cudal1.harness.schedule.device_processes import processes_found_here
    from cudal1.harness.schedule.one_device import OneDevice

    if missing := toolchain.missing_for(source, settings.device_class):
        raise ConfigError(f"{candidate}: {toolchain.remedy(missing)}")
    trial = ReferenceTrial(settings.protocol, settings.max_reference_ms, settings.trial_limit_s)
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
            if candidate is None:
                wait.begin(REFERENCE)
                return None, _tried(name, item, settings, device_process.device).invariants
            probe = None
            if builder is not None and builder.takes(asked):  # before the device is held
                built = builder.begin(item, asked)
                wait.begin(REFERENCE)
                probe = _tried(name, item, settings, device_process.device)
                wait.begin(COMPILING)
                wait_for([built])
            wait.begin(JUDGING)
            needed = trial if probe is None else None
            try:
                said = judge.judge(item, asked, timing=asks.timing, trial=needed)
            except SuiteError as error:
                raise _unfit(name, str(error).removeprefix(f"{item.key}: ")) from error
            wait.move(said.trial_s, JUDGING, REFERENCE)
            if note := said.note or (probe and probe.rejection):
                say(f"note: a correct verdict says little here: {note}")
            return said.verdict, said.invariants if probe is None else probe.invariants

        yield judged


def _tried(name: Path, item: Problem, settings: Settings, device: Device) -> Probe:
    """Return what a trial of the reference found, in a process that needs no device's lock.

    Raises:
        SuiteError: the reference cannot be judged.
    """
    from cudal1.harness.admission import known_references
    from cudal1.harness.admission.admission import Check, admit

    probe = admit(
        item,
        max_reference_ms=settings.max_reference_ms,
        time_limit_s=settings.trial_limit_s,
        check=Check(settings.protocol, device),
        known=known_references.of_this_user(),
    )
    if probe.reason is not None:
        raise _unfit(name, probe.reason)
    return probe


def _unfit(name: Path, reason: str) -> SuiteError:
    """Return the error to raise where a problem cannot be judged."""
    from cudal1.suite.modules import remedy_for

    return SuiteError(f"{name}: cannot be judged: {reason}{remedy_for(reason)}")


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
