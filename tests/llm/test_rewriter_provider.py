"""Tests of the teachers as providers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudal1.errors import ProviderError
from cudal1.extract.extract import extract
from cudal1.llm.provider import Request, complete
from cudal1.llm.rewriter_provider import RewriterProvider
from cudal1.settings.provider_settings import RewriterSettings
from cudal1.teachers import TEACHERS

Ask = Callable[..., list[Request]]


def teacher(name: str) -> RewriterProvider:
    """Return a provider named `x`."""
    return RewriterProvider("x", RewriterSettings(kind="rewriter", teacher=name))


@pytest.mark.parametrize("name", TEACHERS)
def test_every_teacher_answers_every_request(name: str, ask: Ask, kept: Any) -> None:
    provider = teacher(name)
    requests = ask(provider, attempts=3)
    completions = list(complete(provider, requests, kept))
    assert [c.id for c in completions] == [r.id for r in requests]
    assert all(c.text and c.finish_reason == "stop" for c in completions)


def test_some_answers_of_a_teacher_have_a_source(ask: Ask, kept: Any) -> None:
    provider = teacher(next(iter(TEACHERS)))
    texts = [completion.text for completion in complete(provider, ask(provider, attempts=8), kept)]
    assert any(extract(text).source for text in texts)


def test_equal_questions_have_equal_answers(ask: Ask, kept: Any) -> None:
    provider = teacher(next(iter(TEACHERS)))
    first, second = (list(complete(provider, ask(provider, attempts=4), kept)) for _ in range(2))
    assert first == second


def test_teachers_are_different_providers() -> None:
    assert len({teacher(name).fingerprint for name in TEACHERS}) == len(TEACHERS)


def test_an_unknown_teacher_is_named_with_the_known_ones() -> None:
    with pytest.raises(ProviderError, match=r"provider x: no teacher named 'oracle'; there are"):
        teacher("oracle")
