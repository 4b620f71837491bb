"""Judges a file of candidates: by problem, on every device, going on where it was stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path

from cudal1.baseline import Baseline, as_candidate
from cudal1.candidate import Candidate
from cudal1.cli.options.settings import Settings
from cudal1.cli.terminal.bar import bar
from cudal1.cli.verdicts.candidate_rows import read_rows
from cudal1.cli.verdicts.outcome import Outcome
from cudal1.cli.verdicts.verdict_file import Judged, VerdictFile
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.harness.admission.trying import ReferenceTrial
from cudal1.harness.builds.builder import may_compile
from cudal1.harness.builds.toolchain import missing_for, remedy
from cudal1.harness.cluster.cluster_builder import builder_for
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.ahead import Compiles, window
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess
from cudal1.harness.schedule.fleet import Fleet
from cudal1.problem import Problem

Pair = tuple[Problem, Candidate]
Key = tuple[str, str]
"""A problem's id and a candidate's."""


def judge_many(
    file: Path | None,
    problems: Sequence[Problem],
    out: Path,
    settings: Settings,
    device_processes: Sequence[DeviceProcess],
    *,
    timing: bool,
    baselines: Sequence[Baseline],
    wait_s: float,
) -> Outcome:
    """Judge every candidate of `file` for `problems` that has no verdict in `out`.

    All `device_processes` judge; their devices are of one kind. If verdicts are timed, the
    `baselines` of each of these candidates' problems are judged too; without a file, those of all
    problems.

    Raises:
        CudaL1Error: nothing could be begun.
    """
    found, complaints = ([], []) if file is None else read_rows(file)
    if file is not None and not found and not complaints:
        raise ConfigError(f"{file}: holds no candidates; give lines of level, problem_id, source")
    outcome = Outcome(device_processes[0].device.kind, len(found) + len(complaints), complaints)
    by_place = {(problem.level, problem.number): problem for problem in problems}
    unknown = Counter[tuple[int, int]]()
    rows: Counter[Key] = Counter()
    wanted: dict[Key, Pair] = {}
    for row in found:
        problem = by_place.get((row.level, row.problem_id))
        if problem is None:
            unknown[row.level, row.problem_id] += 1
            continue
        candidate = Candidate(problem_id=problem.id, source=row.source)
        wanted[problem.id, candidate.id] = problem, candidate
        rows[problem.id, candidate.id] += 1
    for (level, number), count in sorted(unknown.items()):
        outcome.complaints.append(f"level {level} problem {number}: not in the suite; {count} rows")
    compared = problems if file is None else [problem for problem, _ in wanted.values()]
    references = _references(compared, baselines if timing else (), besides=wanted.keys())
    asked = wanted | {key: pair for key, (pair, _) in references.items()}
    with VerdictFile(out, outcome.device_kind, settings.protocol, timing=timing) as verdicts:
        missing = [pair for key, pair in asked.items() if verdicts.find(*key) is None]
        before = {key for key in wanted if verdicts.find(*key) is not None}
        _judge(
            missing,
            device_processes,
            settings,
            outcome,
            verdicts,
            timing=timing,
            wait_s=wait_s,
            as_baseline={key: baseline for key, (_, baseline) in references.items()},
        )
        for key, count in rows.items():
            judged = verdicts.find(*key)
            if judged is None:
                outcome.num_without += count
            else:
                outcome.judged.append(judged)
                outcome.num_new += key not in before
        of_references = (verdicts.find(*key) for key in references)
        outcome.baselines = [judged for judged in of_references if judged is not None]
        outcome.num_references_without = len(references) - len(outcome.baselines)
    outcome.num_without += outcome.num_rows - rows.total()
    return outcome


def _references(
    problems: Iterable[Problem], baselines: Sequence[Baseline], *, besides: Collection[Key]
) -> dict[Key, tuple[Pair, Baseline]]:
    """Return each problem's reference as candidates, unless the same candidate is submitted."""
    found: dict[Key, tuple[Pair, Baseline]] = {}
    for problem in problems:
        for baseline in baselines:
            candidate = as_candidate(problem, baseline)
            key = problem.id, candidate.id
            if key not in besides:
                found[key] = (problem, candidate), baseline
    return found


def _judge(
    missing: Sequence[Pair],
    device_processes: Sequence[DeviceProcess],
    settings: Settings,
    outcome: Outcome,
    verdicts: VerdictFile,
    *,
    timing: bool,
    wait_s: float,
    as_baseline: Mapping[Key, Baseline],
) -> None:
    """Judge the missing candidates and write their verdicts to the file.

    Verdicts stay in the file, whatever stops the run. A large claim has no verdict before another
    device has confirmed it.
    """
    # each problem is prepared once, unless some of its candidates are still being compiled
    work = sorted(missing, key=lambda pair: (pair[0].level, pair[0].number))
    if not any(
        device_process.machine for device_process in device_processes
    ):  # others may have other compilers
        work = _compilable(work, outcome)
    if not work:
        return
    try:
        with _builder(work, device_processes, settings) as builder:
            if builder is not None:
                begin_first(builder, work)
            trial = ReferenceTrial(
                settings.protocol, settings.max_reference_ms, settings.trial_limit_s
            )
            with Fleet(
                device_processes, settings.protocol, wait_s=wait_s, builder=builder
            ) as fleet:
                said = fleet.judge_all(work, timing=timing, trial=trial)
                _keep(said, work, outcome, verdicts, as_baseline)
                outcome.complaints += [
                    f"{fleet.why_lost(device_process)}; others took its candidates over"
                    for device_process in fleet.lost
                ]
            if builder is not None and builder.complaint:
                outcome.complaints.append(builder.complaint)
    except KeyboardInterrupt:
        outcome.stopped, outcome.is_interrupted = "interrupted", True
    except CudaL1Error as error:
        outcome.stopped = str(error)


def _keep(
    said: Iterable[Judgement | Refusal],
    work: Sequence[Pair],
    outcome: Outcome,
    verdicts: VerdictFile,
    as_baseline: Mapping[Key, Baseline],
) -> None:
    """Write each verdict to the file, as it comes; note a line on each problem that is refused."""
    refused = set[str]()
    by_id = {problem.id: problem for problem, _ in work}
    with bar("judging", len(work)) as advance:
        for judgement in said:
            advance()
            if isinstance(judgement, Refusal):
                key, why = by_id[judgement.problem_id].key, judgement.reason
                if judgement.problem_id not in refused:
                    outcome.complaints.append(f"{key}: cannot be judged: {why}")
                refused.add(judgement.problem_id)
                continue
            problem = by_id[judgement.verdict.problem_id]
            verdicts.add(
                Judged(
                    suite=problem.suite,
                    revision=problem.revision,
                    level=problem.level,
                    problem_id=problem.number,
                    problem=problem.key,
                    note=judgement.note,
                    baseline=as_baseline.get((problem.id, judgement.verdict.candidate_id)),
                    verdict=judgement.verdict,
                )
            )


def _compilable(work: Sequence[Pair], outcome: Outcome) -> list[Pair]:
    """Return the candidates that can be compiled here; note a line on all others."""
    lacking = {
        candidate.id: missing_for(candidate.source, problem.device_class)
        for problem, candidate in work
    }
    for missing, count in Counter(filter(None, lacking.values())).items():
        outcome.complaints.append(f"{count} candidates: each {remedy(missing)}")
    return [pair for pair in work if not lacking[pair[1].id]]


def begin_first(builder: Compiles, work: Iterable[Pair]) -> None:
    """Compile the first ones while devices get ready: as many as a fleet has built ahead."""
    first = (pair for pair in work if builder.takes(pair[1]))
    for problem, candidate in islice(first, window(builder)):
        builder.begin(problem, candidate)


def _builder(
    work: Sequence[Pair], device_processes: Sequence[DeviceProcess], settings: Settings
) -> AbstractContextManager[Compiles | None]:
    """Return a builder that compiles ahead, or None if there is nothing to compile."""
    device_class = device_processes[0].device.device_class
    if not any(may_compile(candidate.source, device_class) for _, candidate in work):
        return nullcontext()
    return builder_for(device_processes, settings.protocol)
