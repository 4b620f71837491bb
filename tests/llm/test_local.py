"""Tests of a policy in this process as a provider: batches, seeds, receipts, errors at start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cudal1.candidate import Completion
from cudal1.errors import ProviderError
from cudal1.llm.local import LocalProvider, seed_of
from cudal1.llm.provider import Request, complete, has_failed
from cudal1.settings.provider_settings import LocalSettings
from cudal1.train.policy import EMBEDDED, Sampler, fingerprint
from tests.llm.receipts import Kept

Ask = Callable[..., list[Request]]


def settings_with(**changes: Any) -> LocalSettings:
    values: dict[str, Any] = {
        "kind": "local",
        "path": str(EMBEDDED),
        "temperature": 1.0,
        "top_p": None,
        "max_tokens": 16,
        "batch_size": 2,
        **changes,
    }
    return LocalSettings(**values)


@pytest.fixture(scope="module")
def embedded() -> Sampler:
    return Sampler(EMBEDDED)


@dataclass
class Loaded:
    """A loader that returns a policy that is loaded already."""

    policy: Any

    def __call__(self, folder: Path, /) -> Any:
        return self.policy

    def fingerprint(self, folder: Path, /) -> str:
        return fingerprint(folder)


@dataclass(frozen=True)
class Said:
    """An answer of the fake policy."""

    text: str
    finish_reason: str = "stop"
    num_prompt_tokens: int = 3
    num_completion_tokens: int = 2
    logprobs: tuple[float, ...] | None = None


class Parrot:
    """A policy that answers with its seed, and records its calls."""

    num_positions = 100

    def __init__(self, num_prompt_tokens: int = 3) -> None:
        self.calls: list[dict[str, Any]] = []
        self._num_prompt_tokens = num_prompt_tokens

    def num_tokens(self, chat: Sequence[dict[str, str]]) -> int:
        return self._num_prompt_tokens

    def sample(self, chats: Sequence[Any], **how: Any) -> list[Said]:
        self.calls.append({"count": len(chats), **how})
        logprobs = (-0.5, -0.25) if how["with_logprobs"] else None
        return [Said(text=str(seed), logprobs=logprobs) for seed in how["seed"]]


def answers(
    policy: Any, ask: Ask, kept: Kept, *, attempts: int = 1, seed: int = 0, **changes: Any
) -> list[Completion]:
    provider = LocalProvider("x", settings_with(**changes), Loaded(policy))
    return list(complete(provider, ask(provider, attempts, seed), kept))


def test_waiting_requests_are_sampled_in_batches(ask: Ask, kept: Kept) -> None:
    parrot = Parrot()
    answers(parrot, ask, kept, attempts=5, batch_size=2)
    assert [call["count"] for call in parrot.calls] == [2, 2, 1]


def test_answers_come_in_the_order_of_the_requests(ask: Ask, kept: Kept) -> None:
    provider = LocalProvider("x", settings_with(batch_size=2), Loaded(Parrot()))
    requests = ask(provider, attempts=5)
    completions = list(complete(provider, requests, kept))
    assert [completion.id for completion in completions] == [request.id for request in requests]
    assert [completion.text for completion in completions] == [str(seed_of(r)) for r in requests]


def test_all_answers_of_a_batch_are_recorded_before_the_first_is_read(ask: Ask, kept: Kept) -> None:
    provider = LocalProvider("x", settings_with(batch_size=4), Loaded(Parrot()))
    with provider.open(kept) as exchange:
        for request in ask(provider, attempts=4):
            exchange.ask(request)
        exchange.answer()
        assert len(kept.completions) == 4


def test_each_attempt_has_its_own_seed(ask: Ask, kept: Kept) -> None:
    parrot = Parrot()
    answers(parrot, ask, kept, attempts=8, batch_size=8)
    assert len(set(parrot.calls[0]["seed"])) == 8


def test_an_unset_temperature_or_top_p_is_one(ask: Ask, kept: Kept) -> None:
    parrot = Parrot()
    answers(parrot, ask, kept, temperature=None, top_p=None)
    assert (parrot.calls[0]["temperature"], parrot.calls[0]["top_p"]) == (1.0, 1.0)


def test_settings_reach_the_policy(ask: Ask, kept: Kept) -> None:
    parrot = Parrot()
    answers(parrot, ask, kept, temperature=0.0, top_p=0.5, max_tokens=7)
    wanted = {"temperature": 0.0, "top_p": 0.5, "max_new_tokens": 7}
    assert wanted.items() <= parrot.calls[0].items()


def test_logprobs_come_with_the_answers_to_requests_for_them(ask: Ask, kept: Kept) -> None:
    provider = LocalProvider("x", settings_with(), Loaded(Parrot()))
    plain, curious = ask(provider, attempts=2)
    curious = curious.model_copy(update={"with_logprobs": True})
    completions = list(complete(provider, [plain, curious], kept))
    assert [completion.logprobs for completion in completions] == [None, (-0.5, -0.25)]


def test_a_prompt_that_leaves_no_room_fails_as_data(ask: Ask, kept: Kept) -> None:
    (completion,) = answers(Parrot(num_prompt_tokens=90), ask, kept)
    assert has_failed(completion)
    assert "prompt of 90 tokens and answer of 16 exceed the policy's 100" in (
        completion.finish_reason
    )


@pytest.mark.slow
def test_an_answer_does_not_depend_on_its_batch(embedded: Sampler, ask: Ask) -> None:
    together, alone = (
        [c.text for c in answers(embedded, ask, Kept(), attempts=4, batch_size=size)]
        for size in (4, 1)
    )
    assert together == alone


def test_another_seed_gives_other_answers(embedded: Sampler, ask: Ask) -> None:
    first, second = (
        [c.text for c in answers(embedded, ask, Kept(), attempts=4, seed=seed, temperature=1.5)]
        for seed in (1, 2)
    )
    assert first != second


def test_a_seed_is_part_of_the_question(ask: Ask) -> None:
    provider = LocalProvider("x", settings_with(), Sampler)
    assert ask(provider, seed=1)[0].id != ask(provider, seed=2)[0].id


def test_the_batch_size_does_not_change_the_question(ask: Ask) -> None:
    small, large = (LocalProvider("x", settings_with(batch_size=n), Sampler) for n in (1, 9))
    assert ask(small)[0].id == ask(large)[0].id


def test_temperature_is_part_of_the_question(ask: Ask) -> None:
    cold, warm = (LocalProvider("x", settings_with(temperature=t), Sampler) for t in (0.5, 1.0))
    assert ask(cold)[0].id != ask(warm)[0].id


def test_the_weights_are_part_of_the_question(ask: Ask, tmp_path: Path) -> None:
    shutil.copytree(EMBEDDED, tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").write_bytes(b"other")
    here = LocalProvider("x", settings_with(), Sampler)
    there = LocalProvider("x", settings_with(path=str(tmp_path / "other")), Sampler)
    assert ask(here)[0].id != ask(there)[0].id


def test_a_missing_policy_names_its_path(tmp_path: Path) -> None:
    missing = tmp_path / "gone"
    with pytest.raises(ProviderError, match=f"provider x: {missing} holds no policy"):
        LocalProvider("x", settings_with(path=str(missing)), Sampler)


def test_a_damaged_policy_gives_an_error_of_one_line(tmp_path: Path, kept: Kept) -> None:
    (tmp_path / "config.json").write_text("{")
    provider = LocalProvider("x", settings_with(path=str(tmp_path)), Sampler)
    with pytest.raises(ProviderError, match=r"provider x: .* cannot be loaded") as caught:
        provider.open(kept).__enter__()
    assert "\n" not in str(caught.value)


def test_a_request_without_a_length_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_tokens"):
        settings_with(max_tokens=None)
