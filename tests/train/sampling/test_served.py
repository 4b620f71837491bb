"""Tests of groups from a vLLM server: all are asked for at once, each is offered at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cudal1.train import grpo
from cudal1.train.group.launched import MEMBER
from tests.train.test_grpo import Letters, train
from tests.train.vllm_server import Server, answer, logprobs, serving, stand_in

pytestmark = pytest.mark.slow

PATIENCE_S = 300.0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[Server]:
    """Run server and training in this process; the training would otherwise start one with vLLM."""
    made = Server()
    monkeypatch.setenv(MEMBER, "this one")
    stand_in(made, monkeypatch)
    with serving(made):
        yield made


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Any]]:
    """Return the prompts, answers and their logarithms that TRL got for each batch."""
    seen: list[tuple[Any, Any, Any]] = []
    ours = grpo._trainer_class()

    class Watched(ours):
        def _generate_single_turn(self, prompt_ids: Any, *others: Any, **more: Any) -> Any:
            made = super()._generate_single_turn(prompt_ids, *others, **more)
            seen.append((prompt_ids, *made))
            return made

    monkeypatch.setattr(grpo, "_trainer_class", lambda: Watched)
    return seen


class Held:
    """A hold on one of two prompts until answers to the other have been offered."""

    def __init__(self, choose: Callable[[list[list[int]]], list[int]]) -> None:
        self.has_offered = threading.Event()
        self._choose = choose
        self._prompts: list[list[int]] = []
        self._both = threading.Barrier(2)

    def __call__(self, prompt: list[int]) -> None:
        self._prompts.append(prompt)
        self._both.wait(PATIENCE_S)
        if prompt == self._choose(self._prompts):
            assert self.has_offered.wait(PATIENCE_S)


class Releasing(Letters):
    def __init__(self, held: Held, *, judges_meanwhile: bool) -> None:
        super().__init__(judges_meanwhile=judges_meanwhile)
        self._held = held

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        super().offer(problem_ids, texts, step)
        self._held.has_offered.set()


@pytest.mark.parametrize("judges_meanwhile", [False, True])
@pytest.mark.parametrize("choose", [min, max])
def test_all_groups_are_requested_at_once_and_the_first_to_end_is_offered_first(
    tiny_policy: Path,
    tmp_path: Path,
    server: Server,
    turns: list[tuple[Any, Any, Any]],
    choose: Callable[[list[list[int]]], list[int]],
    judges_meanwhile: bool,
) -> None:
    """The server would lose its patience otherwise; the batch keeps its own order."""
    server.hold = held = Held(choose)
    world = Releasing(held, judges_meanwhile=judges_meanwhile)
    train(tiny_policy, tmp_path, world, steps=1, vllm_server=server.url)
    assert [len(texts) for _, texts, _ in world.offered] == [8, 8]
    prompts, answers, _ = turns[0]
    assert answers == [answer(prompt, i % 8) for i, prompt in enumerate(prompts)]


def test_answers_and_logprobs_belong_to_their_prompts(
    tiny_policy: Path, tmp_path: Path, server: Server, turns: list[tuple[Any, Any, Any]]
) -> None:
    train(tiny_policy, tmp_path, Letters(), steps=2, vllm_server=server.url)
    assert len(turns) == 2
    for prompts, answers, said in turns:
        expected = [answer(prompt, i % 8) for i, prompt in enumerate(prompts)]
        assert answers == expected
        assert said == [logprobs(tokens) for tokens in expected]


def test_an_answer_of_a_later_turn_is_requested_with_its_own_prompt(
    tiny_policy: Path, tmp_path: Path, server: Server, turns: list[tuple[Any, Any, Any]]
) -> None:
    """Groups of 8 are 4 trajectories of 2 turns; TRL learns from the prompts that were asked."""
    train(tiny_policy, tmp_path, Letters(), steps=1, vllm_server=server.url, turns=2)
    ((prompts, answers, said),) = turns
    places = [i % 4 if i % 8 < 4 else 0 for i in range(16)]
    assert answers == [answer(prompt, at) for prompt, at in zip(prompts, places, strict=True)]
    assert said == [logprobs(tokens) for tokens in answers]
    assert sorted(asked["n"] for asked in server.asked) == [1] * 8 + [4, 4]
    asked = {tuple(each["prompt"][0]) for each in server.asked}
    assert asked == {tuple(prompt) for prompt in prompts}
    assert server.num_syncs == 1


def test_weights_are_sent_once_a_step_and_before_its_groups_are_requested(
    tiny_policy: Path, tmp_path: Path, server: Server
) -> None:
    train(tiny_policy, tmp_path, Letters(), steps=3, vllm_server=server.url)
    assert server.num_syncs == 3
    assert server.syncs_before == [1, 1, 2, 2, 3, 3]


def test_the_server_samples_with_the_given_settings(
    tiny_policy: Path, tmp_path: Path, server: Server
) -> None:
    train(
        tiny_policy,
        tmp_path,
        Letters(),
        steps=1,
        vllm_server=server.url,
        temperature=0.7,
        top_p=0.9,
        max_new_tokens=11,
    )
    told = ("n", "temperature", "top_p", "max_tokens", "logprobs")
    assert [[asked[name] for name in told] for asked in server.asked] == [[8, 0.7, 0.9, 11, 0]] * 2
    assert len({tuple(asked["prompt"][0]) for asked in server.asked}) == 2
