"""Score answers: from the memory if they are known, otherwise by a judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from benchmarks.ablation.memory import Judged, Memory
from cudal1.candidate import Candidate
from cudal1.extract.extract import extract
from cudal1.harness.device.device import find_device
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem
from cudal1.selection.reward import speed_reward
from cudal1.settings import protocols


class TimeUp(Exception):
    """The piece's time is over; what was judged so far is kept."""


class Judge(Protocol):
    """A judge of sources."""

    def judge(
        self, problem: Problem, candidate: Candidate, record: float | None
    ) -> tuple[str, float]:
        """Return a candidate's status and its score, 0 without success."""
        ...

    def close(self) -> None:
        """Release the device."""
        ...


class HarnessJudge:
    """The harness as a judge: certified speedups."""

    def __init__(self, device_class: DeviceClass, protocol: str) -> None:
        self.device = find_device(device_class)
        self.protocol = protocols.load(protocol)
        self._pool = Pool(self.device, self.protocol)
        self._pool.__enter__()

    def judge(
        self, problem: Problem, candidate: Candidate, record: float | None
    ) -> tuple[str, float]:
        """Return the verdict's status and certified speedup."""
        verdict = self._pool.judge(problem, candidate, record=record).verdict
        return verdict.status.value, speed_reward(verdict)

    def close(self) -> None:
        """Stop workers and unlock the device."""
        self._pool.__exit__(None, None, None)


class Bench:
    """Scores of answers; equal sources are judged once in the whole experiment."""

    def __init__(self, memory: Memory, judge: Judge, *, time_left_s: Callable[[], float]) -> None:
        self.memory = memory
        self._judge = judge
        self._time_left_s = time_left_s
        self.num_reused = 0
        self.num_judged = 0
        self.judging_s = 0.0

    def score(self, problem: Problem, text: str) -> Judged | None:
        """Return the score of an answer's source; None if the answer has no source.

        Raises:
            TimeUp: it would have to be judged, and the time is over.
        """
        source = extract(text).source
        if source is None:
            return None
        return self.score_source(problem, source)

    def score_source(self, problem: Problem, source: str) -> Judged:
        """Return the score of a source, as `score` does."""
        candidate = Candidate(problem_id=problem.id, source=source)
        known = self.memory.find(candidate)
        if known is not None:
            self.num_reused += 1
            return known
        self.check_time()
        started = time.monotonic()
        record = self.memory.record(problem.id)
        status, score = self._judge.judge(problem, candidate, record)
        seconds = time.monotonic() - started
        self.judging_s += seconds
        judged = Judged(
            candidate_id=candidate.id,
            problem_id=problem.id,
            source=source,
            status=status,
            score=score,
            seconds=round(seconds, 4),
        )
        self.memory.keep(judged)
        self.num_judged += 1
        return judged

    def check_time(self) -> None:
        """Raise `TimeUp` if the piece is over."""
        if self._time_left_s() <= 0:
            raise TimeUp
