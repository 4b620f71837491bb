"""Tests that a paid provider is asked only in a run that may spend, up to the consented amount."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cudal1.candidate import Completion
from cudal1.errors import BudgetError, ConfigError, ConsentError
from cudal1.llm.provider import Provider, complete, request_to
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompts.prompt import PromptStyle, generation_prompt
from cudal1.services.asking import provider_of
from cudal1.services.consent import VARIABLE, WithConsent, is_paid, may_spend_usd
from cudal1.settings.provider_settings import OpenAISettings, ReplaySettings
from tests.llm.conftest import SOURCE, Stub
from tests.llm.receipts import Kept

PROBLEM = Problem(
    suite="toy",
    level=1,
    number=1,
    name="relu",
    split=Split.TRAIN,
    revision="r",
    device_class=DeviceClass.CPU,
    source=SOURCE,
)
AT_MOST_USD = 0.01
"""Cost of an answer of full length in US dollars; prompts are free here."""


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _nobody_allowed_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def settings(stub: Stub, **changes: Any) -> OpenAISettings:
    given: dict[str, Any] = {
        "kind": "openai",
        "model": "m",
        "base_url": stub.base_url,
        "api_key_env": None,
        "temperature": None,
        "top_p": None,
        "max_tokens": 1000,
        "max_completion_tokens": None,
        "reasoning_effort": None,
        "usd_per_million_prompt_tokens": 0.0,
        "usd_per_million_cached_prompt_tokens": None,
        "usd_per_million_completion_tokens": 10.0,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "budget_usd": None,
        "concurrency": 1,
        "timeout_s": 60.0,
        "max_retries": 0,
    }
    return OpenAISettings(**given | changes)


def ask(provider: Provider, kept: Kept, count: int = 1) -> list[Completion]:
    prompt = generation_prompt(PROBLEM, style=PromptStyle.COMPACT)
    requests = [
        request_to(
            provider, stage="generate@x", problem=PROBLEM, prompt=prompt, attempt=number, seed=0
        )
        for number in range(count)
    ]
    return list(complete(provider, requests, kept))


def test_no_request_is_sent_without_consent(stub: Stub) -> None:
    provider = provider_of("paid", settings(stub))
    with pytest.raises(ConsentError, match=f"provider paid charges.*{VARIABLE}=5"):
        ask(provider, Kept())
    assert stub.bodies == []


def test_a_request_is_sent_with_consent(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "5")
    (answer,) = ask(provider_of("paid", settings(stub)), Kept())
    assert "ModelNew" in answer.text


def test_a_free_provider_needs_no_consent(stub: Stub) -> None:
    free = settings(stub, usd_per_million_completion_tokens=0.0)
    assert not isinstance(provider_of("free", free), WithConsent)
    assert not is_paid(ReplaySettings(kind="replay", path=None))
    assert len(ask(provider_of("free", free), Kept())) == 1


@pytest.mark.parametrize("spent_before_usd", [0.0, 100.0])
def test_a_run_spends_no_more_than_its_consent(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, spent_before_usd: float
) -> None:
    """The spending of earlier runs does not count: a consent is for one run."""
    monkeypatch.setenv(VARIABLE, str(2.5 * AT_MOST_USD))
    kept = Kept(spent_usd=spent_before_usd)
    with pytest.raises(BudgetError, match=rf"of the 0\.025 USD that this run may.*{VARIABLE}"):
        ask(provider_of("paid", settings(stub)), kept, count=1000)
    assert len(stub.bodies) >= 2
    assert kept.cost_usd <= 2.5 * AT_MOST_USD


def test_an_exchange_that_is_opened_again_has_the_same_consent(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(1.5 * AT_MOST_USD))
    provider = provider_of("paid", settings(stub))
    ask(provider, Kept(spent_usd=1.0))
    with pytest.raises(BudgetError):
        ask(provider, Kept(spent_usd=1.0 + AT_MOST_USD))
    assert len(stub.bodies) == 1


def test_a_budget_holds_under_any_consent(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "inf")
    with pytest.raises(BudgetError, match="raise its budget_usd"):
        ask(provider_of("paid", settings(stub, budget_usd=0.001)), Kept())
    assert stub.bodies == []


def test_an_answer_without_a_length_limit_needs_an_unlimited_consent(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = settings(stub, max_tokens=None)
    monkeypatch.setenv(VARIABLE, "5")
    with pytest.raises(ConsentError, match="without max_tokens"):
        ask(provider_of("paid", endless), Kept())
    monkeypatch.setenv(VARIABLE, "inf")
    assert len(ask(provider_of("paid", endless), Kept())) == 1


@pytest.mark.parametrize("given", ["five", "-1", "nan"])
def test_a_value_that_is_not_an_amount_is_reported(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ConfigError, match=f"{VARIABLE}={given}: give an amount"):
        may_spend_usd()


def test_consent_changes_no_question(stub: Stub) -> None:
    """A known answer does not change either: it is given again for nothing."""
    paid = settings(stub)
    asked = provider_of("paid", paid)
    free = provider_of("paid", settings(stub, usd_per_million_completion_tokens=0.0))
    assert asked.fingerprint == free.fingerprint
