"""Write a Python value as an expression: constructor arguments, and arguments that are no tensors.

Plain values are literals. Configurations of transformers, dataclasses, namespaces, enumerations,
classes, functions and small modules become calls or names; their imports are asked of a callback.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import math
import sys
import types
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cudal1.capturing.refusal import CaptureError

if TYPE_CHECKING:
    import torch

Name = Callable[[Any], str]
"""A callback that returns the name of a class or function in the problem file, and has it
imported or written there.

Raises:
    CaptureError: it has no name that a file could use.
"""
HOMES = ("torch", "torch.nn.functional", "torch.nn", "math", "operator", "builtins")
"""Modules in which a function without a module of its own is looked for."""
UNSAID = ("transformers_version", "model_type", "architectures", "_name_or_path", "dtype")
"""Entries of a configuration that say nothing of what is computed."""


def is_literal(value: object) -> bool:
    """Return whether a value's `repr` is a literal that equals it."""
    if isinstance(value, tuple | list):
        return type(value) in (tuple, list) and all(map(is_literal, value))
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_literal, (*value, *value.values())))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def written(value: Any, where: str, name: Name) -> str:
    """Return an expression for a value.

    Args:
        value: an argument.
        where: its name in errors.
        name: see `Name`.

    Raises:
        CaptureError: there is no such expression.
    """
    import torch

    if is_literal(value):
        return repr(value)
    write = functools.partial(written, where=where, name=name)
    match value:
        case float():
            return f'float("{value}")'
        case enum.Enum():
            return f"{name(type(value))}.{value.name}"
        case torch.dtype():
            return str(value)
        case torch.Size():
            return repr(tuple(value))
        case torch.device():
            return _device(value, where)
        case torch.nn.Module():
            return _module(value, where, name)
        case list() | tuple() if type(value) in (list, tuple):
            inside = ", ".join(map(write, value))
            comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{comma})"
        case set() | frozenset():
            return f"{type(value).__name__}([{', '.join(map(write, sorted(value, key=repr)))}])"
        case dict() if type(value) in (dict, OrderedDict):
            return f"{{{', '.join(f'{write(key)}: {write(v)}' for key, v in value.items())}}}"
        case functools.partial():
            given = [write(value.func), *map(write, value.args)]
            given += [f"{key}={write(each)}" for key, each in value.keywords.items()]
            return f"{name(functools.partial)}({', '.join(given)})"
        case types.SimpleNamespace() | Namespace():
            return f"{name(types.SimpleNamespace)}({_keywords(vars(value), write)})"
        case type() | types.FunctionType():
            return name(value)
        case types.BuiltinFunctionType() | types.MethodDescriptorType():
            return _builtin(value, where, name)
        case _:
            return _record(value, where, name)


def _keywords(given: Mapping[str, Any], write: Callable[[Any], str]) -> str:
    if all(key.isidentifier() for key in given):
        return ", ".join(f"{key}={write(each)}" for key, each in given.items())
    return "**{" + ", ".join(f"{key!r}: {write(each)}" for key, each in given.items()) + "}"


def _device(value: torch.device, where: str) -> str:
    if value.type == "cpu":
        return repr("cpu")
    raise CaptureError(
        f"{where} names the device {value}; leave it out and move the module with .to({value.type})"
    )


def _builtin(value: Any, where: str, name: Name) -> str:
    for home in HOMES:
        found = getattr(value, "__name__", "")
        if getattr(sys.modules.get(home), found, None) is value:
            return (
                found
                if home == "builtins"
                else f"{home}.{found}"
                if _is_torch(home)
                else name(value)
            )
    raise CaptureError(f"{where} is {value!r}, which no name leads to; pass a function of a module")


def _is_torch(home: str) -> bool:
    return home.partition(".")[0] == "torch"


def _record(value: Any, where: str, name: Name) -> str:
    """Return the call that makes a configuration or a dataclass."""
    kind = type(value)
    write = functools.partial(written, where=where, name=name)
    if hasattr(value, "to_diff_dict") and hasattr(kind, "from_dict"):  # transformers
        said = {key: each for key, each in value.to_diff_dict().items() if key not in UNSAID}
        for chosen in ("attn_implementation", "experts_implementation"):
            if isinstance(getattr(value, f"_{chosen}", None), str):
                said[chosen] = getattr(value, f"_{chosen}")
        return f"{name(kind)}({_keywords(said, write)})"
    if dataclasses.is_dataclass(value):
        fields = [each.name for each in dataclasses.fields(value) if each.init]
        return f"{name(kind)}({_keywords({f: getattr(value, f) for f in fields}, write)})"
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return f"{name(kind)}({', '.join(map(write, value))})"
    raise CaptureError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, which cannot be written down; a "
        "number, text, container, dtype, class, function, dataclass or transformers configuration "
        "can"
    )


def _module(value: torch.nn.Module, where: str, name: Name) -> str:
    """Return the call that makes a module like one that was passed to a constructor."""
    try:
        given = recovered(value)
        text = ", ".join(f"{key}={written(v, where, name)}" for key, v in given.items())
        alike = type(value)(**given)
    except Exception as error:  # the user's own constructor may raise anything
        raise CaptureError(
            f"{where} is a module, {type(value).__name__}; its own arguments are not known: "
            "capture the part inside it, or give the module as a class and its arguments"
        ) from error
    if shapes(alike) != shapes(value):
        raise CaptureError(f"{where} is a module, {type(value).__name__}, that cannot be made anew")
    return f"{name(type(value))}({text})"


def shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a module's weights and buffers by name."""
    return {
        key: tuple(each.shape)
        for key, each in module.state_dict().items()
        if hasattr(each, "shape")
    }


def recovered(module: torch.nn.Module) -> dict[str, Any]:
    """Return the constructor's arguments that a module keeps under the same names.

    Raises:
        CaptureError: an argument without a default is not kept.
    """
    import torch

    found: dict[str, Any] = {}
    for parameter in list(inspect.signature(type(module).__init__).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise CaptureError(f"it takes *{parameter.name}")
            continue
        missing = parameter.default is parameter.empty
        kept = getattr(module, parameter.name, parameter.empty)
        if kept is parameter.empty or isinstance(kept, types.MethodType):
            if missing:
                raise CaptureError(f"it does not keep its argument {parameter.name}")
            continue
        if isinstance(parameter.default, bool) and not isinstance(kept, bool):
            kept = kept is not None  # the weight that the argument asked for
        elif isinstance(kept, torch.Tensor):
            if missing:
                raise CaptureError(f"it does not keep its argument {parameter.name}")
            continue
        found[parameter.name] = kept
    return found
