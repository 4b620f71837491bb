"""Tests of bills: known costs, costs in doubt, and the effect of a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from cudal1.errors import BudgetError
from cudal1.llm.openai.openai_api import OpenAIProvider
from cudal1.llm.openai.openai_body import most_cost_usd
from cudal1.llm.provider import Request, complete, has_failed
from cudal1.settings.provider_settings import OpenAISettings
from tests.llm.receipts import Kept

Ask = Callable[..., list[Request]]
HANG_S = 2.0
"""Seconds until a hanging request is given up; an answered one takes a small part of them."""
ANSWER_USD = 100 * 2e-6 + 500 * 8e-6
"""Cost of the local server's usage for one answer, in US dollars."""


def provider_for(base_url: str, **changes: Any) -> OpenAIProvider:
    """Return a provider named `x` with one request at a time."""
    return OpenAIProvider("x", settings_for(base_url, **changes))


def settings_for(base_url: str, **changes: Any) -> OpenAISettings:
    """Return the settings of that provider."""
    settings = {
        "kind": "openai",
        "model": "m",
        "base_url": base_url,
        "api_key_env": None,
        "temperature": None,
        "top_p": None,
        "max_tokens": 500,
        "max_completion_tokens": None,
        "reasoning_effort": None,
        "usd_per_million_prompt_tokens": 2.0,
        "usd_per_million_cached_prompt_tokens": None,
        "usd_per_million_completion_tokens": 8.0,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "budget_usd": None,
        "concurrency": 1,
        "timeout_s": 60.0,
        "max_retries": 2,
    }
    return OpenAISettings.model_validate({**settings, **changes})


def test_an_answer_costs_its_stated_usage(stub: Any, ask: Ask, kept: Kept) -> None:
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider), kept))
    assert kept.outcomes == ["answered"]
    assert kept.cost_usd == pytest.approx(ANSWER_USD)


def test_cached_prompt_tokens_have_their_own_price(stub: Any, ask: Ask, kept: Kept) -> None:
    stub.behaviours = ["cached"]
    provider = provider_for(stub.base_url, usd_per_million_cached_prompt_tokens=0.5)
    list(complete(provider, ask(provider), kept))
    assert kept.cost_usd == pytest.approx(20 * 2e-6 + 80 * 0.5e-6 + 500 * 8e-6)


def test_reasoning_tokens_that_only_the_total_counts_cost_money(
    stub: Any, ask: Ask, kept: Kept
) -> None:
    stub.behaviours = ["beside"]
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider), kept))
    assert kept.cost_usd == pytest.approx(100 * 2e-6 + 700 * 8e-6)


@pytest.mark.parametrize("trouble", ["408", "502", "504", "524"])
def test_a_request_that_a_gateway_gave_up_on_is_in_doubt(
    stub: Any, ask: Ask, kept: Kept, trouble: str
) -> None:
    stub.behaviours = [trouble, "ok"]
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider), kept))
    assert kept.outcomes == ["lost", "answered"]


@pytest.mark.parametrize("trouble", ["429", "500", "503"])
def test_a_refused_request_is_free(stub: Any, ask: Ask, kept: Kept, trouble: str) -> None:
    stub.behaviours = [trouble, "ok"]
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider), kept))
    assert kept.outcomes == ["refused", "answered"]
    assert kept.cost_usd == pytest.approx(ANSWER_USD)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["hang", "cut"])
def test_a_try_without_an_answer_is_in_doubt(stub: Any, ask: Ask, kept: Kept, trouble: str) -> None:
    stub.behaviours = [trouble, "ok"]
    provider = provider_for(stub.base_url, timeout_s=HANG_S)
    list(complete(provider, ask(provider), kept))
    assert kept.outcomes == ["lost", "answered"]
    (lost,) = (attempt for attempt in kept.tries.values() if attempt.outcome == "lost")
    assert lost.cost_usd is None
    assert lost.at_most_usd is not None
    assert lost.at_most_usd > 0


@pytest.mark.parametrize("trouble", ["malformed", "html", "unbilled"])
def test_an_answer_without_usage_is_in_doubt(stub: Any, ask: Ask, kept: Kept, trouble: str) -> None:
    stub.behaviours = [trouble]
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider), kept))
    assert [attempt.cost_usd for attempt in kept.tries.values()] == [None]


def test_a_useless_answer_costs_its_stated_usage(stub: Any, ask: Ask, kept: Kept) -> None:
    stub.behaviours = ["empty choices"]
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider), kept))
    assert kept.cost_usd == pytest.approx(ANSWER_USD)


def test_a_try_that_never_left_is_free(ask: Ask, kept: Kept) -> None:
    provider = provider_for("http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(Exception, match="cannot connect"):
        list(complete(provider, ask(provider), kept))
    assert kept.outcomes == ["refused"]
    assert kept.cost_usd == 0


def test_a_try_is_recorded_before_it_is_sent(stub: Any, ask: Ask, kept: Kept) -> None:
    seen: list[int] = []
    stub.on_request = lambda: seen.append(len(kept.tries))
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider, attempts=3), kept))
    assert seen == [1, 2, 3]


@pytest.mark.slow
def test_every_try_carries_the_name_of_its_request(stub: Any, ask: Ask, kept: Kept) -> None:
    stub.behaviours = ["500", "hang", "ok"]
    provider = provider_for(stub.base_url, timeout_s=HANG_S)
    (request,) = ask(provider)
    list(complete(provider, [request], kept))
    assert stub.idempotency_keys == [request.id] * 3


def test_a_forecast_is_an_upper_bound_on_a_request_s_cost(stub: Any, ask: Ask) -> None:
    settings = settings_for(stub.base_url, max_tokens=7)
    (request,) = ask(OpenAIProvider("x", settings))
    size = sum(len(message.content.encode()) for message in request.prompt.messages)
    forecast = most_cost_usd(request, settings)
    assert forecast is not None
    assert forecast >= (size * 2 + 7 * 8) / 1e6


def test_a_budget_stops_requests_before_it_is_exceeded(stub: Any, ask: Ask, kept: Kept) -> None:
    provider = provider_for(stub.base_url, budget_usd=0.05, concurrency=4)
    with pytest.raises(BudgetError, match="raise its budget_usd"):
        list(complete(provider, ask(provider, attempts=50), kept))
    assert kept.cost_usd <= 0.05
    assert len(kept.completions) == len(kept.tries) >= 5


def test_sent_requests_are_answered_before_a_budget_stops(stub: Any, ask: Ask, kept: Kept) -> None:
    stub.delay_s = 0.1
    provider = provider_for(stub.base_url, budget_usd=0.05, concurrency=4)
    handed_out: list[str] = []
    with pytest.raises(BudgetError):
        handed_out.extend(c.id for c in complete(provider, ask(provider, attempts=50), kept))
    assert set(kept.outcomes) == {"answered"}
    assert len(kept.tries) == len(stub.bodies) > 4
    assert len(handed_out) in (0, len(stub.bodies))  # extend may lose them all to the error


def test_earlier_spending_counts(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url, budget_usd=0.05)
    with pytest.raises(BudgetError):
        list(complete(provider, ask(provider), Kept(spent_usd=0.0499)))
    assert stub.bodies == []


@pytest.mark.slow
def test_lost_tries_use_up_a_budget(stub: Any, ask: Ask, kept: Kept) -> None:
    stub.behaviours = ["cut"]
    provider = provider_for(stub.base_url, max_retries=50)
    (request,) = ask(provider)
    at_most = most_cost_usd(request, settings_for(stub.base_url))
    assert at_most is not None
    provider = provider_for(stub.base_url, max_retries=50, budget_usd=2.5 * at_most)
    (completion,) = complete(provider, [request], kept)
    assert has_failed(completion)
    assert "budget" in completion.finish_reason
    assert kept.outcomes == ["lost", "lost"]


def test_a_budget_needs_a_limit_on_tokens() -> None:
    with pytest.raises(ValidationError, match="budget_usd needs max_tokens"):
        settings_for("http://127.0.0.1:9/v1", budget_usd=1.0, max_tokens=None)


def test_a_free_request_is_never_in_doubt(stub: Any, ask: Ask, kept: Kept) -> None:
    stub.behaviours = ["cut", "malformed"]
    free = {"usd_per_million_prompt_tokens": 0.0, "usd_per_million_completion_tokens": 0.0}
    provider = provider_for(stub.base_url, **free)
    list(complete(provider, ask(provider), kept))
    assert [attempt.cost_usd for attempt in kept.tries.values()] == [0.0, 0.0]


def test_closing_early_leaves_requests_in_flight_in_doubt(stub: Any, ask: Ask, kept: Kept) -> None:
    stub.behaviours = ["hang"]
    provider = provider_for(stub.base_url, timeout_s=60.0)
    arrived = threading.Event()
    stub.on_request = arrived.set
    with provider.open(kept) as exchange:
        exchange.ask(ask(provider)[0])
        assert arrived.wait(60)
    assert kept.outcomes == ["lost"]
