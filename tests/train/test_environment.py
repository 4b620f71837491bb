"""Tests that answers are scored in the order of their offers, and earn at their own places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cudal1.train.environment import Offers


class World:
    """A world in which an answer earns the number that it is."""

    judges_meanwhile = False

    def __init__(self) -> None:
        self.offered: list[tuple[str, str]] = []

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        return []

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        self.offered += zip(problem_ids, texts, strict=True)

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        assert list(zip(problem_ids, texts, strict=True)) == self.offered
        self.offered = []
        return [None if text == "lost" else float(text) for text in texts]

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


def test_each_answer_earns_its_own_reward_in_any_order_of_offers() -> None:
    offers = Offers(World())
    problems, texts = ["a", "a", "b", "b"], ["1", "2", "lost", "4"]
    for _ in range(2):  # a batch after the other
        for places in ([3], [1, 2], [0]):
            offers.make(places, [problems[i] for i in places], [texts[i] for i in places], 0)
        assert offers.score(problems, texts, 0) == [1, 2, None, 4]


class InTurns(World):
    """A world that is asked by the numbers of answers."""

    def __init__(self) -> None:
        super().__init__()
        self.follows: list[int] = []

    def refine(self, numbers: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        return [[{"role": "user", "content": self.offered[number][1]}] for number in numbers]

    def offer_next(self, follows: Sequence[int], texts: Sequence[str], step: int) -> None:
        self.follows += follows
        self.offered += [(self.offered[n][0], t) for n, t in zip(follows, texts, strict=True)]


def test_a_later_turn_goes_on_from_the_answer_at_its_place_in_any_order_of_offers() -> None:
    world = InTurns()
    offers = Offers(world)
    offers.make([1, 0], ["a", "a"], ["11", "10"], 0)
    chats = offers.refine([0, 1], 0)
    assert [chat[0]["content"] for chat in chats] == ["10", "11"]
    offers.make_next([3], [1], ["13"], 0)
    offers.make_next([2], [0], ["12"], 0)
    assert world.follows == [0, 1]
    assert offers.score(["a"] * 4, ["10", "11", "12", "13"], 0) == [10, 11, 12, 13]


@pytest.mark.parametrize("places", [[0], [0, 0, 1]])
def test_each_answer_is_offered_once(places: list[int]) -> None:
    offers = Offers(World())
    offers.make(places, ["a"] * len(places), ["1"] * len(places), 0)
    with pytest.raises(AssertionError, match="offered once"):
        offers.score(["a", "a"], ["1", "1"], 0)
