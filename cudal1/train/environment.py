"""Define the environment that a policy acts in, as the trainer sees it, and the offers to it.

Answers end in any order. They are offered as they end and scored in that order, whatever their
places in the trainer's batch. An answer's number is its place among the offers of its step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast


class Environment(Protocol):
    """The environment that the policy acts in, as the trainer sees it."""

    @property
    def judges_meanwhile(self) -> bool:
        """Return whether answers are judged while others are sampled: not on the policy's device.

        If so, groups are sampled one after another, and each is offered at once. If not, all groups
        are sampled together, which takes a GPU hardly longer than one group. One process alone then
        offers answers as they end, so that builds that need no device run meanwhile. A vLLM server
        is asked for all groups at once in both cases, and each group is offered when it has ended.
        """
        ...

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """Return the chat for one group, made from what is known at this moment."""
        ...

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Take answers that were just sampled; `score` asks for them later."""
        ...

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return the reward of each answer of a batch; None leaves an answer out of its group.

        The answers are those offered since the last call, in the same order. The trainer runs
        nothing on any device meanwhile.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return the JSON-compatible state that `restore` needs after a restart."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        ...


class Turns(Environment, Protocol):
    """An environment in which answers go on from earlier ones, where there is more than one turn.

    Its judges need the verdicts of a turn before they can say what the next one is shown. So the
    trainer runs nothing on any device while `refine` works.
    """

    def refine(self, numbers: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        """Return the chats for answers that go on from those with the given numbers."""
        ...

    def offer_next(self, follows: Sequence[int], texts: Sequence[str], step: int) -> None:
        """Take answers to chats of `refine`, each with the number of the answer before it."""
        ...


class Offers:
    """A link between a trainer, which knows answers by batch place, and an environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._places: list[int] = []

    def make(
        self, places: Sequence[int], problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> None:
        """Offer some answers of the batch that has begun, each to the problem beside it."""
        self._places += places
        self._environment.offer(problem_ids, texts, step)

    def refine(self, places: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        """Return the chats for answers that go on from those at some places of the batch."""
        return self._turns.refine([self._places.index(place) for place in places], step)

    def make_next(
        self, places: Sequence[int], follows: Sequence[int], texts: Sequence[str], step: int
    ) -> None:
        """Offer answers that go on from others, each beside the place of the one before it."""
        numbers = [self._places.index(place) for place in follows]
        self._places += places
        self._turns.offer_next(numbers, texts, step)

    @property
    def _turns(self) -> Turns:
        return cast("Turns", self._environment)

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return the reward of each answer of the batch, by place; all have been offered."""
        places, self._places = self._places, []
        assert sorted(places) == list(range(len(texts))), "each answer is offered once"
        earned = self._environment.score(
            [problem_ids[place] for place in places], [texts[place] for place in places], step
        )
        by_place = dict(zip(places, earned, strict=True))
        return [by_place[place] for place in range(len(texts))]
