"""Collect the weights of a module that are sent, change their values, and load them by name.

Weights that share memory in the reference are changed once, so all their names get the same values.
A candidate may tie them in any order, or not at all. Entries that cannot be sent stay as
constructors draw them: complex numbers, sparse tensors, extra state that is no tensor, buffers that
repeat elements.

Threat: `load_by_name` also runs in workers, beside a candidate that may patch it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cudal1.harness.shared.arrangement import Arrangement, dtype_name, may_overlap
from cudal1.harness.shared.wire import DTYPES, TensorSpec

if TYPE_CHECKING:
    import torch

    Named = dict[str, torch.Tensor]

MAX_NAMES, MAX_LENGTH = 4, 60
"""Names that a message shows, and characters of each."""


class Weights:
    """A copy of a module's weights at construction, in memory of its own."""

    def __init__(self, module: torch.nn.Module, device: torch.device) -> None:
        state = {name: value for name, value in module.state_dict().items() if is_sendable(value)}
        self._names = list(state)
        self._tensors = [tensor.detach() for tensor in state.values()]
        self._arrangement = Arrangement.of(self._tensors)
        self._storages: list[torch.Tensor] | None = None
        if not self._arrangement.is_plain:
            self._storages = self._arrangement.filled(self._tensors, device)
        if self._storages is None:
            self._tensors = [tensor.clone().contiguous() for tensor in self._tensors]
        else:
            self._tensors = self._arrangement.of_storages(self._storages)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The types and shapes, in the order of the names."""
        return tuple(TensorSpec(dtype_name(t), tuple(t.shape)) for t in self._tensors)

    def original(self) -> Named:
        """Return the weights by name."""
        return dict(zip(self._names, self._tensors, strict=True))

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Named:
        """Return the weights by name, each changed once."""
        if self._storages is None:
            tensors = [change(tensor) for tensor in self._tensors]
        else:
            storages = self._arrangement.changed(self._storages, change)
            tensors = self._arrangement.of_storages(storages)
        return dict(zip(self._names, tensors, strict=True))


def is_sendable(value: Any) -> bool:
    """Return whether an entry of a state dict is a tensor that can be sent and loaded by name."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and not torch.nn.parameter.is_lazy(value)
        and value.layout is torch.strided
        and not value.is_nested
        and not value.is_meta
        and dtype_name(value) in DTYPES
        and not may_overlap(value)
    )


def is_lazy(module: torch.nn.Module) -> bool:
    """Return whether a module has parameters or buffers that its first call will make."""
    import torch

    own = [*module.parameters(), *module.buffers()]
    return any(torch.nn.parameter.is_lazy(tensor) for tensor in own)


def load_by_name(module: torch.nn.Module, given: Mapping[str, torch.Tensor]) -> str:
    """Load weights of the same name and shape into a module, cast to its own types.

    Return a message for people about weights that the module has not taken; empty if there are
    none. The module's other weights keep their values. Names that the module lacks are offered all
    the same: its hooks may know them.
    """
    own = module.state_dict()
    other_shape = [name for name in given if name in own and not _fits(own[name], given[name])]
    offered = {name: tensor for name, tensor in given.items() if name not in other_shape}
    result = module.load_state_dict(offered, strict=False)
    lacking = [name for name in getattr(result, "unexpected_keys", ()) if name in given]
    said: list[str] = []
    if lacking:
        said.append(f"it has none called {listed(lacking)}, which the reference has")
    if other_shape:
        said.append(f"{listed(other_shape)} has another shape than the reference's")
    kept = [name for name in own if name not in given or name in other_shape]
    if said and kept:
        said.append(f"its own {listed(kept)} kept the values that its constructor gave")
    return "; ".join(said)


def _fits(mine: Any, given: torch.Tensor) -> bool:
    import torch

    if not isinstance(mine, torch.Tensor):
        return False
    if torch.nn.parameter.is_lazy(mine):
        return True
    return mine.shape == given.shape and not may_overlap(mine)


def listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(name[:MAX_LENGTH] for name in names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
