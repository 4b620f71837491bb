"""Tests that a duel judges both sides' answers to one problem together, and no other problem's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cudal1.candidate import Candidate
from cudal1.settings.params import Params
from cudal1.verdict import Verdict
from tasks.night.duel import _Arena
from tests.services.test_reviewing import PROBLEM, VERDICT

PARAMS = Params.load(Path(__file__).parents[3] / "params.yaml")
LIMIT = 3.0


class SeenSource:
    """A source of verdicts that reads a candidate's speedup from its source."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []

    def judge_all(self, asked: list[tuple[Any, Candidate]]) -> list[Verdict]:
        self.lists.append([candidate.source for _, candidate in asked])
        return [_verdict(candidate) for _, candidate in asked]


def _verdict(candidate: Candidate) -> Verdict:
    assert VERDICT.measurement is not None
    speeds = {"speedup": float(candidate.source), "certified": float(candidate.source)}
    measured = VERDICT.measurement.model_copy(update=speeds)
    return VERDICT.model_copy(update={"candidate_id": candidate.id, "measurement": measured})


def test_both_sides_of_a_pair_are_judged_together_and_each_counts_up_to_the_limit() -> None:
    section = PARAMS.duel.model_copy(update={"max_reward": LIMIT})
    stage: Any = SimpleNamespace(params=PARAMS.model_copy(update={"duel": section}))
    source, nothing = SeenSource(), SimpleNamespace()
    arena: Any = _Arena(stage, nothing, source, {}, nothing)  # pyright: ignore[reportArgumentType] - it only asks for verdicts
    fast, slow = (Candidate(problem_id=PROBLEM.id, source=speed) for speed in ("9.0", "1.5"))
    answers = {"champion": [(PROBLEM, slow), (PROBLEM, None)], "challenger": [(PROBLEM, fast)] * 2}
    assert arena._mean_rewards(answers) == {"champion": 0.75, "challenger": LIMIT}
    assert source.lists == [["1.5", "9.0", "9.0"]]
