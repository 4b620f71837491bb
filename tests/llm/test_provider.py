"""Tests of requests, and of the choice of a provider."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from cudal1.candidate import Completion
from cudal1.llm.at_once import answering_at_once
from cudal1.llm.made import make_provider
from cudal1.llm.provider import (
    Exchange,
    Receipts,
    Request,
    complete,
    completion_of,
    has_failed,
    request_to,
)
from cudal1.problem import Problem
from cudal1.prompts.prompt import Message, Prompt
from cudal1.settings.provider_settings import ProviderSettings

SETTINGS: TypeAdapter[Any] = TypeAdapter(ProviderSettings)


class Silent:
    """A provider that gives empty answers."""

    name = "silent"

    def __init__(self, fingerprint: str = "f", is_seeded: bool = False) -> None:
        """Set the requested fingerprint."""
        self.fingerprint = fingerprint
        self.is_seeded = is_seeded

    width = 1

    def open(self, receipts: Receipts) -> AbstractContextManager[Exchange]:
        """Answer with empty texts."""
        return answering_at_once(self._answer, receipts)

    def _answer(self, request: Request) -> Completion:
        return completion_of(request, provider=self.name, text="", finish_reason="stop")


@pytest.fixture
def request_with(problem: Problem) -> Callable[..., Request]:
    """Return a function that makes a request with some fields changed."""

    def make(provider: Silent | None = None, **changes: Any) -> Request:
        message = Message(role="user", content="hi")
        prompt = Prompt(messages=(message,), template_id="t", exemplar_ids=("e1", "e2"))
        asked = {"stage": "s", "problem": problem, "prompt": prompt, "attempt": 0, "seed": 0}
        return request_to(provider or Silent(), **{**asked, **changes})

    return make


def test_equal_questions_have_equal_ids(request_with: Callable[..., Request]) -> None:
    assert request_with().id == request_with().id


def test_another_attempt_is_another_question(request_with: Callable[..., Request]) -> None:
    assert request_with().id != request_with(attempt=1).id


def test_another_provider_is_another_question(request_with: Callable[..., Request]) -> None:
    assert request_with().id != request_with(Silent("g")).id


def test_another_prompt_is_another_question(request_with: Callable[..., Request]) -> None:
    prompt = Prompt(messages=(Message(role="user", content="ho"),), template_id="t")
    assert request_with().id != request_with(prompt=prompt).id


def test_two_stages_share_an_answer(request_with: Callable[..., Request]) -> None:
    assert request_with().id == request_with(stage="t").id


@pytest.mark.parametrize("is_seeded", [True, False])
def test_the_seed_changes_the_question_of_seeded_providers_only(
    request_with: Callable[..., Request], is_seeded: bool
) -> None:
    provider = Silent(is_seeded=is_seeded)
    differs = request_with(provider).id != request_with(provider, seed=1).id
    assert differs is is_seeded


def test_a_completion_keeps_its_prompt(request_with: Callable[..., Request], kept: Any) -> None:
    (completion,) = complete(Silent(), [request_with()], kept)
    assert (completion.exemplar_ids, completion.template_id) == (("e1", "e2"), "t")


def test_an_answer_is_recorded_before_it_is_returned(
    request_with: Callable[..., Request], kept: Any
) -> None:
    with Silent().open(kept) as exchange:
        exchange.ask(request_with())
        assert kept.completions == []
        assert exchange.answer() == kept.completions[0]


def test_only_an_error_counts_as_a_failure(request_with: Callable[..., Request]) -> None:
    reasons = ["stop", "length", "exhausted", "error: HTTP 500"]
    failed = [
        has_failed(completion_of(request_with(), provider="p", text="", finish_reason=reason))
        for reason in reasons
    ]
    assert failed == [False, False, False, True]


class NoPolicy:
    """A loader that loads nothing."""

    def __call__(self, folder: Path, /) -> Any:
        """Load nothing; no test calls this."""
        raise AssertionError(f"{folder} was loaded")

    fingerprint = __call__


@pytest.mark.parametrize(
    ("section", "type_name"),
    [
        ({"kind": "rewriter", "teacher": "cautious"}, "RewriterProvider"),
        ({"kind": "replay", "path": None}, "ReplayProvider"),
    ],
)
def test_the_kind_chooses_the_provider(section: dict[str, object], type_name: str) -> None:
    assert (
        type(make_provider("x", SETTINGS.validate_python(section), NoPolicy())).__name__
        == type_name
    )


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="kind"):
        SETTINGS.validate_python({"kind": "oracle"})


def test_a_key_in_the_settings_is_refused() -> None:
    with pytest.raises(ValidationError, match="api_key"):
        SETTINGS.validate_python({"kind": "replay", "path": None, "api_key": "secret"})
