"""Tests of the official client against a local server, well and badly behaved."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cudal1.candidate import Completion
from cudal1.errors import ProviderDownError, ProviderError
from cudal1.extract.extract import extract
from cudal1.ledger import Ledger
from cudal1.llm.openai.health import MAX_IN_A_ROW
from cudal1.llm.openai.openai_api import OpenAIProvider
from cudal1.llm.provider import Request, complete, has_failed
from cudal1.settings.provider_settings import OpenAISettings
from tests.llm.receipts import Kept

Ask = Callable[..., list[Request]]
HANG_S = 2.0
"""Seconds until a hanging request is given up; an answered one takes a small part of them."""


def provider_for(base_url: str, **changes: Any) -> OpenAIProvider:
    """Return a provider named `x` with short patience."""
    settings = {
        "kind": "openai",
        "model": "m",
        "base_url": base_url,
        "api_key_env": None,
        "temperature": None,
        "top_p": None,
        "max_tokens": None,
        "max_completion_tokens": None,
        "reasoning_effort": None,
        "usd_per_million_prompt_tokens": 2.0,
        "usd_per_million_cached_prompt_tokens": None,
        "usd_per_million_completion_tokens": 8.0,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "budget_usd": None,
        "concurrency": 4,
        "timeout_s": 10.0,
        "max_retries": 2,
    }
    return OpenAIProvider("x", OpenAISettings.model_validate({**settings, **changes}))


def answers(
    provider: OpenAIProvider, requests: Sequence[Request], receipts: Any = None
) -> list[Completion]:
    """Return all completions, in the order of their attempts."""
    arrived = complete(provider, requests, receipts or Kept())
    return sorted(arrived, key=lambda completion: completion.attempt)


def test_a_server_on_this_machine_is_asked_without_a_proxy(
    stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.finish_reason == "stop"


def test_every_request_gets_its_completion(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url)
    requests = ask(provider, attempts=9)
    completions = answers(provider, requests)
    assert [c.id for c in completions] == [r.id for r in requests]
    assert all("ModelNew" in c.text and c.finish_reason == "stop" for c in completions)


def test_the_bill_is_tokens_times_price(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert (completion.num_prompt_tokens, completion.num_completion_tokens) == (100, 500)
    assert completion.cost_usd == pytest.approx(100 * 2e-6 + 500 * 8e-6)


def test_unset_settings_are_not_sent(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url)
    answers(provider, ask(provider))
    assert set(stub.bodies[0]) == {"model", "messages"}


def test_sampling_settings_are_sent(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url, temperature=0.5, top_p=0.9, max_tokens=7)
    answers(provider, ask(provider))
    assert {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7}.items() <= stub.bodies[0].items()


def test_the_key_comes_from_the_named_variable(
    stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "abc")
    provider = provider_for(stub.base_url, api_key_env="SOME_KEY")
    answers(provider, ask(provider))
    assert stub.keys == ["Bearer abc"]


def test_a_missing_key_names_its_variable_before_any_request(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    provider = provider_for(stub.base_url, api_key_env="SOME_KEY")
    with (
        pytest.raises(ProviderError, match="provider x: environment variable SOME_KEY"),
        provider.open(Kept()),
    ):
        pass
    assert stub.bodies == []


@pytest.mark.slow
def test_concurrency_is_bounded(stub: Any, ask: Ask) -> None:
    stub.delay_s = 0.2
    provider = provider_for(stub.base_url, concurrency=3)
    answers(provider, ask(provider, attempts=12))
    assert 1 < stub.most_in_flight <= 3


@pytest.mark.parametrize("trouble", ["429", "500", "503", "cut"])
def test_a_transient_failure_is_retried(stub: Any, ask: Ask, trouble: str) -> None:
    stub.behaviours = [trouble, trouble, "ok"]
    provider = provider_for(stub.base_url, concurrency=1)
    (completion,) = answers(provider, ask(provider))
    assert completion.finish_reason == "stop"
    assert len(stub.bodies) == 3


@pytest.mark.slow
def test_a_hanging_request_is_retried(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["hang", "ok"]
    provider = provider_for(stub.base_url, timeout_s=HANG_S)
    (completion,) = answers(provider, ask(provider))
    assert completion.finish_reason == "stop"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("500", "HTTP 500"),
        ("429", "HTTP 429"),
        ("400", "HTTP 400"),
        ("hang", "no answer within"),
        ("cut", "connection broke"),
        ("malformed", "malformed"),
        ("html", "malformed"),
        ("no choices", "malformed"),
        ("empty choices", "malformed"),
        ("wrong types", "malformed"),
    ],
)
def test_a_permanent_failure_is_recorded_as_data(
    stub: Any, ask: Ask, trouble: str, words: str
) -> None:
    stub.behaviours = [trouble]
    timeout_s = 0.3 if trouble == "hang" else 60.0
    provider = provider_for(stub.base_url, timeout_s=timeout_s, max_retries=1)
    (completion,) = answers(provider, ask(provider))
    assert has_failed(completion)
    assert words in completion.finish_reason
    assert completion.text == ""


def test_one_failure_leaves_the_other_answers(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["ok", "400", "ok"]
    provider = provider_for(stub.base_url, concurrency=1)
    completions = answers(provider, ask(provider, attempts=3))
    assert [has_failed(c) for c in completions] == [False, True, False]


def test_a_truncated_answer_has_the_reason_length(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["length"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.finish_reason == "length"


def test_an_answer_without_content_is_an_empty_text(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["null content"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert (completion.text, completion.finish_reason) == ("", "content_filter")


def test_an_answer_parsed_as_a_tool_call_is_a_text(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["tool calls"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert extract(completion.text).source == "class ModelNew:\n    pass\n"


@pytest.mark.parametrize(("status", "words"), [("401", "refuses the key"), ("404", "no model 'm'")])
def test_misconfiguration_is_our_error(stub: Any, ask: Ask, status: str, words: str) -> None:
    stub.behaviours = [status]
    provider = provider_for(stub.base_url)
    with pytest.raises(ProviderError, match=words):
        answers(provider, ask(provider, attempts=5))


def test_an_unreachable_server_is_our_error(ask: Ask) -> None:
    provider = provider_for("http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(
        ProviderDownError, match=r"provider x: cannot connect to http://127\.0\.0\.1:9/v1"
    ):
        answers(provider, ask(provider))


def test_many_failures_in_a_row_mean_that_the_server_is_down(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["ok", "500"]
    provider = provider_for(stub.base_url, concurrency=1, max_retries=0)
    arrived: list[Completion] = []
    with pytest.raises(ProviderDownError, match="in a row"):
        arrived.extend(complete(provider, ask(provider, attempts=50), Kept()))
    assert len(arrived) <= 1 + MAX_IN_A_ROW
    assert len(stub.bodies) < 50


@pytest.mark.slow
def test_refusals_of_single_requests_do_not_mean_that_the_server_is_down(
    stub: Any, ask: Ask
) -> None:
    stub.behaviours = ["ok", *["400"] * 20, "ok"]
    provider = provider_for(stub.base_url, concurrency=1)
    completions = answers(provider, ask(provider, attempts=23))
    assert [c.is_refused for c in completions] == [False, *[True] * 20, False, False]


def test_a_server_that_refuses_everything_is_misconfigured(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["400"]
    provider = provider_for(stub.base_url, concurrency=1)
    with pytest.raises(ProviderError, match="refuses whatever it is asked") as caught:
        answers(provider, ask(provider, attempts=50))
    assert not isinstance(caught.value, ProviderDownError)
    assert len(stub.bodies) < 12


@pytest.mark.parametrize("status", ["403", "404"])
def test_an_error_after_an_answer_costs_one_request_only(stub: Any, ask: Ask, status: str) -> None:
    stub.behaviours = ["ok", status, "ok"]
    provider = provider_for(stub.base_url, concurrency=1)
    completions = answers(provider, ask(provider, attempts=3))
    assert [has_failed(c) for c in completions] == [False, True, False]


@pytest.mark.slow
def test_requests_in_flight_are_answered_before_the_end(stub: Any, ask: Ask) -> None:
    stub.delay_s = 1.0
    stub.behaviours = ["ok", "ok", "401", "ok"]
    provider = provider_for(stub.base_url, concurrency=4)
    arrived: list[Completion] = []
    with pytest.raises(ProviderError, match="refuses the key"):
        arrived.extend(complete(provider, ask(provider, attempts=50), Kept()))
    assert len(arrived) == len(stub.bodies) - 1 < 10


def test_arrived_completions_come_before_the_error(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["ok", "ok", "401"]
    provider = provider_for(stub.base_url, concurrency=1)
    arrived: list[Completion] = []
    with pytest.raises(ProviderError, match="refuses the key"):
        arrived.extend(complete(provider, ask(provider, attempts=5), Kept()))
    assert len(arrived) == 2


def test_closing_early_abandons_the_remaining_requests(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["ok", "hang"]
    provider = provider_for(stub.base_url, concurrency=2)
    completions = complete(provider, ask(provider, attempts=10), Kept())
    next(completions)
    completions.close()  # type: ignore[attr-defined]
    assert len(stub.bodies) <= 4
    assert not [t for t in threading.enumerate() if t.name == "provider-x"]


def test_no_requests_give_no_completions(ask: Ask) -> None:
    assert answers(provider_for("http://127.0.0.1:9/v1"), []) == []


def test_the_price_does_not_change_the_question(ask: Ask) -> None:
    dear = provider_for("http://127.0.0.1:9/v1", usd_per_million_prompt_tokens=99.0, concurrency=1)
    assert ask(dear)[0].id == ask(provider_for("http://127.0.0.1:9/v1"))[0].id


def test_reasoning_is_kept_apart_from_the_text(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["thoughts"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert "bad" in completion.reasoning
    assert "bad" not in completion.text
    assert completion.num_reasoning_tokens == 400


def test_the_body_is_kept_unchanged(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.response is not None
    assert json.loads(completion.response)["usage"]["prompt_tokens"] == 100


def test_a_malformed_body_is_kept_too(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["malformed"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.response == '{"choices": ['


def test_an_answer_in_parts_becomes_one_text(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["parts"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.text == "one two"


def test_a_refusal_is_marked_as_refused(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["refusal"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert (completion.text, completion.finish_reason) == ("", "refusal")


def test_log_probabilities_come_on_request(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["logprobs"]
    provider = provider_for(stub.base_url)
    (request,) = ask(provider)
    (completion,) = answers(provider, [request.model_copy(update={"with_logprobs": True})])
    assert stub.bodies[0]["logprobs"] is True
    assert completion.logprobs == (-0.5, -1.5)


@pytest.mark.slow
def test_a_slow_drip_is_ended(stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudal1.llm.openai.openai_api._MAX_RETRY_AFTER_S", 0.2)
    stub.behaviours = ["drip"]  # the drip takes far longer than this, though no byte does
    provider = provider_for(stub.base_url, timeout_s=HANG_S, max_retries=0)
    (completion,) = answers(provider, ask(provider))
    assert "dripped" in completion.finish_reason


@pytest.mark.slow
def test_requests_keep_their_pace(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url, requests_per_minute=600.0, concurrency=64)
    started = time.monotonic()
    answers(provider, ask(provider, attempts=60))
    assert time.monotonic() - started > 0.9  # 50 at once, ten more in the next second


@pytest.mark.slow
def test_long_requests_use_their_share_of_the_token_rate(stub: Any, ask: Ask) -> None:
    provider = provider_for(stub.base_url, tokens_per_minute=60_000.0, max_tokens=2000)
    started = time.monotonic()
    answers(provider, ask(provider, attempts=3))  # 2,000 and the prompt each; 5,000 at once
    assert time.monotonic() - started > 0.9


def test_a_second_read_after_the_end_raises_the_same_error(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["401"]
    provider = provider_for(stub.base_url)
    with provider.open(Kept()) as exchange:
        exchange.ask(ask(provider)[0])
        for _ in range(2):
            with pytest.raises(ProviderError, match="refuses the key"):
                exchange.answer()


def test_a_redirect_is_not_followed(stub: Any, ask: Ask) -> None:
    stub.behaviours = ["307"]
    provider = provider_for(stub.base_url)
    with pytest.raises(ProviderError, match="redirects to"):
        answers(provider, ask(provider))
    assert len(stub.bodies) == 1


def test_headers_from_environment_variables_are_not_sent(
    stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-mine: secret")
    provider = provider_for(stub.base_url)
    answers(provider, ask(provider))
    assert "secret" not in str(stub.headers)


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk two", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused(
    stub: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("SOME_KEY", key)
    provider = provider_for(stub.base_url, api_key_env="SOME_KEY")
    with (
        pytest.raises(ProviderError, match="SOME_KEY holds is no key") as caught,
        provider.open(Kept()),
    ):
        pass
    assert key not in str(caught.value)


@pytest.mark.parametrize("behaviour", ["echo", "echo refused"])
def test_a_key_that_a_server_repeats_is_not_kept(
    stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-0123456789")
    stub.behaviours = ["ok", behaviour]
    provider = provider_for(stub.base_url, api_key_env="SOME_KEY", concurrency=1)
    completions = answers(provider, ask(provider, attempts=2))
    assert "sk-0123456789" not in str(completions)
    assert "[key]" in str(completions)


def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValidationError):
        provider_for("http://127.0.0.1:9/v1", api_key_env="sk-proj-0123456789")


@pytest.mark.parametrize("url", ["", "htps://x", "api.example.com/v1"])
def test_an_address_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="base_url"):
        provider_for(url)


@pytest.mark.parametrize(
    "behaviour", ["huge counts", "surrogate", "infinite logprob", "utf-16", "packed", "endless"]
)
def test_every_answer_can_be_kept_and_none_raises(
    stub: Any, ask: Ask, tmp_path: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudal1.llm.openai.openai_wire.MAX_BODY_BYTES", 1 << 16)
    stub.behaviours = [behaviour]
    provider = provider_for(stub.base_url, max_retries=0, timeout_s=60.0)
    (completion,) = answers(provider, ask(provider))
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        ledger.add_answer(completion)
    with Ledger.open(tmp_path) as ledger:
        assert ledger.completion(completion.id) is not None


@pytest.mark.parametrize("said", ["exhausted", "error: HTTP 500"])
def test_a_server_s_reason_is_not_confused_with_ours(stub: Any, ask: Ask, said: str) -> None:
    stub.behaviours = [f"reason {said}"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.finish_reason == f"other: {said}"


def test_temperature_is_part_of_the_question(ask: Ask) -> None:
    warm = provider_for("http://127.0.0.1:9/v1", temperature=1.0)
    assert ask(warm)[0].id != ask(provider_for("http://127.0.0.1:9/v1"))[0].id
