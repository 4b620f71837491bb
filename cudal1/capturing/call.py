"""Record one call of a module: its arguments with tensors taken out, and what became of it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudal1.capturing.literals import is_literal, shapes
from cudal1.capturing.refusal import CaptureError
from cudal1.capturing.tensors import Drawn, described

if TYPE_CHECKING:
    import torch

MAX_SHOWN = 60
"""Characters of a value in a key."""


@dataclass(frozen=True)
class Slot:
    """The place of a tensor in an argument."""

    index: int
    """Index among the inputs; a tensor that was passed twice has one."""


@dataclass
class Call:
    """One call, or several of one kind."""

    module: torch.nn.Module
    init: tuple[tuple[Any, ...], Mapping[str, Any]] | None
    """Arguments of the constructor; None where it was not seen."""
    args: tuple[Any, ...]
    """Positional arguments, with a `Slot` for each tensor."""
    kwargs: dict[str, Any]
    names: list[str]
    """Names of the inputs, by slot."""
    inputs: list[Drawn]
    is_training: bool
    autocast: str | None
    """The dtype of autocasting; None where it was off."""
    result: Any = None
    """The result's structure: a `Slot` for each tensor."""
    is_finite: bool = True
    """True if all results were finite."""

    def filled(self, inputs: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call with these inputs."""
        return _filled(self.args, inputs), _filled(self.kwargs, inputs)

    @property
    def returns_flat(self) -> bool:
        """Return whether the result is a tensor, or a tuple or list of tensors."""
        many = type(self.result) in (tuple, list) and self.result
        return isinstance(self.result, Slot) or (
            bool(many) and all(isinstance(each, Slot) for each in self.result)
        )


def recorded(
    module: torch.nn.Module,
    init: tuple[tuple[Any, ...], Mapping[str, Any]] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    keeps_data: bool,
) -> Call:
    """Return a call before it is made.

    Raises:
        CaptureError: an input is of no kind that the harness has.
    """
    names: list[str] = []
    tensors: list[torch.Tensor] = []
    args, kwargs = _in_order(module, args, kwargs)
    parts = _parameter_names(module, len(args))
    taken = tuple(
        _without_tensors(each, name, tensors, names) for name, each in zip(parts, args, strict=True)
    )
    given = {key: _without_tensors(each, key, tensors, names) for key, each in kwargs.items()}
    if not tensors:
        raise CaptureError("its call has no tensor among the arguments; the harness needs one")
    inputs = [
        described(tensor, f"input {name}", keeps_data=keeps_data)
        for tensor, name in zip(tensors, names, strict=True)
    ]
    return Call(
        module,
        init,
        taken,
        given,
        names,
        inputs,
        module.training,
        _autocast(tensors[0].device.type),
    )


def key_of(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return what tells sets of shapes apart; quick, for it is asked at every call."""
    weights = tuple(sorted(shapes(module).items()))
    return _shape_of(args), _shape_of(dict(kwargs)), module.training, weights


def with_result(call: Call, result: Any) -> None:
    """Note what a call returned."""
    tensors: list[torch.Tensor] = []
    call.result = _without_tensors(result, "output", tensors, [], repeats=True)
    call.is_finite = all(
        bool(each.detach().isfinite().all()) for each in tensors if each.is_floating_point()
    )
    if not tensors:
        raise CaptureError("it returns no tensor; capture a module that does")


def _autocast(device: str) -> str | None:
    import torch

    if not torch.is_autocast_enabled(device):
        return None
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def _parameter_names(module: torch.nn.Module, count: int) -> list[str]:
    """Return the names of positional arguments of forward; of `*args` numbered ones."""
    found: list[str] = []
    try:
        parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
    except (TypeError, ValueError):
        parameters = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append(parameter.name)
    return [found[i] if i < len(found) else f"x{i}" for i in range(count)]


def _in_order(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call of tensors alone without names, where forward takes them in order."""
    import torch

    try:
        bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    except (TypeError, ValueError):
        return args, kwargs
    in_order = bound.args[1:]
    if bound.kwargs or not all(isinstance(each, torch.Tensor) for each in in_order):
        return args, kwargs
    return in_order, {}


def _without_tensors(
    value: Any, name: str, tensors: list[torch.Tensor], names: list[str], *, repeats: bool = False
) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        for index, seen in enumerate(tensors):
            if seen is value and not repeats:
                return Slot(index)
        tensors.append(value)
        names.append(_free(name, names))
        return Slot(len(tensors) - 1)
    if type(value) in (list, tuple):
        return type(value)(
            _without_tensors(each, f"{name}_{i}", tensors, names, repeats=repeats)
            for i, each in enumerate(value)
        )
    if type(value) is dict or repeats:
        inside = _inside(value)
        if inside is not None:
            return {
                key: _without_tensors(each, f"{name}_{key}", tensors, names, repeats=repeats)
                for key, each in inside.items()
            }
    return value


def _inside(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a dictionary or dataclass."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return vars(value)
    return None


def _free(name: str, names: list[str]) -> str:
    """Return a name for an input that is an identifier and no other input's."""
    plain = "".join(each if each.isalnum() else "_" for each in name)
    plain = plain if plain.isidentifier() else f"x_{plain}"
    if plain == "self" or plain in names:
        plain = f"{plain}_{len(names)}"
    return plain


def _filled(value: Any, inputs: list[Any]) -> Any:
    if isinstance(value, Slot):
        return inputs[value.index]
    if type(value) in (list, tuple):
        return type(value)(_filled(each, inputs) for each in value)
    if type(value) is dict:
        return {key: _filled(each, inputs) for key, each in value.items()}
    return value


def _shape_of(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape)
    if type(value) in (list, tuple):
        return tuple(_shape_of(each) for each in value)
    if type(value) is dict:
        return tuple((key, _shape_of(each)) for key, each in value.items())
    return repr(value)[:MAX_SHOWN] if is_literal(value) else type(value).__qualname__


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a nested result, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
        return
    parts = value if isinstance(value, list | tuple) else (_inside(value) or {}).values()
    for part in parts:
        yield from tensors_in(part)
