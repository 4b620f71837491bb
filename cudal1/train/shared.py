"""One environment for all processes of a training group.

Each process samples whole groups of its own, and there is one world: its ledger, its statistics of
rewards and its device are the stage's. The first process asks for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cudal1.train.environment import Environment

PATIENCE = timedelta(days=1)
"""A batch's verdicts may take long; the processes wait, and their GPUs do nothing."""


class Shared:
    """An `Environment` that every process calls at the same point of its step.

    What is exchanged goes over the CPU (gloo), never over NCCL: there, a process that waits keeps
    its GPU busy, and somebody may be measuring on it.
    """

    def __init__(self, environment: Environment | None, *, judges_meanwhile: bool) -> None:
        """The environment in the process that speaks, None in all others."""
        self.judges_meanwhile = judges_meanwhile
        self._environment = environment
        self._exchange: Any = None
        self._rounds: list[list[int]] = []
        """Of each offer since the last `score`, how many answers came from each process."""

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """Each process's next prompt; that of one problem and step is built once, for all."""
        asked = self._gather(problem_id)
        prompts: dict[str, list[dict[str, str]]] | None = None
        if self._environment is not None:
            prompts = {
                each: self._environment.build_prompt(each, step) for each in dict.fromkeys(asked)
            }
        return self._broadcast(prompts)[problem_id]

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Answers that every process has just sampled, handed on as one lot."""
        parts = self._gather((list(problem_ids), list(texts)))
        if self._environment is not None:
            self._rounds.append([len(ids) for ids, _ in parts])
            self._environment.offer(
                _joined(ids for ids, _ in parts), _joined(texts for _, texts in parts), step
            )

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """What this process's answers earn; the environment is asked once, about all answers.

        They come in the order in which they were offered: of each round, every process's part.
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
        """The environment's; asked by the process that speaks."""
        assert self._environment is not None
        return self._environment.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`; all processes read it, one says so."""
        if self._environment is not None:
            self._environment.restore(state)

    @property
    def _rank(self) -> int:
        import torch.distributed as dist

        return dist.get_rank() if dist.is_initialized() else 0

    def _gather(self, mine: Any) -> list[Any]:
        """Everybody's, in the processes' order; an empty list where nobody speaks."""
        import torch.distributed as dist

        if not dist.is_initialized():
            return [mine]
        if self._exchange is None:
            self._exchange = dist.new_group(backend="gloo", timeout=PATIENCE)
        found: list[Any] | None = [None] * dist.get_world_size() if self._rank == 0 else None
        dist.gather_object(mine, found, dst=0, group=self._exchange)
        return found or []

    def _broadcast(self, said: Any) -> Any:
        """What the process that speaks has said."""
        import torch.distributed as dist

        if not dist.is_initialized():
            return said
        box = [said]
        dist.broadcast_object_list(box, src=0, group=self._exchange)
        return box[0]


def _order(rounds: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(process, its place there) of each answer: round by round, in each the processes in turn."""
    taken = [0] * len(rounds[0])
    found: list[tuple[int, int]] = []
    for counts in rounds:
        for rank, count in enumerate(counts):
            found += [(rank, place) for place in range(taken[rank], taken[rank] + count)]
            taken[rank] += count
    return found


def _joined(parts: Iterable[list[str]]) -> list[str]:
    return [each for part in parts for each in part]
