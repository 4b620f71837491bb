"""Tests that an attempt says what became of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudal1.candidate import Candidate, Completion
from cudal1.ledger import Ledger
from cudal1.services.attempts import attempt_of, failure_of
from cudal1.verdict import Status
from tests.services.test_reviewing import CANDIDATE, PASS, VERDICT, Judge, review


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path) as opened:
        opened.begin("rl")
        yield opened


def completion(text: str) -> Completion:
    return Completion(
        id="a",
        stage="rl",
        provider="policy",
        problem_id=CANDIDATE.problem_id,
        prompt_id="p",
        template_id="t",
        attempt=0,
        text=text,
        finish_reason="sampled",
    )


def test_an_attempt_without_a_candidate_says_why_there_is_none(ledger: Ledger) -> None:
    made = attempt_of(ledger, completion("```python\nclass Other: ...\n```"), None, None)
    assert (made.candidate_id, made.source, made.score) == (None, None, 0.0)
    assert made.feedback == "No code was found: defines Other but not ModelNew"


def test_an_attempt_has_the_speedup_of_its_candidate(ledger: Ledger) -> None:
    made = attempt_of(ledger, completion(CANDIDATE.source), CANDIDATE, VERDICT)
    assert (made.candidate_id, made.source) == (CANDIDATE.id, CANDIDATE.source)
    assert made.score == VERDICT.speedup


def test_an_attempt_has_the_words_of_a_reviewer_that_let_it_pass(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    review(ledger, Judge(PASS), monkeypatch)
    made = attempt_of(ledger, completion(CANDIDATE.source), CANDIDATE, VERDICT)
    assert made.feedback.splitlines()[-1] == "A reviewer let it pass: computes on every call"
    other = Candidate(problem_id=CANDIDATE.problem_id, source="class ModelNew: ...")
    assert "reviewer" not in attempt_of(ledger, completion(""), other, VERDICT).feedback


def test_a_failure_has_its_reason() -> None:
    failed = VERDICT.model_copy(
        update={"status": Status.CRASHED, "reason": "ValueError: no", "measurement": None}
    )
    made = failure_of(CANDIDATE, failed)
    assert (made.source, made.score) == (CANDIDATE.source, 0.0)
    assert made.feedback == "It crashes: ValueError: no"
