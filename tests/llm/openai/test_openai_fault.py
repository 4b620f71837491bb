"""Tests of errors in bodies of success: their status, their words, and the reaction."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1.errors import ProviderDownError, ProviderError
from cudal1.llm.openai.openai_fault import UNKNOWN, fault_in, words_in
from cudal1.llm.provider import Request, complete, has_failed
from tests.llm.openai.test_openai_api import answers, provider_for
from tests.llm.receipts import Kept

Ask = Callable[..., list[Request]]

FAULTS: dict[str, tuple[object, int, str]] = {
    "a code": ({"error": {"code": 429, "message": "slow down"}}, 429, "slow down"),
    "a code as text": ({"error": {"code": "503", "message": "later"}}, 503, "later"),
    "a code in words": (
        {"error": {"code": "rate_limit_exceeded", "type": "requests", "message": "x"}},
        429,
        "x",
    ),
    "a kind": ({"error": {"type": "server_error", "code": None, "message": "x"}}, 500, "x"),
    "a kind beside it": (
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        529,
        "busy",
    ),
    "a kind in one word": ({"object": "error", "type": "NotFoundError", "message": "x"}, 404, "x"),
    "a status in words": (
        {"error": {"code": 8, "status": "RESOURCE_EXHAUSTED", "message": "x"}},
        429,
        "x",
    ),
    "an exception's name": ({"__type": "a.b#ThrottlingException", "message": "x"}, 429, "x"),
    "a code beside the words": ({"code": 401, "message": "no key"}, 401, "no key"),
    "a problem document": (
        {"title": "Forbidden", "status": 403, "detail": "not you"},
        403,
        "Forbidden not you",
    ),
    "a nested error": ({"error": {"error": {"code": 400, "message": "deep"}}}, 400, "deep"),
    "what the upstream said": (
        {"error": {"code": 502, "message": "upstream", "metadata": {"raw": "no GPU"}}},
        502,
        "upstream no GPU",
    ),
    "an error beside no choices": (
        {"choices": [], "error": {"code": 500, "message": "x"}},
        500,
        "x",
    ),
    "an error beside null": ({"choices": None, "error": {"code": 500, "message": "x"}}, 500, "x"),
    "an error in a choice": (
        {"choices": [{"error": {"code": 502, "message": "x"}, "message": {"content": ""}}]},
        502,
        "x",
    ),
    "a choice that failed": (
        {"choices": [{"finish_reason": "error", "message": {"content": "half"}}]},
        UNKNOWN,
        "finish_reason: error",
    ),
    "several errors": ({"errors": [{"message": "a"}, {"message": "b", "code": 503}]}, 503, "a b"),
    "a list": ([{"error": {"code": 400, "message": "x"}}], 400, "x"),
    "a code alone": ({"error": {"code": 429}}, 429, '{"error": {"code": 429}}'),
    "a text": ({"error": "the cat sat on it"}, UNKNOWN, "the cat sat on it"),
    "a flag": ({"error": True, "message": "Error code: 429 - wait"}, 429, "Error code: 429 - wait"),
    "a detail": ({"detail": "model is loading"}, UNKNOWN, "model is loading"),
    "a detail that is a phrase": ({"detail": "Not Found"}, 404, "Not Found"),
    "a detail with a place": (
        {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]},
        422,
        "body.messages: field required",
    ),
    "a message": ({"message": "the cat sat on it"}, UNKNOWN, "the cat sat on it"),
    "a code of their own": ({"error": {"code": 20015, "message": "x"}}, UNKNOWN, "x"),
    "a reply in a reply": (
        {"base_resp": {"status_code": 1004, "status_msg": "login fail"}},
        UNKNOWN,
        "login fail",
    ),
    "lines to be cleaned": (
        {"error": {"code": 400, "message": "a\n\x1b[2Kb\t c"}},
        400,
        "a [2Kb c",
    ),
}
PAGES = {
    "a gateway's page": (
        "<html><head><title>502 Bad Gateway</title></head><h1>502 Bad Gateway</h1>nginx</html>",
        502,
        "502 Bad Gateway",
    ),
    "a phrase": ("Too Many Requests\n", 429, "Too Many Requests"),
    "a stream that breaks": (
        'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
        'data: {"error": {"code": 503, "message": "lost"}, "choices": []}\n\ndata: [DONE]\n',
        503,
        "lost",
    ),
}
NO_FAULTS = {
    "an answer": {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]},
    "an answer with no error": {"choices": [{"message": {"content": "x"}}], "error": None},
    "an answer with a warning": {"choices": [{"message": {"content": "x"}}], "error": "slow"},
    "an answer about errors": {"choices": [{"message": {"content": "error: 429"}}], "code": 429},
    "an empty answer": {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]},
    "a refusal": {"choices": [{"message": {"content": None, "refusal": "no"}}]},
    "a call": {"choices": [{"message": {"content": None, "tool_calls": [{"id": "x"}]}}]},
    "thoughts": {"choices": [{"message": {"content": None, "reasoning_content": "x"}}]},
    "no choices": {"id": "x", "object": "chat.completion"},
}


@pytest.mark.parametrize("what", FAULTS)
def test_an_error_gives_its_status_and_its_words(what: str) -> None:
    body, status, said = FAULTS[what]
    fault = fault_in(json.dumps(body))
    assert fault is not None
    assert (fault.status, fault.said) == (status, said)


@pytest.mark.parametrize("what", PAGES)
def test_a_page_or_a_stream_gives_its_status_and_its_words(what: str) -> None:
    body, status, said = PAGES[what]
    fault = fault_in(body)
    assert fault is not None
    assert (fault.status, fault.said) == (status, said)


@pytest.mark.parametrize("what", NO_FAULTS)
def test_an_answer_is_not_an_error(what: str) -> None:
    assert fault_in(json.dumps(NO_FAULTS[what])) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<p>hello <b>there</b></p><script>x()</script>", "hello there"),
        ("", ""),
        ("upstream connect error\r\n", "upstream connect error"),
        ('{"id": 1}', '{"id": 1}'),
        ("&lt;tag&gt; &amp; text", "<tag> & text"),
    ],
)
def test_the_words_of_a_body_become_one_line(body: str, said: str) -> None:
    assert words_in(body) == said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "choices",
                    "code",
                    "message",
                    "detail",
                    "loc",
                    "msg",
                    "errors",
                    "finish_reason",
                    "content",
                    "metadata",
                    "status",
                    "type",
                    "raw",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300)
@given(JSON.map(json.dumps) | st.text(max_size=60))
def test_no_body_raises_and_every_status_is_a_failure_status(body: str) -> None:
    fault = fault_in(body)
    assert fault is None or (400 <= fault.status < 600 and "\n" not in fault.said)
    assert words_in(body).isprintable()


@pytest.mark.parametrize("unit", ["<", "<script ", "<title ", '{"error":', "data: {}\n", "[", "&"])
def test_a_hostile_body_is_read_within_seconds(unit: str) -> None:
    started = time.process_time()
    fault_in(unit * 200_000)
    words_in(unit * 200_000)
    assert time.process_time() - started < 5


# --- on the wire ---------------------------------------------------------------------------------


def inside(body: object) -> str:
    """Return the behaviour of a server that sends a body with status 200."""
    return f"says 200 {json.dumps(body)}"


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 529, "429"])
def test_an_error_inside_a_success_is_retried_according_to_its_code(
    stub: Any, ask: Ask, code: object
) -> None:
    stub.behaviours = [inside({"error": {"code": code, "message": "not now"}}), "ok"]
    provider = provider_for(stub.base_url)
    (completion,) = answers(provider, ask(provider))
    assert completion.finish_reason == "stop"
    assert len(stub.bodies) == 2


def test_retry_after_is_respected_inside_a_success(stub: Any, ask: Ask) -> None:
    stub.retry_after_ms = "400"
    stub.behaviours = [inside({"error": {"code": 429, "message": "not now"}}), "ok"]
    provider = provider_for(stub.base_url)
    started = time.monotonic()
    answers(provider, ask(provider))
    assert time.monotonic() - started > 0.4


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_request_refused_inside_a_success_is_asked_once(stub: Any, ask: Ask, code: int) -> None:
    stub.behaviours = ["ok", inside({"error": {"code": code, "message": "too long"}})]
    provider = provider_for(stub.base_url, concurrency=1)
    _, refused = answers(provider, ask(provider, attempts=2))
    assert refused.is_refused
    assert refused.finish_reason == f"error: HTTP {code} inside a success: too long"
    assert len(stub.bodies) == 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"error": {"code": 401, "message": "who?"}}, r"refuses the key .*\(who\?\)"),
        ({"error": {"code": 403, "message": "not you"}}, r"refuses the key .*\(not you\)"),
        ({"error": {"code": "invalid_api_key", "message": "x"}}, "refuses the key"),
        ({"error": {"code": 404, "message": "gone"}}, r"no model 'm', .*\(gone\)"),
        ({"detail": "Not Found"}, "no model 'm'"),
    ],
)
def test_misconfiguration_inside_a_success_is_our_error(
    stub: Any, ask: Ask, said: object, words: str
) -> None:
    stub.behaviours = [inside(said)]
    provider = provider_for(stub.base_url)
    with pytest.raises(ProviderError, match=words):
        answers(provider, ask(provider, attempts=3))


@pytest.mark.parametrize(
    "said",
    [
        {"error": "the cat sat"},
        {"detail": "the cat sat"},
        {"message": "the cat sat"},
        {"errors": ["the cat sat"]},
        {"choices": [], "error": {"message": "the cat sat"}},
        {"error": {"code": 429, "message": "the cat sat"}},
    ],
)
def test_the_words_of_a_permanent_error_are_kept(stub: Any, ask: Ask, said: object) -> None:
    stub.behaviours = [inside(said)]
    provider = provider_for(stub.base_url, max_retries=1)
    (completion,) = answers(provider, ask(provider))
    assert has_failed(completion)
    assert completion.finish_reason.endswith("inside a success: the cat sat")
    assert len(stub.bodies) == 2


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize(
    "body",
    ["<html><body>the cat <b>sat</b></body></html>", "the cat sat", '{"detail": "the cat sat"}'],
)
def test_words_of_any_kind_and_status_are_kept(stub: Any, ask: Ask, status: int, body: str) -> None:
    stub.behaviours = [f"says {status} {body}"]
    provider = provider_for(stub.base_url, max_retries=0)
    (completion,) = answers(provider, ask(provider))
    assert has_failed(completion)
    assert completion.finish_reason.endswith(": the cat sat")


def test_a_server_that_sends_only_errors_is_down_with_its_own_words(stub: Any, ask: Ask) -> None:
    stub.behaviours = [inside({"error": {"code": 503, "message": "no GPU today"}})]
    provider = provider_for(stub.base_url, concurrency=1, max_retries=0)
    with pytest.raises(ProviderDownError, match=r"in a row failed.*no GPU today"):
        answers(provider, ask(provider, attempts=20))


USED = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}


@pytest.mark.parametrize(
    ("said", "outcome", "cost_usd"),
    [
        ({"error": {"code": 429, "message": "x"}}, "refused", 0.0),
        ({"error": {"code": 500, "message": "x"}}, "refused", 0.0),
        ({"error": {"code": 502, "message": "x"}}, "lost", None),
        ({"error": "x"}, "lost", None),
        ({"error": {"code": 429, "message": "x"}, "usage": USED}, "lost", 100 * 2e-6 + 50 * 8e-6),
        ({"error": "x", "usage": {"prompt_tokens": 0, "completion_tokens": 0}}, "refused", 0.0),
        (
            {"choices": [{"finish_reason": "error", "message": {"content": "x"}}], "usage": USED},
            "lost",
            100 * 2e-6 + 50 * 8e-6,
        ),
    ],
)
def test_an_error_costs_its_stated_usage_or_else_what_its_status_implies(
    stub: Any, ask: Ask, kept: Kept, said: object, outcome: str, cost_usd: float | None
) -> None:
    stub.behaviours = [inside(said), "ok"]
    provider = provider_for(stub.base_url)
    list(complete(provider, ask(provider), kept))
    assert kept.outcomes == [outcome, "answered"]
    (first,) = (attempt for attempt in kept.tries.values() if attempt.outcome == outcome)
    assert first.cost_usd == (cost_usd if cost_usd is None else pytest.approx(cost_usd))


def test_a_key_in_an_error_is_masked_before_it_is_cut(
    stub: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch, kept: Kept
) -> None:
    key = "sk-" + "0123456789" * 6
    monkeypatch.setenv("SOME_KEY", key)
    for status in (200, 400):
        stub.behaviours = ["ok", f"says {status} {json.dumps({'error': {'message': key * 9}})}"]
        provider = provider_for(stub.base_url, api_key_env="SOME_KEY", concurrency=1, max_retries=0)
        completions = list(complete(provider, ask(provider, attempts=2), kept))
        assert "[key][key]" in str(completions)
        assert key[:9] not in f"{completions}{kept.tries}"
