"""Share one environment among all processes of a training group.

Each process samples whole groups of its own, and there is one world: its ledger, its statistics of
rewards and its device are the stage's. The first process asks for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from cudal1.train.environment import Environment, Turns

PATIENCE = timedelta(days=1)
"""Longest wait for a batch's verdicts; the processes wait, and their GPUs do nothing."""


class Shared:
    """An `Environment` that every process calls at the same point of its step.

    Data is exchanged over the CPU (gloo), never over NCCL. With NCCL a waiting process keeps its
    GPU busy, and another process may be measuring on that GPU.
    """

    def __init__(self, environment: Environment | None, *, judges_meanwhile: bool) -> None:
        """Take the environment in the process that speaks to the stage, and None in all others."""
        self.judges_meanwhile = judges_meanwhile
        self._environment = environment
        self._exchange: Any = None
        self._rounds: list[list[int]] = []
        """Numbers of answers from each process, for each offer since the last `score`."""

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """Return this process's next prompt; each problem and step has one prompt for all."""
        asked = self._gather(problem_id)
        prompts: dict[str, list[dict[str, str]]] | None = None
        if self._environment is not None:
            prompts = {
                each: self._environment.build_prompt(each, step) for each in dict.fromkeys(asked)
            }
        return self._broadcast(prompts)[problem_id]

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Offer the answers that all processes have just sampled, in one call."""
        parts = self._gather((list(problem_ids), list(texts)))
        if self._environment is not None:
            self._rounds.append([len(ids) for ids, _ in parts])
            self._environment.offer(
                _joined(ids for ids, _ in parts), _joined(texts for _, texts in parts), step
            )

    def refine(self, numbers: Sequence[int], step: int) -> list[list[dict[str, str]]]:
        """Return the chats for answers that go on from this process's own with these numbers."""
        parts = self._gather(list(numbers))
        chats: list[list[list[dict[str, str]]]] | None = None
        if self._environment is not None:
            turns = cast("Turns", self._environment)
            made = iter(turns.refine(self._in_all(parts), step))
            chats = [[next(made) for _ in part] for part in parts]
        return self._broadcast(chats)[self._rank]

    def offer_next(self, follows: Sequence[int], texts: Sequence[str], step: int) -> None:
        """Offer answers to chats of `refine` that all processes have just sampled, in one call."""
        parts = self._gather((list(follows), list(texts)))
        if self._environment is not None:
            numbers = self._in_all([follows for follows, _ in parts])
            self._rounds.append([len(texts) for _, texts in parts])
            turns = cast("Turns", self._environment)
            turns.offer_next(numbers, _joined(texts for _, texts in parts), step)

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return the rewards of this process's answers; the environment is asked once, about all.

        The answers go to it in the order in which they were offered: round by round, and in each
        round process by process.
        """
        parts = self._gather((list(problem_ids), list(texts)))
        rewards: list[list[float | None]] | None = None
        if self._environment is not None:
            order = _order(self._rounds or [[len(ids) for ids, _ in parts]])
            self._rounds = []
            earned = self._environment.score(
                [parts[rank][0][place] for rank, place in order],
                [parts[rank][1][place] for rank, place in order],
                step,
            )
            rewards = [[None] * len(ids) for ids, _ in parts]
            for (rank, place), reward in zip(order, earned, strict=True):
                rewards[rank][place] = reward
        return self._broadcast(rewards)[self._rank]

    def state(self) -> dict[str, Any]:
        """Return the environment's state; the process that speaks to the stage calls this."""
        assert self._environment is not None
        return self._environment.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`; all processes call this, and one of them passes it on."""
        if self._environment is not None:
            self._environment.restore(state)

    def _in_all(self, numbers: Sequence[Sequence[int]]) -> list[int]:
        """Return the numbers among all answers of numbers among each process's own."""
        places = {each: number for number, each in enumerate(_order(self._rounds))}
        return [places[rank, each] for rank, part in enumerate(numbers) for each in part]

    @property
    def _rank(self) -> int:
        import torch.distributed as dist

        return dist.get_rank() if dist.is_initialized() else 0

    def _gather(self, mine: Any) -> list[Any]:
        """Return the values of all processes, in their order; an empty list except in rank 0."""
        import torch.distributed as dist

        if not dist.is_initialized():
            return [mine]
        if self._exchange is None:
            self._exchange = dist.new_group(backend="gloo", timeout=PATIENCE)
        found: list[Any] | None = [None] * dist.get_world_size() if self._rank == 0 else None
        dist.gather_object(mine, found, dst=0, group=self._exchange)
        return found or []

    def _broadcast(self, said: Any) -> Any:
        """Return the value of the process that speaks to the stage."""
        import torch.distributed as dist

        if not dist.is_initialized():
            return said
        box = [said]
        dist.broadcast_object_list(box, src=0, group=self._exchange)
        return box[0]


def _order(rounds: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return (process, place in it) of each answer: round by round, in each process by process."""
    taken = [0] * len(rounds[0])
    found: list[tuple[int, int]] = []
    for counts in rounds:
        for rank, count in enumerate(counts):
            found += [(rank, place) for place in range(taken[rank], taken[rank] + count)]
            taken[rank] += count
    return found


def _joined(parts: Iterable[list[str]]) -> list[str]:
    return [each for part in parts for each in part]
