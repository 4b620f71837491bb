"""Tests of a policy's own answers: each is sampled once, and judged while others are sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudal1.ledger import Ledger
from cudal1.services.judging import verdict_source
from cudal1.train.policy import Sampled
from tasks import examine
from tasks.examine import Answer, Sampling, sample_and_judge
from tests.tasks.learning.test_world import DOCKETS, PROBLEMS, STAGE, FakeQueue, says

SAMPLING = Sampling(
    num_samples=3, turns=1, temperature=1.0, top_p=1.0, seed=1, max_new_tokens=8, batch_size=4
)


class Parrot:
    """A policy that gives prepared answers, and notes the candidates that wait for a judge."""

    id = "parrot"

    def __init__(self, *texts: str) -> None:
        self._texts = iter(texts)
        self.num_asked: list[int] = []
        self.num_expected: list[int] = []

    def sample(self, chats: Sequence[Any], **_: Any) -> list[Sampled]:
        self.num_asked.append(len(chats))
        assert DOCKETS or not chats, "while it writes, judges get ready"
        self.num_expected.append(len(DOCKETS[-1].added) if DOCKETS else 0)
        return [Sampled(next(self._texts), "stop", 5, 5) for _ in chats]


class Loaded(Parrot):
    """A stand-in for a policy that is loaded from a folder."""

    def num_tokens(self, _: Any) -> int:
        return 5


@pytest.fixture(autouse=True)
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    DOCKETS.clear()
    monkeypatch.setattr("cudal1.services.judging.JudgingQueue", FakeQueue)
    monkeypatch.setattr(examine, "CHUNK", 2)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path) as opened:
        opened.begin("policy", run="r")
        yield opened


def answers(ledger: Ledger, parrot: Parrot, *, timing: bool = True) -> tuple[list[Answer], int]:
    """Return three answers to each of two problems, and the number of judgements for them."""
    with verdict_source(ledger, STAGE.params) as judge:
        made = sample_and_judge(
            STAGE,
            ledger,
            judge,
            parrot,
            PROBLEMS,
            SAMPLING,
            "answers",
            timing=timing,  # pyright: ignore[reportArgumentType]
        )
        return made, judge.num_judged


TEXTS = (says("1.5"), "nothing", says("cheats"), says("2.0"), says("2.0"), says("3.0"))


def test_answers_come_back_in_order_with_their_outcomes(ledger: Ledger) -> None:
    found, num_judged = answers(ledger, Parrot(*TEXTS))
    assert [answer.problem.id for answer in found] == [p.id for p in PROBLEMS for _ in range(3)]
    speeds = [answer.verdict and answer.verdict.speedup for answer in found]
    assert speeds == [1.5, None, None, 2.0, 2.0, 3.0]
    assert [answer.candidate is None for answer in found].index(True) == 1
    assert num_judged == 4, "equal sources are judged once"


def test_earlier_answers_are_being_judged_while_others_are_sampled(ledger: Ledger) -> None:
    parrot = Parrot(*TEXTS)
    answers(ledger, parrot)
    assert parrot.num_asked == [2, 2, 2, 0]
    assert parrot.num_expected == [0, 1, 3, 4]


def test_an_examination_uses_existing_judges(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(examine, "Sampler", lambda _: Loaded(*[says("2.0")] * 1000))
    monkeypatch.setattr(examine, "admitted_problems", lambda _: PROBLEMS)
    with verdict_source(ledger, STAGE.params) as judge:
        judge.get_ready()
        marks = examine.examine(STAGE, ledger, tmp_path, judge)
    assert marks["heldout_success"] == 1.0
    assert judge.num_judged == len(PROBLEMS)
    assert len(DOCKETS) == 1


def test_a_known_answer_is_neither_sampled_nor_judged_again(ledger: Ledger) -> None:
    found, _ = answers(ledger, Parrot(*TEXTS))
    again, num_judged = answers(ledger, Parrot())
    assert (again, num_judged) == (found, 0)
    assert len(DOCKETS) == 1, "a repeated stage starts no harness"


def test_after_a_kill_the_rest_is_judged(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(FakeQueue):
        def __enter__(self) -> FakeQueue:
            self.breaks_at = "# 2.0"
            return super().__enter__()

    monkeypatch.setattr("cudal1.services.judging.JudgingQueue", Breaks)
    with pytest.raises(KeyboardInterrupt):
        answers(ledger, Parrot(*TEXTS))
    monkeypatch.setattr("cudal1.services.judging.JudgingQueue", FakeQueue)
    parrot = Parrot()
    found, num_judged = answers(ledger, parrot)
    assert sum(parrot.num_asked) == 0, "all had been stored before any was waited for"
    assert len(found) == 6
    assert num_judged == 2


@pytest.mark.slow
def test_a_check_leaves_speed_unknown_and_a_verdict_serves_as_a_check(ledger: Ledger) -> None:
    found, num_judged = answers(ledger, Parrot(*TEXTS), timing=False)
    assert {answer.verdict.speedup for answer in found if answer.verdict} == {None}
    assert sum(a.verdict is not None and a.verdict.is_successful for a in found) == 4
    assert num_judged == 4
    assert answers(ledger, Parrot())[1] == 3, "a failure needs no second verdict"
    assert answers(ledger, Parrot(), timing=False)[1] == 0


class Refining(Loaded):
    """A policy that notes what it is asked."""

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.asked: list[str] = []

    def sample(self, chats: Sequence[Any], **more: Any) -> list[Sampled]:
        self.asked += [chat[0]["content"] for chat in chats]
        return super().sample(chats, **more)


def in_turns(ledger: Ledger, policy: Refining) -> list[Answer]:
    """Return four answers to a problem: two trajectories of two turns."""
    sampling = replace(SAMPLING, num_samples=4, turns=2)
    with verdict_source(ledger, STAGE.params) as judge:
        return sample_and_judge(
            STAGE,
            ledger,
            judge,
            policy,  # pyright: ignore[reportArgumentType]
            PROBLEMS[:1],
            sampling,
            "answers",
            timing=True,
        )


IN_TURNS = (says("1.5", 1), "nothing", says("2.0", 2), says("3.0", 3))


def test_an_answer_of_a_later_turn_goes_on_from_its_own_trajectory(ledger: Ledger) -> None:
    policy = Refining(*IN_TURNS)
    found = in_turns(ledger, policy)
    first, second, after_first, after_second = policy.asked
    assert first == second
    assert "return x + 1" in after_first
    assert "Its speedup is 1.50" in after_first
    assert "No code was found" in after_second
    one, two, three, four = (answer.completion for answer in found)
    assert [each.attempt for each in (one, two, three, four)] == [0, 1, 2, 3]
    assert [each.turn for each in (one, two, three, four)] == [1, 1, 2, 2]
    assert (three.follows, four.follows) == (one.id, two.id)
    assert three.exemplar_scores == (1.5,)


def test_known_trajectories_are_neither_sampled_nor_judged_again(ledger: Ledger) -> None:
    found = in_turns(ledger, Refining(*IN_TURNS))
    assert in_turns(ledger, Refining()) == found


def test_an_examination_in_turns_has_as_many_answers(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    evaluation = STAGE.params.evaluation.model_copy(update={"turns": 3})
    stage = replace(STAGE, params=STAGE.params.model_copy(update={"evaluation": evaluation}))
    policy = Refining(*[says("2.0")] * 1000)
    monkeypatch.setattr(examine, "Sampler", lambda _: policy)
    monkeypatch.setattr(examine, "admitted_problems", lambda _: PROBLEMS)
    marks = examine.examine(stage, ledger, tmp_path)
    assert marks["heldout_num_answers"] == len(PROBLEMS) * evaluation.num_samples
    assert sum("Attempt 2" in text for text in policy.asked) == len(PROBLEMS) * (
        evaluation.num_samples // 3
    )
