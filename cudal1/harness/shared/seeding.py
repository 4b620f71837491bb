"""Seed the generators of random numbers that weights and inputs may be drawn with.

KernelBench seeds PyTorch's generators. Weights that a constructor draws with NumPy or with `random`
are judged as well: judge and workers seed those generators for it. Threat: the seed of weights is
public, so numbers that come after it may never be an input's. So states are put back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BITS, WORD = 63, 32
"""Bits of a seed, and of the words that NumPy takes seeds in."""


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed PyTorch's generators of the CPU and of one device."""
    # torch.manual_seed would also queue a seeding of CUDA, with a formatted stack, each time
    for generator in _generators(device):
        generator.manual_seed(seed % (1 << BITS))


def _generators(device: torch.device) -> list[torch.Generator]:
    import torch

    if device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()  # there are no generators before
    return [torch.default_generator, torch.cuda.default_generators[torch.cuda.current_device()]]


@dataclass(frozen=True)
class TorchStates:
    """The states of PyTorch's generators of the CPU and of one device."""

    states: tuple[tuple[torch.Generator, torch.Tensor], ...]

    def restore(self) -> None:
        """Have the generators go on from these states."""
        for generator, state in self.states:
            generator.set_state(state)


def torch_states(device: torch.device) -> TorchStates:
    """Return the states that `seed_torch` sets."""
    return TorchStates(tuple((each, each.get_state()) for each in _generators(device)))


def seed_others(seed: int) -> None:
    """Seed the generators of `random` and of NumPy, where NumPy is installed."""
    random.seed(seed % (1 << BITS))
    if of_numpy := _numpy_random():
        of_numpy.seed([seed % (1 << WORD), seed % (1 << BITS) >> WORD])


def others() -> tuple[Any, ...]:
    """Return the states of the generators that `seed_others` seeds, to be compared."""
    if not (of_numpy := _numpy_random()):
        return (random.getstate(),)
    name, words, *rest = of_numpy.get_state()
    return (random.getstate(), name, words.tobytes(), *rest)


@contextmanager
def kept_others() -> Iterator[None]:
    """Put the states of the generators that `seed_others` seeds back afterwards."""
    state, of_numpy = random.getstate(), _numpy_random()
    numpy_state = of_numpy.get_state() if of_numpy else None
    try:
        yield
    finally:
        random.setstate(state)
        if of_numpy:
            of_numpy.set_state(numpy_state)


def _numpy_random() -> Any:
    """Return NumPy's module of random numbers, or None where NumPy is not installed."""
    try:
        import numpy as np
    except ImportError:
        return None
    return np.random
