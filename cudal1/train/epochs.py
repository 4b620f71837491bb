"""Give each epoch an order of its own, whether or not the run was stopped in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Epochs:
    """The places of TRL's sampler, in another order for each epoch.

    TRL draws one order after another from a generator, which restarts when a run resumes. The
    resumed run would go on in the middle of the first epoch's order, and some problems would come
    twice.

    Args:
        sampler: TRL's `RepeatSampler`, which shuffles with its `generator`.
        epoch: number of the epoch that an iteration begins or continues.
        seed: seed of the first epoch.
    """

    def __init__(self, sampler: Any, epoch: Callable[[], int], *, seed: int) -> None:
        self._sampler = sampler
        self._epoch = epoch
        self._seed = seed

    def __iter__(self) -> Iterator[int]:
        self._sampler.generator.manual_seed(self._seed + self._epoch())
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)
