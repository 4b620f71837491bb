"""Make the models of a reference: its own, one in float64, and their weights.

Threat: candidates are told the seed of the weights. Whatever is drawn later is seeded anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cudal1.harness.device.turns import Turns
from cudal1.harness.inputs.families import changed_weight
from cudal1.harness.reference.reference import Reference
from cudal1.harness.reference.reference_code import ReferenceCode, RefusalError
from cudal1.harness.shared.seeding import seed_others, seed_torch
from cudal1.harness.shared.weights import Weights, is_lazy, load_by_name
from cudal1.harness.shared.wire import TensorSpec
from cudal1.protocol import Mode

if TYPE_CHECKING:
    import torch


class InForce(NamedTuple):
    """Weights, and the models that compute with them."""

    seed: int
    model: torch.nn.Module
    exact: torch.nn.Module | None
    weights: Weights
    current: dict[str, torch.Tensor]


class Models:
    """The models of one reference, both with the same weights.

    Args:
        reference: makes them.
        code: surrounds whatever runs the reference.
        device: where they are.
        mode: in which they run.
        turns: of judges of the device; others have it while a model is made.
    """

    model: torch.nn.Module
    """The reference's own model."""
    exact: torch.nn.Module | None
    """The model in float64; None where the reference cannot be run so, or float64 is not asked
    for."""
    original_weights: dict[str, torch.Tensor]
    """State dict that the constructor drew."""
    current_weights: dict[str, torch.Tensor]
    """State dict that the models compute with."""
    seed: int
    """Seed under which the constructor drew."""

    def __init__(
        self,
        reference: Reference,
        code: ReferenceCode,
        *,
        device: torch.device,
        mode: Mode,
        turns: Turns,
    ) -> None:
        self._reference = reference
        self._code = code
        self.device = device
        self._mode = mode
        self._turns = turns

    def begin(self, seed: int, *, exact: bool, call: Callable[[], object]) -> None:
        """Make the reference and, where possible and asked for, another one in float64.

        `call` calls the reference once: a lazy reference makes the rest of its weights then.
        """
        self.seed = seed
        self.model = self.made(seed)
        if is_lazy(self.model):
            call()
        self._take_weights(self.model)
        self.exact = None
        if exact:
            with suppress(RefusalError):
                self.exact = self._made_exact(seed)

    def made(self, seed: int) -> torch.nn.Module:
        """Return another model, with the weights that the constructor draws under a seed."""
        # made on the CPU and moved, as anyone would, and as the workers do
        with self._turns.elsewhere(), self._code:
            seed_torch(seed, self.device)
            seed_others(seed)
            made = self._reference.make()
            if self._mode is not Mode.CONSTRUCTED:
                made.train(self._mode is Mode.TRAIN)
        with self._code:
            return made.to(self.device)

    def _made_exact(self, seed: int) -> torch.nn.Module:
        exact = self.made(seed)
        with self._code:
            load_by_name(exact.double(), self.original_weights)
        return exact

    def _take_weights(self, model: torch.nn.Module) -> None:
        with self._code:
            self._weights = Weights(model, self.device)
        self.original_weights = self._weights.original()
        self.current_weights = self.original_weights

    @property
    def weight_specs(self) -> tuple[TensorSpec, ...]:
        """Types and shapes of the weights."""
        return self._weights.specs

    def reseed(self, seed: int, *, is_carried: bool) -> None:
        """Compute with the weights that the constructor draws under a seed.

        `is_carried`: whether the weights bring everything along that the constructor drew.
        """
        made = self.made(seed)
        self.seed = seed
        if is_carried:
            self._take_weights(made)
            self.change_weights(None)
            return
        self.model = made
        self._take_weights(made)
        if self.exact is not None:
            self.exact = self._made_exact(seed)

    def change_weights(self, seed: int | None) -> None:
        """Compute with other weights; None brings the constructor's back."""
        if seed is None:
            self._load(self.original_weights)
        else:
            seed_torch(seed, self.device)
            self._load(self._weights.changed(changed_weight))

    @property
    def in_force(self) -> InForce:
        """The weights that the models compute with; `restore` takes them."""
        return InForce(self.seed, self.model, self.exact, self._weights, self.current_weights)

    def restore(self, weights: InForce) -> None:
        """Compute with weights that were `in_force` earlier; no constructor draws them."""
        self.seed, self.model, self.exact, self._weights, current = weights
        self.original_weights = self._weights.original()
        self._load(current)

    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        """Have all models compute with these weights."""
        self.current_weights = weights
        with self._code:
            load_by_name(self.model, weights)
            if self.exact is not None:
                load_by_name(self.exact, weights)
