"""Inputs of a problem, as its generator draws them or as a family changes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from cudal1.harness.inputs.domain import Domain, domain_of, num_draws
from cudal1.harness.inputs.families import FAMILIES, OWN, change_inputs
from cudal1.harness.reference.reference_code import ReferenceCode
from cudal1.harness.shared.arrangement import Arrangement, dtype_name
from cudal1.harness.shared.seeding import BITS, others, seed_others, seed_torch, torch_states
from cudal1.harness.shared.wire import DTYPES

if TYPE_CHECKING:
    import torch

Tensors = list["torch.Tensor"]
Change = Callable[["torch.Tensor"], "torch.Tensor"]


@dataclass(frozen=True, eq=False)
class Draw:
    """One set of inputs, private to the judge until it is published; equal to itself alone."""

    inputs: Tensors
    family: str
    arranged: Tensors | None = None
    """Storages that the inputs are views of; None where each input is its own."""
    is_changed: bool = True
    """True if its family has changed anything that may be changed, and for the problem's own
    inputs."""

    @property
    def is_own(self) -> bool:
        """Return whether the problem's own generator may draw it."""
        return self.family == OWN

    @property
    def storages(self) -> Tensors:
        """Flat tensors that hold all values of the inputs."""
        return self.arranged or [tensor.view(-1) for tensor in self.inputs]


class Draws:
    """Draws inputs of one problem.

    Args:
        draw: the problem's generator.
        code: the context of each call into the generator.
        device: the device of the inputs.
        arrangement: the layout of inputs in memory; None: the first draw tells.
        uses_others: whether the generator draws with other generators of random numbers than
            PyTorch's; None: draws tell.
        domain: the invariants that families other than the problem's own must keep.
    """

    def __init__(
        self,
        draw: Callable[[], Any],
        code: ReferenceCode,
        device: torch.device,
        *,
        arrangement: Arrangement | None = None,
        uses_others: bool | None = None,
        domain: Domain | None = None,
    ) -> None:
        self._draw = draw
        self._code = code
        self._device = device
        self._arrangement = arrangement
        self._uses_others = uses_others
        self.has_used_others = bool(uses_others)
        self.domain = domain or Domain()

    @property
    def arrangement(self) -> Arrangement:
        """The layout of inputs in memory."""
        assert self._arrangement is not None, "nothing was drawn yet"
        return self._arrangement

    def learn_domain(self, first: Draw, seed: int) -> None:
        """Learn the domain from a draw, from one under a seed, and from private seeds.

        Raises:
            RefusalError: see `draw`.
        """
        private = random.SystemRandom()
        seeds = [seed, *(private.getrandbits(BITS - 1) for _ in range(num_draws(first.inputs) - 2))]
        self.domain = domain_of(chain([first.inputs], (self.draw(each).inputs for each in seeds)))

    def draw(self, seed: int, family: str = OWN) -> Draw:
        """Return fresh inputs; the same seed and family give the same ones.

        Raises:
            RefusalError: the generator raised an exception, or drew inputs that cannot be judged.
        """
        own = self._own(seed)
        return own if family == OWN else self._changed(own, family)

    def variants(self, seed: int, families: Sequence[str]) -> Iterator[Draw]:
        """Yield the draw of each family, as `draw` returns it; the generator draws once.

        Raises:
            RefusalError: see `draw`.
        """
        own = self._own(seed)
        states = torch_states(self._device)
        for family in families:
            states.restore()
            yield own if family == OWN else self._changed(own, family)

    def _own(self, seed: int) -> Draw:
        """Return the inputs that the generator draws under a seed."""
        seed_torch(seed, self._device)
        if self._uses_others is not False:
            seed_others(seed)
        is_learning = self._uses_others is None
        before = others() if is_learning else None
        with self._code, self._device:
            drawn = self._draw()
        if is_learning:
            self.has_used_others |= others() != before
        with self._code:
            tensors = [self._dense(value) for value in self._listed(drawn)]
        # outside the device's context, in which each operator takes ten times as long to begin
        return self._arranged(tensors)

    def given(self, draw: Draw, change: Change | None) -> Tensors:
        """Return the inputs for one call, changed; they share memory as in the draw."""
        if change is None:
            tensors = draw.inputs
        elif draw.arranged is None:
            tensors = [change(tensor) for tensor in draw.inputs]
        else:
            tensors = self.arrangement.of_storages([change(each) for each in draw.arranged])
        return [
            tensor.detach().requires_grad_() if view.wants_grad else tensor
            for tensor, view in zip(tensors, self.arrangement.views, strict=True)
        ]

    def _listed(self, drawn: Any) -> list[Any]:
        if said := not_listed(drawn):
            raise self._code.refusal(said)
        return list(drawn)

    def _dense(self, value: Any) -> torch.Tensor:
        if said := not_dense(value):
            raise self._code.refusal(f"get_inputs() gives {said}; {remedy(value, is_output=False)}")
        return value

    def _arranged(self, tensors: Tensors) -> Draw:
        if self._arrangement is None:
            self._arrangement = Arrangement.of(tensors)
            if not any(spec.num_bytes for spec in self._arrangement.storages):
                raise self._code.refusal("its inputs have no elements")
        arrangement = self._arrangement
        if said := arrangement.complaint(tensors):
            raise self._code.refusal(
                f"its inputs change from draw to draw: {said}; draw as many in every draw, each of "
                "one shape and type"
            )
        tensors = [tensor.detach() for tensor in tensors]
        if arrangement.is_plain:
            return Draw([tensor.to(self._device).contiguous() for tensor in tensors], OWN)
        storages = arrangement.filled(tensors, self._device)
        if storages is None:
            raise self._code.refusal("its inputs share memory in some draws and not in others")
        return Draw(arrangement.of_storages(storages), OWN, storages)

    def _changed(self, own: Draw, family: str) -> Draw:
        """Return the problem's own inputs as a family changes them, inside the domain."""
        arrangement = self.arrangement
        with self._device:
            if own.arranged is None:
                kept = self.domain.kept(change_inputs(own.inputs, family), own.inputs)
                return Draw(kept or own.inputs, family, is_changed=kept is not None)
            storages = arrangement.changed(own.arranged, FAMILIES[family])
            if not self.domain.is_free:
                kept = self.domain.kept(arrangement.of_storages(storages), own.inputs)
                # inputs that share memory may have been brought back to different values
                storages = None if kept is None else arrangement.filled(kept, self._device)
        if storages is None:
            return Draw(own.inputs, family, own.arranged, is_changed=False)
        return Draw(arrangement.of_storages(storages), family, storages)


def not_listed(drawn: Any) -> str:
    """Return the fault of a generator's result as a whole; empty without a fault."""
    if not isinstance(drawn, list | tuple):
        said = f"the tensors of one call in forward's order, not {type(drawn).__name__}"
        return f"get_inputs() must return a list of tensors: {said}"
    return "" if drawn else "get_inputs() must return a list of tensors, and this one holds none"


def remedy(value: Any, *, is_output: bool) -> str:
    """Return the remedy for an input or an output that cannot be judged."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return "return its real and imaginary parts, as torch.view_as_real gives them"
        is_dense = value.layout is torch.strided and not value.is_nested
        return "convert it, to float32 or int64" if is_dense else "return its parts, dense"
    if isinstance(value, list | tuple | dict | set):
        return "return its tensors one by one"
    said = "return a tensor"
    return said if is_output else f"{said}, or a plain Python value that is the same in every draw"


def not_dense(value: Any) -> str:
    """Return why a value is no dense tensor of a type that can be sent; empty if it is one."""
    import torch

    if not isinstance(value, torch.Tensor):
        return f"a value of type {type(value).__name__}, not a tensor"
    if value.is_nested:
        return "a nested tensor"
    if value.layout is not torch.strided:
        return f"a tensor of layout {value.layout}, not a dense one"
    if value.is_meta:
        return "a tensor without values, of device meta"
    if dtype_name(value) not in DTYPES:
        return f"a tensor of {dtype_name(value)}, which cannot be judged"
    return ""
