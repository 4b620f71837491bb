"""Tests that every way of serving a policy fulfils: one interface, the same answers.

Each way serves the shipped policy for real. vLLM's turn comes with
`CUDAL1_VLLM_PYTHON=.venv-vllm/bin/python`, after `make vllm`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from cudal1.llm.provider import Provider, Request, request_to
from cudal1.problem import DeviceClass, Split
from cudal1.prompts.prompt import PromptStyle, generation_prompt
from cudal1.suite import generator
from tests.llm.serving import WAYS, Policy, Way

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROBLEMS = generator.problems(8, seed=9001, device_class=DeviceClass.CPU, split=Split.HELDOUT)
GREEDY = {"temperature": 0.0, "top_p": None, "max_tokens": 300}
WARM = {"temperature": 1.5, "top_p": None, "max_tokens": 60}
CUT = {"temperature": 0.0, "top_p": None, "max_tokens": 10}


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Way]:
    """Run a way of serving for as long as its tests run."""
    with WAYS[request.param](tmp_path_factory.mktemp("served")) as way:
        yield way


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy()


def one_each(num_problems: int, *, seed: int = 0) -> Callable[[Provider], list[Request]]:
    """Return a request for each of the problems, all with log-probabilities."""
    return lambda provider: [
        request_to(
            provider,
            stage="generate@x",
            problem=problem,
            attempt=0,
            seed=seed,
            prompt=generation_prompt(problem, style=PromptStyle.COMPACT),
        ).model_copy(update={"with_logprobs": True})
        for problem in PROBLEMS[:num_problems]
    ]


def several(num_attempts: int) -> Callable[[Provider], list[Request]]:
    """Return a number of requests for the same problem."""
    return lambda provider: [
        request_to(
            provider,
            stage="generate@x",
            problem=PROBLEMS[0],
            attempt=attempt,
            seed=0,
            prompt=generation_prompt(PROBLEMS[0], style=PromptStyle.COMPACT),
        )
        for attempt in range(num_attempts)
    ]


def test_without_temperature_each_token_is_the_likeliest(way: Way, policy: Policy) -> None:
    for request, answer in zip(
        one_each(3)(way.provider_with(**GREEDY)), way.answers(one_each(3), **GREEDY), strict=True
    ):
        taken, likeliest = policy.logprobs(request, answer)
        # two tokens that are as likely as each other may change places by rounding
        assert taken == pytest.approx(likeliest, abs=1e-3)


def test_token_counts_equal_the_tokenizers(way: Way, policy: Policy) -> None:
    for drawn in (GREEDY, CUT):
        requests = one_each(2)(way.provider_with(**drawn))
        for request, answer in zip(requests, way.answers(one_each(2), **drawn), strict=True):
            assert answer.num_prompt_tokens == len(policy.prompt_tokens(request))
            assert answer.num_completion_tokens == len(policy.answer_tokens(answer))


def test_an_answer_that_ends_by_itself_has_the_reason_stop(way: Way) -> None:
    (answer,) = way.answers(one_each(1), **GREEDY)
    assert answer.finish_reason == "stop"
    assert answer.text.startswith("```python\n")
    assert answer.text.endswith("```")


def test_a_truncated_answer_has_the_reason_and_the_requested_length(way: Way) -> None:
    (answer,) = way.answers(one_each(1), **CUT)
    assert (answer.finish_reason, answer.num_completion_tokens) == ("length", 10)


def test_answers_vary_with_temperature_and_not_without_it(way: Way) -> None:
    warm, cold = (way.answers(several(6), **drawn) for drawn in (WARM, CUT))
    assert len({answer.text for answer in warm}) > 1  # how many differ is chance: no server's seeds
    assert len({answer.text for answer in cold}) == 1


def test_a_narrow_top_p_takes_the_likeliest_token(way: Way) -> None:
    narrow = {**CUT, "temperature": 1.0, "top_p": 1e-4}
    texts = [{a.text for a in way.answers(several(3), **drawn)} for drawn in (narrow, CUT)]
    assert texts[0] == texts[1]


def test_simultaneous_requests_get_the_answers_of_single_requests(way: Way) -> None:
    at_once = way.answers(one_each(8), **CUT)
    alone = [way.answers(lambda p, i=i: [one_each(8)(p)[i]], **CUT)[0] for i in (0, 7)]
    assert [at_once[i].text for i in (0, 7)] == [answer.text for answer in alone]


def test_logprobs_are_the_policys_own_before_temperature(way: Way, policy: Policy) -> None:
    drawn = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 40}
    requests = one_each(8)(way.provider_with(**drawn))
    answers = way.answers(one_each(8), **drawn)
    if answers[0].logprobs is None:
        pytest.skip("this server gives no logprobs")
    num_compared = 0
    for request, answer in zip(requests, answers, strict=True):
        assert answer.logprobs is not None
        assert len(answer.logprobs) == answer.num_completion_tokens
        if len(policy.answer_tokens(answer)) == answer.num_completion_tokens:
            num_compared += 1
            assert list(answer.logprobs) == pytest.approx(
                policy.logprobs(request, answer)[0], abs=1e-2
            )
    assert num_compared >= 4  # others were drawn in other pieces than the tokenizer makes


def test_a_seed_decides_the_answer_of_a_seeded_provider(way: Way) -> None:
    if not way.provider_with(**WARM).is_seeded:
        pytest.skip("a server by URL is told no seed")
    first, again, other = (
        [answer.text for answer in way.answers(one_each(4, seed=seed), **WARM)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
