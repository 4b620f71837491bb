"""Verdicts on a file of candidates: by problem, on every device, going on where it was stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from cudal1.baseline import Baseline, as_candidate
from cudal1.candidate import Candidate
from cudal1.cli.bar import bar
from cudal1.cli.candidate_rows import read_rows
from cudal1.cli.settings import Settings
from cudal1.cli.verdict_file import Judged, VerdictFile
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.harness.ahead import Compiles, window
from cudal1.harness.builder import Builder, may_compile
from cudal1.harness.cluster_builder import ClusterBuilder
from cudal1.harness.errand import Refusal
from cudal1.harness.fleet import Fleet
from cudal1.harness.judge import Judgement
from cudal1.harness.kept import default_folder
from cudal1.harness.seats import Seat
from cudal1.harness.toolchain import missing_for, remedy
from cudal1.problem import Problem
from cudal1.services.trying import ReferenceTrial

Pair = tuple[Problem, Candidate]
Key = tuple[str, str]
"""A problem's id and a candidate's."""


@dataclass
class Outcome:
    """What became of a file of candidates."""

    device_kind: str
    num_rows: int
    complaints: list[str]
    """A line on each that is no row, and on each problem that cannot be judged."""
    num_without: int = 0
    """Rows without a verdict."""
    num_new: int = 0
    judged: list[Judged] = field(default_factory=list[Judged])
    """By candidate, duplicates once."""
    baselines: list[Judged] = field(default_factory=list[Judged])
    """Verdicts on the references that were asked for, new or old."""
    num_references_without: int = 0
    stopped: str = ""
    """Why, before the end."""
    is_interrupted: bool = False
    """Ctrl-C."""

    def of(self, baseline: Baseline) -> list[Judged]:
        """The verdicts on references that were run this way."""
        return [judged for judged in self.baselines if judged.baseline is baseline]


def judge_many(
    file: Path | None, problems: Sequence[Problem], out: Path, settings: Settings,
    seats: Sequence[Seat], *, timing: bool, baselines: Sequence[Baseline], wait_s: float,
) -> Outcome:  # fmt: skip
    """Judge every candidate of `file`, for some of `problems`, that `out` holds no verdict on.

    All `seats` judge, of devices of one kind.

    Where they are timed, so are the `baselines` of each of these problems, and without a file those
    of all.

    Raises:
        CudaL1Error: nothing could be begun.
    """
    found, complaints = ([], []) if file is None else read_rows(file)
    if file is not None and not found and not complaints:
        raise ConfigError(f"{file}: holds no candidates; give lines of level, problem_id, source")
    outcome = Outcome(seats[0].device.kind, len(found) + len(complaints), complaints)
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
            missing, seats, settings, outcome, verdicts, timing=timing, wait_s=wait_s,
            as_baseline={key: baseline for key, (_, baseline) in references.items()},
        )  # fmt: skip
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
    """Each problem's reference as candidates, unless somebody else submits just that."""
    found: dict[Key, tuple[Pair, Baseline]] = {}
    for problem in problems:
        for baseline in baselines:
            candidate = as_candidate(problem, baseline)
            key = problem.id, candidate.id
            if key not in besides:
                found[key] = (problem, candidate), baseline
    return found


def _judge(
    missing: Sequence[Pair], seats: Sequence[Seat], settings: Settings, outcome: Outcome,
    verdicts: VerdictFile, *, timing: bool, wait_s: float, as_baseline: Mapping[Key, Baseline],
) -> None:  # fmt: skip
    """Judge; what was judged is in the file, whatever stops it, but for claims that wait.

    A large claim has no verdict before another device has confirmed it.
    """
    # each is prepared once, unless some of its candidates are still being compiled
    work = sorted(missing, key=lambda pair: (pair[0].level, pair[0].number))
    if not any(seat.machine for seat in seats):  # others may have other compilers
        work = _compilable(work, outcome)
    if not work:
        return
    try:
        with _builder(work, seats, settings) as builder:
            if builder is not None:
                begin_first(builder, work)
            trial = ReferenceTrial(
                settings.protocol, settings.max_reference_ms, settings.trial_limit_s
            )
            with Fleet(seats, settings.protocol, wait_s=wait_s, builder=builder) as fleet:
                said = fleet.judge_all(work, timing=timing, trial=trial)
                _keep(said, work, outcome, verdicts, as_baseline)
                outcome.complaints += [
                    f"{fleet.why_lost(seat)}; others took its candidates over"
                    for seat in fleet.lost
                ]
            if builder is not None and builder.complaint:
                outcome.complaints.append(builder.complaint)
    except KeyboardInterrupt:
        outcome.stopped, outcome.is_interrupted = "interrupted", True
    except CudaL1Error as error:
        outcome.stopped = str(error)


def _keep(
    said: Iterable[Judgement | Refusal], work: Sequence[Pair], outcome: Outcome,
    verdicts: VerdictFile, as_baseline: Mapping[Key, Baseline],
) -> None:  # fmt: skip
    """Each verdict in the file, as it comes; a line on each problem that cannot be judged."""
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
                    suite=problem.suite, revision=problem.revision, level=problem.level,
                    problem_id=problem.number, problem=problem.key, note=judgement.note,
                    baseline=as_baseline.get((problem.id, judgement.verdict.candidate_id)),
                    verdict=judgement.verdict,
                )
            )  # fmt: skip


def _compilable(work: Sequence[Pair], outcome: Outcome) -> list[Pair]:
    """Those that can be compiled here; a line on all others."""
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
    work: Sequence[Pair], seats: Sequence[Seat], settings: Settings
) -> AbstractContextManager[Compiles | None]:
    """What compiles ahead, if there is anything to compile."""
    device_class = seats[0].device.device_class
    if not any(may_compile(candidate.source, device_class) for _, candidate in work):
        return nullcontext()
    if any(seat.machine for seat in seats):
        return ClusterBuilder(seats, settings.protocol)
    return Builder([seat.device for seat in seats], settings.protocol, default_folder())
