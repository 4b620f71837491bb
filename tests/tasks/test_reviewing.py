"""Who is asked about, how often, and what follows from what is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.billing import Try, TryOutcome
from cudal1.candidate import Candidate, Completion
from cudal1.errors import ProviderDownError
from cudal1.ledger import Ledger
from cudal1.llm.provider import Receipts, Request, completion_of
from cudal1.measurement import Measurement
from cudal1.params import HackJudgeParams
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompt import DeviceFacts
from cudal1.verdict import Status, Verdict
from tasks.reviewing import Reviewer, reviewer

FACTS = DeviceFacts(
    device="cpu", architecture="x86_64", memory="none", cuda_version="none", torch_version="2.13"
)
SOURCE = "class ModelNew:\n    memo = {}\n\n    def forward(self, x):\n        return self.memo\n"
VETO = json.dumps({
    "is_cheat": True, "kind": "cached_output", "quote": "return self.memo", "evidence": "keeps it"
})  # fmt: skip
PASS = json.dumps({
    "is_cheat": False, "kind": "none", "quote": "", "evidence": "computes on every call"
})  # fmt: skip
PARAMS = HackJudgeParams(
    provider=None, above=3.0, above_record=1.5, when_screened=True, num_cases=3, attempts=2
)
PROBLEM = Problem(
    suite="toy", level=1, number=1, name="relu", split=Split.TRAIN, revision="r",
    device_class=DeviceClass.CPU, source="class Model: ...\n",
)  # fmt: skip
CANDIDATE = Candidate(problem_id=PROBLEM.id, source=SOURCE)
VERDICT = Verdict(
    problem_id=PROBLEM.id, candidate_id=CANDIDATE.id, protocol_id="q", device_kind="cpu",
    device_id="0", status=Status.CORRECT, judged_at="2026-01-01T00:00:00Z", judge_s=0.1,
    measurement=Measurement(
        baseline=Baseline.EAGER, speedup=4.0, certified=4.0, alpha=0.01, num_quads=9,
        bucket_medians=(4.0,), bucket_variance=0.0, is_stable=True, reference_us=4.0,
        candidate_us=1.0,
    ),
)  # fmt: skip


class Judge:
    """Says one thing after the other; each costs a cent."""

    name = "hack_judge"
    fingerprint = "judge"
    is_seeded = False
    width = 1

    def __init__(self, *says: str) -> None:
        """What it says; `down` raises, an `error: …` is a request that failed for good."""
        self.says = list(says)
        self.prompts: list[str] = []

    @contextmanager
    def open(self, receipts: Receipts) -> Iterator[Any]:
        """An exchange."""
        waiting: list[Request] = []

        def answer() -> Completion:
            request, said = waiting.pop(), self.says.pop(0)
            self.prompts.append(request.prompt.messages[0].content)
            if said == "down":
                raise ProviderDownError("provider hack_judge: gone")
            failed = said.startswith("error: ")
            completion = completion_of(
                request, provider=self.name, text="" if failed else said,
                finish_reason=said if failed else "stop",
            )  # fmt: skip
            paid = Try(
                request_id=request.id, sent_at="2026-01-01", stage=request.stage,
                provider=self.name, outcome=TryOutcome.ANSWERED, cost_usd=0.01, at_most_usd=0.02,
            )  # fmt: skip
            receipts.arrived(completion, paid)
            return completion

        yield SimpleNamespace(ask=waiting.append, answer=answer)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path) as opened:
        opened.begin("filter")
        yield opened


@contextmanager
def reviewing(ledger: Ledger, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reviewer]:
    monkeypatch.setattr("tasks.reviewing.provider_of", lambda name, settings: judge)
    settings: Any = {"provider": "anybody"}
    with reviewer(ledger, PARAMS.model_copy(update=settings), FACTS) as opened:
        assert opened is not None
        yield opened


def review(ledger: Ledger, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    with reviewing(ledger, judge, monkeypatch) as opened:
        opened.review(PROBLEM, CANDIDATE, VERDICT, "certified 4.00x")


def test_nobody_is_asked_where_there_is_no_judge(ledger: Ledger) -> None:
    with reviewer(ledger, PARAMS, FACTS) as nobody:
        assert nobody is None


def test_a_veto_stands_until_a_person_lifts_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge(VETO), monkeypatch)
    veto = ledger.veto(CANDIDATE)
    assert veto is not None
    assert VERDICT.vetoed(veto).status is Status.HACKED


def test_to_find_nothing_changes_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    review(ledger, Judge(PASS), monkeypatch)
    assert ledger.veto(CANDIDATE) is None


@pytest.mark.parametrize("said", [VETO, PASS])
def test_a_candidate_is_asked_about_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    review(ledger, Judge(said), monkeypatch)
    review(ledger, Judge(), monkeypatch)


def test_what_is_no_answer_is_asked_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    review(ledger, Judge("Well, hard to say.", VETO), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None


def test_what_is_no_answer_often_enough_is_left(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge("Hm.", "Hm."), monkeypatch)
    review(ledger, Judge(), monkeypatch)
    assert ledger.veto(CANDIDATE) is None


def test_a_judge_that_is_down_lets_pass_and_is_asked_in_the_next_run(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = Judge("down")
    with reviewing(ledger, down, monkeypatch) as opened:
        for _ in range(2):  # the second is not even asked
            opened.review(PROBLEM, CANDIDATE, VERDICT, "certified 4.00x")
    assert ledger.veto(CANDIDATE) is None
    review(ledger, Judge(VETO), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None


def test_a_request_that_failed_is_asked_again_in_the_next_run(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge("error: HTTP 500"), monkeypatch)
    review(ledger, Judge(VETO), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None


def test_an_answer_that_nobody_had_read_is_read_and_not_bought_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tasks.reviewing.opinion_of", kill)
        with pytest.raises(KeyboardInterrupt):
            review(ledger, Judge(VETO), patch)
    review(ledger, Judge(), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None
    assert ledger.query("spent", provider="hack_judge").item(0, "cost_usd") == 0.01


def test_the_shipped_cases_are_in_the_database_and_shown(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(PASS)
    review(ledger, judge, monkeypatch)
    assert len(ledger.cases()) >= 25
    assert "Case 3, " in judge.prompts[0]


def test_another_judge_is_asked_anew(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    review(ledger, Judge(PASS), monkeypatch)
    other = Judge(VETO)
    other.fingerprint = "other"
    review(ledger, other, monkeypatch)
    assert ledger.veto(CANDIDATE) is not None
