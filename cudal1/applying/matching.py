"""Compare a live module with the reference that a version was proven against.

A class may be constructed in many ways, and a version was proven for one of them. So the reference
is constructed as it was proven, and the live module must have the same submodules, weights and
plain attributes. Attributes that are objects of other classes, such as a configuration, are not
compared: what of them matters to a module stands in its plain attributes, as a rule, and the first
call of each kind is compared anyway (`dispatcher`). All functions leave modules as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

OWN = frozenset(vars(nn.Module())) | {"forward"}
"""Attributes of every module that are no configuration."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.Size)


def difference(live: nn.Module, proven: nn.Module) -> str | None:
    """Return how a live module differs from the reference as it was proven; None: not at all."""
    ours, theirs = dict(live.named_modules()), dict(proven.named_modules())
    if ours.keys() != theirs.keys():
        name = min(ours.keys() ^ theirs.keys())
        return f"submodule {name!r} is in one of the two only"
    for name, module in ours.items():
        other, place = theirs[name], f"{name}." if name else ""
        if name and type(module).__qualname__ != type(other).__qualname__:
            return f"{name} is a {type(module).__qualname__}, not {type(other).__qualname__}"
        if said := _tensors(module, other, place) or _attributes(module, other, place):
            return said
    return None


def tie(version: nn.Module, live: nn.Module) -> str | None:
    """Have a version compute with a live module's weights; return why it cannot, or None.

    Both share the dictionaries of their weights, so whatever is assigned, loaded or converted in
    the live module is the version's, too.
    """
    ours, theirs = dict(live.named_modules()), dict(version.named_modules())
    for name, module in theirs.items():
        for kind in ("_parameters", "_buffers"):
            has = set(getattr(module, kind))
            wants = set(getattr(ours[name], kind)) if name in ours else set[str]()
            if has != wants:
                weight = min(has ^ wants)
                return (
                    f"weight {f'{name}.{weight}' if name else weight!r} is in one of the two only"
                )
        if module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks:
            return "it looks at weights only when they are loaded"
        if _loads_itself(type(module)):
            return "it loads weights in its own way"
    for name, module in ours.items():
        if name not in theirs and (module._parameters or module._buffers):
            return f"it has no {name}, which has weights"
    for name, module in theirs.items():
        if name in ours:
            module._parameters, module._buffers = ours[name]._parameters, ours[name]._buffers
            module.__dict__["training"] = ours[name].training
    return None


def _loads_itself(kind: type[nn.Module]) -> bool:
    return any(
        name in vars(each)
        for each in kind.__mro__
        for name in ("_load_from_state_dict", "load_state_dict")
        if not each.__module__.startswith("torch.nn.")
    )


def _tensors(live: nn.Module, proven: nn.Module, place: str) -> str | None:
    for kind in ("_parameters", "_buffers"):
        ours, theirs = getattr(live, kind), getattr(proven, kind)
        if set(ours) != set(theirs):
            return f"weight {place}{min(set(ours) ^ set(theirs))} is in one of the two only"
        for name, tensor in ours.items():
            if _form(tensor) != _form(theirs[name]):
                return f"{place}{name} is {_form(tensor)}, not {_form(theirs[name])}"
    return None


def _form(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "absent"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _attributes(live: nn.Module, proven: nn.Module, place: str) -> str | None:
    ours, theirs = _plain_attributes(live), _plain_attributes(proven)
    if ours.keys() != theirs.keys():
        return f"attribute {place}{min(ours.keys() ^ theirs.keys())} is in one of the two only"
    for name, value in ours.items():
        if value != theirs[name] and not (value != value and theirs[name] != theirs[name]):
            return f"{place}{name} is {value!r}, not {theirs[name]!r}"
    return None


def _plain_attributes(module: nn.Module) -> dict[str, Any]:
    named = ((name, value) for name, value in vars(module).items() if name not in OWN)
    return {name: _known(value) for name, value in named if _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    if isinstance(value, dict):
        return all(_is_plain(each) for each in (*value, *value.values()))
    return isinstance(value, (*PLAIN, FunctionType))


def _known(value: Any) -> Any:
    """Return a plain value for comparison; a function is known by its name."""
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, FunctionType) else value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of an output, in their order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def agree(one: Any, other: Any, *, limit: float) -> bool:
    """Return whether two outputs have the same tensors, but for a relative L2 error of `limit`."""
    ours, theirs = list(tensors_in(one)), list(tensors_in(other))
    if type(one) is not type(other) or len(ours) != len(theirs):
        return False
    return all(_close(x, y, limit) for x, y in zip(ours, theirs, strict=True))


def _close(x: torch.Tensor, y: torch.Tensor, limit: float) -> bool:
    if (x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device):
        return False
    if not (x.is_floating_point() or x.is_complex()):
        return bool(torch.equal(x, y))
    finite: Callable[[torch.Tensor], torch.Tensor] = torch.isfinite
    if not torch.equal(finite(x), finite(y)):
        return False
    wide = torch.complex128 if x.is_complex() else torch.float64
    x, y = (torch.where(finite(t), t, 0).to(wide) for t in (x, y))
    return bool((x - y).norm() <= limit * y.norm())
