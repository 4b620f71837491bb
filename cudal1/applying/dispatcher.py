"""Call a proven version in place of a module's `forward`, where it was proven, else the original.

The module itself stays in its place, with its weights, hooks and name. Its instance gets an
attribute `forward`, which is a bound method of a `Dispatcher`. So `state_dict`, `train`, `to` and
hooks do what they did.

A call costs one check in C++: the guard that `torch.compile` puts before its own programs compares
class, shape, strides, type, device, autocast and gradients of inputs and weights with those of a
call that was decided. What is not known yet is decided once. The first call of each kind runs both
and compares them: weights and inputs of a program are others than those of a proof.

Threat: a version is fast and wrong where no proof has looked. So whatever is not proven goes to the
original: gradients, autocast, compilers, keyword arguments, changed submodules, hooks on them.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, is_autocast_enabled, is_grad_enabled, nn
from torch._C import _functorch  # type: ignore[attr-defined] -- torch declares no types of it
from torch.compiler import is_dynamo_compiling

from cudal1.applying.guards import Structure, guard
from cudal1.applying.matching import agree
from cudal1.errors import describe
from cudal1.kept import in_words
from cudal1.protocol import PrecisionClass

LIMITS = {PrecisionClass.STRICT: 1e-4, PrecisionClass.TF32: 1e-2, PrecisionClass.HALF: 2e-2}
"""Relative L2 distance within which the first call's two outputs agree. The proof's own check is
stricter; this one is against weights and inputs for which the version is another function."""
MAX_KINDS = 1024
"""Kinds of calls for the original that a module remembers; with more, it decides anew."""

log = logging.getLogger("cudal1.apply")


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_pre_hooks or module._forward_hooks)


def _weights_of(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _device_kind(tensor: Tensor) -> str:
    """Return the kind of a tensor's device, as verdicts name it."""
    if tensor.device.type == "cuda":
        return torch.cuda.get_device_name(tensor.device)
    return tensor.device.type


class Version(Protocol):
    """A proven version of one class, for the shapes and modes of one proof."""

    path: Path
    """Its file, for messages."""
    inputs: tuple[str, ...]
    """The arguments of a call, as `kept.in_words` has them."""
    device_type: str
    """`cpu` or `cuda`."""
    device_kind: str
    training: bool
    precision: PrecisionClass

    def built(self, live: nn.Module) -> nn.Module:
        """Return it as a module that computes with a live module's weights.

        Raises:
            SuiteError: it cannot replace this module; the message says why.
        """
        ...


class Once:
    """Lines of the log, each written once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, key: str, line: str) -> None:
        """Write a line to the log, unless one of this key was written."""
        if key not in self._said:
            self._said.add(key)
            log.warning("%s", line)


@dataclass
class Kind:
    """Calls that were decided for a version."""

    alike: Callable[..., bool]
    """Returns whether a call is of this kind (`guards`)."""
    run: Callable[..., Any]
    """The version's call."""


class Dispatcher:
    """Calls one module's version or its original.

    Args:
        module: the live module.
        versions: proven for its class; each fits this module.
        once: the log.
    """

    def __init__(self, module: nn.Module, versions: tuple[Version, ...], once: Once) -> None:
        self.module = module
        self.versions = versions
        self.kinds: list[Kind] = []
        """Calls for which versions are in use."""
        self._once = once
        self._original: Callable[..., Any] = type(module).forward.__get__(module)
        self._device_type = versions[0].device_type
        self._is_on_gpu = self._device_type == "cuda"
        self._others: set[Any] = set()
        """Kinds of calls for the original."""
        self._structure: Structure | None = None
        self._is_given_up = False
        """True if no version may run: the module was changed before it was copied."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Dispatcher:
        """Return the copied module's dispatcher, which builds versions of its own when called."""
        copied = memo.get(id(self.module))
        if copied is None:
            return self
        made = Dispatcher(copied, self.versions, self._once)
        made._is_given_up = self._structure is not None and self._structure.fault() is not None
        return made

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled: versions are code of this process."""
        raise pickle.PicklingError(
            "a model with applied versions is not pickled: call cudal1.unapply(model) first, or "
            "save its state_dict()"
        )

    def call(self, *args: Any, **named: Any) -> Any:
        """Return what the module returns. It stands in the module as `forward`."""
        if is_dynamo_compiling() or named:
            return self._elsewhere(args, named)
        for kind in self.kinds:
            try:
                is_alike = kind.alike(*args)
            except Exception:  # noqa: BLE001 -- the guard raises at arguments of another kind
                continue
            if is_alike and not (self._is_on_gpu and self._is_beside(args)):
                try:
                    return kind.run(*args)
                except Exception as error:  # noqa: BLE001 -- a version may raise anything
                    return self._failed(kind, args, error)
        return self._undecided(args)

    # --- what goes to the original ----------------------------------------------------------------

    def _elsewhere(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if not is_dynamo_compiling():
            self._say("keywords", "a call has keyword arguments, and none were proven")
        return self._original(*args, **named)

    def _is_beside(self, args: tuple[Any, ...]) -> bool:
        """Return whether the work would not go to the first stream of the current GPU.

        A version may launch its kernels there whatever the current stream is: it was proven so.
        """
        devices = {arg.get_device() for arg in args if isinstance(arg, Tensor)}
        is_first = torch.cuda.current_stream() == torch.cuda.default_stream()
        if is_first and devices <= {torch.cuda.current_device()}:
            return False
        self._say("stream", "the call is not on the first stream of the current GPU")
        return True

    def remember(self) -> Structure:
        """Note the submodules and weights that a version replaces, as they are."""
        self._structure = Structure(self.module)
        return self._structure

    # --- what is decided once ---------------------------------------------------------------------

    def _undecided(self, args: tuple[Any, ...]) -> Any:
        """Run the original; where a version was proven, run it beside, for later calls."""
        if self._why_not_here(args):
            return self._original(*args)
        key = self._key(args)
        if key is None or key in self._others:
            return self._original(*args)
        # a copy's module is whole only after it was copied
        structure = self._structure or self.remember()
        if said := structure.fault():
            self._say(said, said)
            return self._original(*args)
        version = None if self._is_given_up else self._proven_for(args)
        expected = self._original(*args)
        if version is None or not self._is_decided(version, args, expected, structure):
            if len(self._others) >= MAX_KINDS:
                self._others.clear()
            self._others.add(key)
        return expected

    def _why_not_here(self, args: tuple[Any, ...]) -> bool:
        """Return whether nothing was proven in such surroundings, whatever the arguments are."""
        if is_autocast_enabled(self._device_type):
            self._say("autocast", "autocast is on, and was not proven")
        elif is_grad_enabled() and self._needs_gradients(args):
            self._say("gradients", "gradients are wanted; use torch.no_grad() where they are not")
        elif _functorch.peek_interpreter_stack() is not None:
            self._say("transform", "it is called by a transform of torch.func")
        elif torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
            self._say("modes", "another tool looks at each operation")
        else:
            return False
        return True

    def _needs_gradients(self, args: tuple[Any, ...]) -> bool:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        return any(tensor.requires_grad for tensor in (*tensors, *self.module.parameters()))

    def _key(self, args: tuple[Any, ...]) -> Any:
        """Return what a decision depends on; None for arguments of which none was proven."""
        parts: list[Any] = [self.module.training, torch.is_inference_mode_enabled()]
        for arg in args:
            if type(arg) is Tensor and arg.layout is torch.strided:
                parts.append((arg.shape, arg.dtype, arg.device, arg.stride()))
            elif isinstance(arg, bool | int | float | str | None):
                parts.append((type(arg), arg))
            else:
                self._say("arguments", f"an argument is a {type(arg).__name__}: none was proven")
                return None
        parts += [(each.dtype, each.device) for each in _weights_of(self.module)]
        return tuple(parts)

    def _is_decided(
        self, version: Version, args: tuple[Any, ...], expected: Any, structure: Structure
    ) -> bool:
        """Return whether a version computes the same as the original; it is then in use."""
        try:
            module = version.built(self.module)
            # its own `__call__` only where that does more than `forward`
            is_plain = type(module).__call__ is nn.Module.__call__ and not _has_hooks(module)
            run = module.forward if is_plain else module
            given = run(*args)
        except Exception as error:  # noqa: BLE001 -- a version may raise anything
            self._say(f"raised {version.path}", f"{version.path}: {describe(error)}")
            return False
        if not agree(given, expected, limit=LIMITS[version.precision]):
            said = f"{version.path}: its first output differs from the original's"
            self._say(f"differs {version.path}", said)
            return False
        alike = guard(args, structure)
        if alike is None:
            self._say("twice", "a tensor is given, or held, twice, and no such call was proven")
            return False
        self.kinds.append(Kind(alike, run))
        return True

    def _proven_for(self, args: tuple[Any, ...]) -> Version | None:
        """Return a version that was proven for such a call; else say why there is none."""
        words = in_words(args)
        alike = [version for version in self.versions if version.inputs == words]
        if not alike:
            known = " or ".join(sorted({", ".join(each.inputs) for each in self.versions}))
            self._say("inputs", f"called with {', '.join(words)}; proven for {known}")
            return None
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        if not all(tensor.is_contiguous() for tensor in tensors):
            self._say("strides", "an input is not contiguous, and none such was proven")
            return None
        here = {_device_kind(tensor) for tensor in (*tensors, *_weights_of(self.module))}
        alike = [version for version in alike if here <= {version.device_kind}]
        if not alike:
            self._say("device", f"runs on {', '.join(sorted(here))}, where nothing was proven")
            return None
        alike = [version for version in alike if version.training is self.module.training]
        if not alike:
            mode = "training" if self.module.training else "evaluation"
            self._say("mode", f"runs in {mode} mode, in which nothing was proven")
            return None
        if self.module.training and any(True for _ in self.module.buffers()):
            self._say("buffers", "it may change its buffers in training mode: nothing proves those")
            return None
        return alike[0]

    def _failed(self, kind: Kind, args: tuple[Any, ...], error: Exception) -> Any:
        """Give a kind of call back to the original, after the version raised."""
        self.kinds.remove(kind)
        key = self._key(args)
        if key is not None:
            self._others.add(key)
        self._say(f"raised {key}", f"the version raised ({describe(error)})")
        return self._original(*args)

    def _say(self, key: str, line: str) -> None:
        name = type(self.module).__qualname__
        self._once.say(f"{name} {key}", f"{name}: the original runs: {line}")
