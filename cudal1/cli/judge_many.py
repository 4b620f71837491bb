"""Verdicts on a file of candidates: by problem, on every device, going on where it was stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cudal1.candidate import Candidate
from cudal1.cli.answers import read_answers
from cudal1.cli.bar import bar
from cudal1.cli.settings import Settings
from cudal1.cli.suites import load_named
from cudal1.cli.verdict_file import Judged, VerdictFile
from cudal1.errors import ConfigError, CudaL1Error, SuiteError
from cudal1.harness.device import Device, find_devices
from cudal1.harness.fleet import Fleet
from cudal1.harness.mutants import kill_table
from cudal1.problem import Problem
from cudal1.suite.admission import admit_all

Pair = tuple[Problem, Candidate]


@dataclass
class Batch:
    """What became of a file of candidates."""

    device_kind: str
    num_rows: int
    complaints: list[str]
    """A line on each row that is no answer, and on each problem that cannot be judged."""
    num_without: int = 0
    """Rows without a verdict."""
    num_new: int = 0
    judged: list[Judged] = field(default_factory=list[Judged])
    """By candidate, duplicates once."""
    stopped: str = ""
    """Why, before the end."""
    is_interrupted: bool = False
    """Ctrl-C."""


def judge_many(
    file: Path, suite: str | None, out: Path, settings: Settings, *, timing: bool, wait_s: float
) -> Batch:
    """Judge every answer of `file` that `out` holds no verdict on.

    Raises:
        CudaL1Error: nothing could be begun.
    """
    answers, complaints = read_answers(file)
    if not answers and not complaints:
        raise ConfigError(f"{file}: holds no candidates; give lines of level, problem_id, source")
    devices = find_devices(settings.device_class)
    batch = Batch(devices[0].kind, len(answers) + len(complaints), complaints)
    problems = {(p.level, p.number): p for p in load_named(suite, settings.device_class)}
    unknown = Counter[tuple[int, int]]()
    rows: Counter[tuple[str, str]] = Counter()
    wanted: dict[tuple[str, str], Pair] = {}
    for answer in answers:
        problem = problems.get((answer.level, answer.problem_id))
        if problem is None:
            unknown[answer.level, answer.problem_id] += 1
            continue
        candidate = Candidate(problem_id=problem.id, source=answer.source)
        wanted[problem.id, candidate.id] = problem, candidate
        rows[problem.id, candidate.id] += 1
    for (level, number), count in sorted(unknown.items()):
        batch.complaints.append(f"level {level} problem {number}: not in the suite; {count} rows")
    with VerdictFile(out, batch.device_kind, settings.protocol, timing=timing) as verdicts:
        missing = [pair for key, pair in wanted.items() if verdicts.find(*key) is None]
        _judge(missing, devices, settings, batch, verdicts, timing=timing, wait_s=wait_s)
        for key, count in rows.items():
            judged = verdicts.find(*key)
            if judged is None:
                batch.num_without += count
            else:
                batch.judged.append(judged)
    batch.num_without += batch.num_rows - rows.total()
    return batch


def _judge(
    missing: Sequence[Pair], devices: Sequence[Device], settings: Settings, batch: Batch,
    verdicts: VerdictFile, *, timing: bool, wait_s: float,
) -> None:  # fmt: skip
    """Judge; what was judged is in the file, whatever stops it."""
    try:
        notes = _notes([problem for problem, _ in missing], devices[0], settings, batch)
        work = [(problem, each) for problem, each in missing if problem.id in notes]
        work.sort(key=lambda pair: (pair[0].level, pair[0].number))  # prepared once
        if not work:
            return
        with (
            Fleet(devices, settings.protocol, wait_s=wait_s) as fleet,
            bar("judging", len(work)) as advance,
        ):
            by_id = {problem.id: problem for problem, _ in work}
            for judgement in fleet.judge_all(work, timing=timing):
                problem = by_id[judgement.verdict.problem_id]
                verdicts.add(
                    Judged(
                        suite=problem.suite, revision=problem.revision, level=problem.level,
                        problem_id=problem.number, problem=problem.key, note=notes[problem.id],
                        verdict=judgement.verdict,
                    )
                )  # fmt: skip
                batch.num_new += 1
                advance()
            batch.complaints += [
                f"device {device.kind} {device.id}: its judge died; others took its candidates over"
                for device in fleet.lost
            ]
    except KeyboardInterrupt:
        batch.stopped, batch.is_interrupted = "interrupted", True
    except CudaL1Error as error:
        if not batch.num_new:
            raise
        batch.stopped = str(error)


def _notes(
    problems: Sequence[Problem], device: Device, settings: Settings, batch: Batch
) -> dict[str, str | None]:
    """By the id of each that can be judged: what its check would let through, if anything."""
    found: dict[str, str | None] = {}
    unique = list({problem.id: problem for problem in problems}.values())
    with bar("trying references", len(unique)) as advance:
        for problem, admission in admit_all(unique, max_reference_ms=settings.max_reference_ms):
            try:
                if not admission.admitted:
                    raise SuiteError(f"{problem.key}: cannot be judged: {admission.reason}")
                found[problem.id] = kill_table(problem, settings.protocol, device).rejection
            except SuiteError as error:
                batch.complaints.append(str(error))
            advance()
    return found
