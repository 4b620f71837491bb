"""Tests of the reviewer's questions: their candidates, their number, and their consequences."""

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
from cudal1.errors import BudgetError, ProviderDownError, ProviderError
from cudal1.ledger import Ledger
from cudal1.llm.provider import Receipts, Request, completion_of
from cudal1.llm.reviewer.questions import code_id
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompts.prompt import DeviceFacts
from cudal1.review import Ruling
from cudal1.services.repeating import veto_of
from cudal1.services.reviewing import MAX_DOWN, Reviewer, reviewer
from cudal1.settings.params import ReviewerParams
from cudal1.verdict import Status, Verdict

FACTS = DeviceFacts(
    device="cpu", architecture="x86_64", memory="none", cuda_version="none", torch_version="2.13"
)
SOURCE = "class ModelNew:\n    memo = {}\n\n    def forward(self, x):\n        return self.memo\n"
VETO = json.dumps(
    {"is_cheat": True, "kind": "cached_output", "quote": "return self.memo", "evidence": "keeps it"}
)
PASS = json.dumps(
    {"is_cheat": False, "kind": "none", "quote": "", "evidence": "computes on every call"}
)
PARAMS = ReviewerParams(
    provider=None,
    above=3.0,
    above_record=1.5,
    when_screened=True,
    spot_share=0.0,
    num_cases=3,
    attempts=2,
)
PROBLEM = Problem(
    suite="toy",
    level=1,
    number=1,
    name="relu",
    split=Split.TRAIN,
    revision="r",
    device_class=DeviceClass.CPU,
    source="class Model: ...\n",
)
CANDIDATE = Candidate(problem_id=PROBLEM.id, source=SOURCE)
TWIN = Candidate(problem_id=PROBLEM.id, source=f"# honest\n{SOURCE}")
RAISED = {"down": ProviderDownError, "refused": ProviderError, "too dear": BudgetError}
VERDICT = Verdict(
    problem_id=PROBLEM.id,
    candidate_id=CANDIDATE.id,
    protocol_id="q",
    device_kind="cpu",
    device_id="0",
    status=Status.CORRECT,
    judged_at="2026-01-01T00:00:00Z",
    judge_s=0.1,
    measurement=Measurement(
        baseline=Baseline.EAGER,
        speedup=4.0,
        certified=4.0,
        alpha=0.01,
        num_quads=9,
        bucket_medians=(4.0,),
        bucket_variance=0.0,
        is_stable=True,
        reference_us=4.0,
        candidate_us=1.0,
    ),
)


class Judge:
    """A reviewer that gives its answers in turn; each costs a cent."""

    name = "reviewer"
    fingerprint = "reviewer"
    is_seeded = False
    width = 1

    def __init__(self, *says: str) -> None:
        """Set the answers; some words raise (`RAISED`), an `error: …` is a request that failed."""
        self.says = list(says)
        self.prompts: list[str] = []

    @contextmanager
    def open(self, receipts: Receipts) -> Iterator[Any]:
        """Open an exchange."""
        waiting: list[Request] = []

        def answer() -> Completion:
            request, said = waiting.pop(), self.says.pop(0)
            self.prompts.append(request.prompt.messages[0].content)
            if said in RAISED:
                raise RAISED[said]("provider reviewer: gone")
            failed = said.startswith("error: ")
            completion = completion_of(
                request,
                provider=self.name,
                text="" if failed else said,
                finish_reason=said if failed else "stop",
            )
            paid = Try(
                request_id=request.id,
                sent_at="2026-01-01",
                stage=request.stage,
                provider=self.name,
                outcome=TryOutcome.ANSWERED,
                cost_usd=0.01,
                at_most_usd=0.02,
            )
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
    monkeypatch.setattr("cudal1.services.reviewing.provider_of", lambda name, settings: judge)
    settings: Any = {"provider": "anybody"}
    with reviewer(ledger, PARAMS.model_copy(update=settings), FACTS) as opened:
        assert opened is not None
        yield opened


def review(ledger: Ledger, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    with reviewing(ledger, judge, monkeypatch) as opened:
        look(opened, CANDIDATE)


def look(opened: Reviewer, candidate: Candidate) -> None:
    opened.review(PROBLEM, candidate, VERDICT, "certified 4.00x")


def other(number: int) -> Candidate:
    """Return other code with the same line in it."""
    return Candidate(problem_id=PROBLEM.id, source=f"x = {number}\n{SOURCE}")


def ruling(candidate: Candidate, *, is_cheat: bool, at: str = "2026-01-01") -> Ruling:
    return Ruling(
        candidate_id=candidate.id,
        code_id=code_id(PROBLEM.id, candidate.source),
        is_cheat=is_cheat,
        kind="cached_output" if is_cheat else "none",
        evidence="see line 2",
        ruled_at=at,
    )


def test_without_a_reviewer_no_question_is_asked(ledger: Ledger) -> None:
    with reviewer(ledger, PARAMS, FACTS) as nobody:
        assert nobody is None


def test_a_veto_stands_until_a_person_lifts_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge(VETO), monkeypatch)
    veto = ledger.veto(CANDIDATE)
    assert veto is not None
    assert VERDICT.vetoed(veto).status is Status.HACKED


def test_an_opinion_without_a_finding_changes_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge(PASS), monkeypatch)
    assert ledger.veto(CANDIDATE) is None


@pytest.mark.parametrize("said", [VETO, PASS])
def test_each_candidate_is_reviewed_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    review(ledger, Judge(said), monkeypatch)
    review(ledger, Judge(), monkeypatch)


def test_an_invalid_answer_is_asked_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    review(ledger, Judge("Well, hard to say.", VETO), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None


def test_repeated_invalid_answers_end_the_questions(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge("Hm.", "Hm."), monkeypatch)
    review(ledger, Judge(), monkeypatch)
    assert ledger.veto(CANDIDATE) is None


def test_a_reviewer_that_is_down_lets_candidates_pass_and_is_asked_in_the_next_run(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = Judge("down")
    with reviewing(ledger, down, monkeypatch) as opened:
        look(opened, CANDIDATE)
        look(opened, other(1))  # no question is sent
        assert opened.unreviewed == {CANDIDATE.id, other(1).id}
    assert ledger.veto(CANDIDATE) is None
    review(ledger, Judge(VETO), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None


def test_a_failed_request_is_repeated_in_the_next_run(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge("error: HTTP 500"), monkeypatch)
    review(ledger, Judge(VETO), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None


def test_a_paid_unread_answer_is_read_and_not_bought_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cudal1.services.reviewing.opinion_of", kill)
        with pytest.raises(KeyboardInterrupt):
            review(ledger, Judge(VETO), patch)
    review(ledger, Judge(), monkeypatch)
    assert ledger.veto(CANDIDATE) is not None
    assert ledger.query("spent", provider="reviewer").item(0, "cost_usd") == 0.01


def test_the_shipped_cases_are_in_the_database_and_shown(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(PASS)
    review(ledger, judge, monkeypatch)
    assert len(ledger.cases()) >= 25
    assert "Case 3, " in judge.prompts[0]


def test_another_reviewer_is_asked_anew(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    review(ledger, Judge(PASS), monkeypatch)
    another = Judge(VETO)
    another.fingerprint = "another"
    review(ledger, another, monkeypatch)
    assert ledger.veto(CANDIDATE) is not None


# --- candidates cannot switch the reviewer off ----------------------------------------------------


@pytest.mark.parametrize("said", ["error: HTTP 400 too long", "down", "refused"])
def test_a_candidate_that_makes_its_request_fail_is_the_only_unreviewed_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    with reviewing(ledger, Judge(PASS, said, VETO), monkeypatch) as opened:
        for candidate in (other(1), other(2), CANDIDATE):
            look(opened, candidate)
        assert opened.unreviewed == {other(2).id}
    assert ledger.veto(CANDIDATE) is not None


def test_a_reviewer_that_refuses_the_first_request_is_misconfigured(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProviderError):
        review(ledger, Judge("refused"), monkeypatch)


def test_a_reviewer_that_is_down_repeatedly_is_given_up(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(PASS, *["down"] * (MAX_DOWN + 1))
    with reviewing(ledger, judge, monkeypatch) as opened:
        for number in range(MAX_DOWN + 5):
            look(opened, other(number))
    assert judge.says == []


def test_no_question_is_asked_once_the_budget_is_spent(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(PASS, "too dear", VETO)
    with reviewing(ledger, judge, monkeypatch) as opened:
        for number in range(3):
            look(opened, other(number))
    assert judge.says == [VETO]


# --- the same code --------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [VETO, PASS])
def test_another_comment_does_not_give_another_review(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    review(ledger, Judge(said), monkeypatch)
    with reviewing(ledger, Judge(), monkeypatch) as opened:
        look(opened, TWIN)
    assert (ledger.veto(TWIN) is None) == (said == PASS)
    (copied,) = ledger.reviews(TWIN, reviewer_id="reviewer")
    assert copied.trigger == f"same code as {CANDIDATE.id}"
    assert copied.completion.cost_usd == 0
    assert ledger.query("cost").filter(provider="reviewer").item(0, "num_answers") == 1


def test_a_veto_holds_for_the_same_code_without_suspicion(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge(VETO), monkeypatch)
    assert veto_of(ledger, TWIN) is not None


def test_a_dismissed_veto_is_dismissed_for_the_same_code(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge(VETO), monkeypatch)
    veto_of(ledger, TWIN)
    ledger.add_ruling(ruling(CANDIDATE, is_cheat=False))
    assert veto_of(ledger, TWIN) is None


@pytest.mark.parametrize("ruled", ["itself", "the same code"])
@pytest.mark.parametrize("is_cheat", [True, False])
def test_no_question_is_asked_about_a_candidate_with_a_ruling(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, ruled: str, is_cheat: bool
) -> None:
    about = CANDIDATE if ruled == "itself" else TWIN
    ledger.add_candidate(about)
    ledger.add_ruling(ruling(about, is_cheat=is_cheat))
    review(ledger, Judge(), monkeypatch)
    assert (ledger.veto(CANDIDATE) is not None) == is_cheat
