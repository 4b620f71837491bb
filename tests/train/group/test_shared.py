"""Tests that each of many processes gets its own results from one world."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cudal1.train.group.shared import Shared, _order

RANKS = 3


class Fake:
    """Collectives between threads, in place of torch.distributed."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(RANKS)
        self.box: list[Any] = [None] * RANKS
        self.local = threading.local()

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return self.local.rank

    def get_world_size(self) -> int:
        return RANKS

    def new_group(self, **_: Any) -> None:
        return None

    def gather_object(self, mine: Any, found: list[Any] | None, **_: Any) -> None:
        self.box[self.get_rank()] = mine
        self.barrier.wait()
        if found is not None:
            found[:] = self.box
        self.barrier.wait()

    def broadcast_object_list(self, box: list[Any], **_: Any) -> None:
        if self.get_rank() == 0:
            self.box[0] = box[0]
        self.barrier.wait()
        box[0] = self.box[0]
        self.barrier.wait()


class World:
    judges_meanwhile = True

    def __init__(self) -> None:
        self.offered: list[str] = []
        self.scored: list[str] = []
        self.built: list[str] = []
        self.follows: list[str] = []

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        self.built.append(problem_id)
        return [{"role": "user", "content": f"{problem_id}/{len(self.built)}"}]

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        self.offered += texts

    def refine(self, numbers: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        return [[{"role": "user", "content": self.offered[number]}] for number in numbers]

    def offer_next(self, follows: Sequence[int], texts: Sequence[str], step: int) -> None:
        self.follows += [self.offered[number] for number in follows]
        self.offered += texts

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        self.scored += texts
        return [float(text) for text in texts]

    def state(self) -> dict[str, Any]:
        return {"built": self.built}

    def restore(self, state: dict[str, Any]) -> None:
        self.built = state["built"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    for name in (
        "is_initialized",
        "get_rank",
        "get_world_size",
        "new_group",
        "gather_object",
        "broadcast_object_list",
    ):
        monkeypatch.setattr(f"torch.distributed.{name}", getattr(made, name))
    return made


def everywhere(fake: Fake, world: World, act: Callable[[int, Shared], Any]) -> list[Any]:
    """Return the results of `act` in each process."""
    results: list[Any] = [None] * RANKS

    def run(rank: int) -> None:
        fake.local.rank = rank
        results[rank] = act(rank, Shared(world if rank == 0 else None, judges_meanwhile=True))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    return results


def test_each_process_gets_the_rewards_of_its_own_answers(fake: Fake) -> None:
    def act(rank: int, shared: Shared) -> Any:
        texts = [str(10 * rank + i) for i in range(2)]
        return shared.score(["p"] * 2, texts, 0)

    assert everywhere(fake, World(), act) == [[0, 1], [10, 11], [20, 21]]


def test_a_prompt_that_two_processes_want_is_built_once(fake: Fake) -> None:
    world = World()
    prompts = everywhere(
        fake, world, lambda rank, shared: shared.build_prompt("ab"[rank > 0], 0)[0]["content"]
    )
    assert prompts == ["a/1", "b/2", "b/2"]
    assert world.built == ["a", "b"]


def test_answers_are_scored_in_the_order_in_which_they_were_offered(fake: Fake) -> None:
    world = World()

    def act(rank: int, shared: Shared) -> Any:
        texts = [str(10 * rank + i) for i in range(4)]
        for first in (0, 2):
            shared.offer(["p"] * 2, texts[first : first + 2], 0)
        return shared.score(["p"] * 4, texts, 0)

    assert everywhere(fake, world, act)[2] == [20, 21, 22, 23]
    assert world.scored == world.offered
    assert world.offered[:4] == ["0", "1", "10", "11"]


def test_only_one_process_restores_the_world(fake: Fake) -> None:
    world = World()
    everywhere(fake, world, lambda rank, shared: shared.restore({"built": [str(rank)]}))
    assert world.built == ["0"]


def test_a_single_process_uses_the_environment_directly() -> None:
    shared = Shared(World(), judges_meanwhile=False)
    assert shared.build_prompt("a", 0)[0]["content"] == "a/1"
    assert shared.score(["a"], ["7"], 0) == [7]


def test_the_order_goes_round_by_round() -> None:
    assert _order([[1, 2], [1, 0]]) == [(0, 0), (1, 0), (1, 1), (0, 1)]


def test_each_process_goes_on_from_its_own_answers(fake: Fake) -> None:
    world = World()

    def act(rank: int, shared: Shared) -> Any:
        texts = [str(10 * rank + i) for i in range(4)]
        shared.offer(["p"] * 2, texts[:2], 0)
        chats = shared.refine([1, 0], 0)
        shared.offer_next([1, 0], texts[2:], 0)
        return [chat[0]["content"] for chat in chats], shared.score(["p"] * 4, texts, 0)

    found = everywhere(fake, world, act)
    assert [said for said, _ in found] == [["1", "0"], ["11", "10"], ["21", "20"]]
    assert [rewards for _, rewards in found] == [[10 * r + i for i in range(4)] for r in range(3)]
    assert world.follows == ["1", "0", "11", "10", "21", "20"]
