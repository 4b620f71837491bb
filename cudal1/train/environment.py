"""What a policy acts in, in the words of the trainer, and what it has offered there.

Answers end in any order. They are offered as they end and scored in that order, whatever their
places in the trainer's batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Environment(Protocol):
    """What the policy acts in, in the trainer's words."""

    @property
    def judges_meanwhile(self) -> bool:
        """Whether it judges answers while others are being sampled: not on the policy's device.

        Groups are then sampled one after another, each offered at once; else all together, which
        takes a GPU hardly longer than one, and offered as they end where one process samples: what
        can be built without the device is built meanwhile. A vLLM server is asked for all groups
        at once either way, and each is offered when it has ended.
        """
        ...

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """The chat for one group, from what is known at this moment."""
        ...

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Take answers that were just sampled; `score` asks for them later."""
        ...

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """What each answer of a batch earns; None leaves an answer out of its group.

        The answers are those offered since the last call, in the same order. Nothing of the
        trainer's runs on any device meanwhile.
        """
        ...

    def state(self) -> dict[str, Any]:
        """What `restore` needs after a restart; JSON-compatible."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        ...


class Offers:
    """Between a trainer, which knows answers by their places in a batch, and an environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._places: list[int] = []

    def make(
        self, places: Sequence[int], problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> None:
        """Offer some answers of the batch that has been begun, each to the problem beside it."""
        self._places += places
        self._environment.offer(problem_ids, texts, step)

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """What each answer of the batch earns, by place; all have been offered."""
        places, self._places = self._places, []
        assert sorted(places) == list(range(len(texts))), "each answer is offered once"
        earned = self._environment.score(
            [problem_ids[place] for place in places], [texts[place] for place in places], step
        )
        by_place = dict(zip(places, earned, strict=True))
        return [by_place[place] for place in range(len(texts))]
