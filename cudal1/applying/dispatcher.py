"""Call a proven version in place of a module's `forward`, where it was proven, else the original.

The module itself stays in its place, with its weights, hooks and name. Its instance gets an
attribute `forward`, which is a bound method of a `Dispatcher`. So `state_dict`, `train`, `to` and
hooks do what they did.

A call costs a look-up by shape, type, device and mode. What is not known yet is decided once and
remembered. The first call of each kind runs both and compares them: weights and inputs of a
program are others than those of a proof.

Threat: a version is fast and wrong where nobody has looked. So whatever is not proven goes to the
original: gradients, autocast, compilers, keyword arguments, changed submodules, hooks on them.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, is_autocast_enabled, is_grad_enabled, nn
from torch.compiler import is_dynamo_compiling
from torch.nn.modules import module as of_modules

from cudal1.applying.matching import agree
from cudal1.errors import describe
from cudal1.kept import in_words
from cudal1.protocol import PrecisionClass

LIMITS = {PrecisionClass.STRICT: 1e-4, PrecisionClass.TF32: 1e-2, PrecisionClass.HALF: 2e-2}
"""Relative L2 distance within which the first call's two outputs agree. The proof's own check is
stricter; this one is against weights and inputs for which the version is another function."""
MAX_KINDS = 1024
"""Kinds of calls that a module remembers; with more, it decides anew."""
DTYPE = attrgetter("dtype")
UNSEEN: Any = object()
"""Stands for a kind of call that is not decided."""

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
        self._once = once
        self._original: Callable[..., Any] = type(module).forward.__get__(module)
        self._device_type = versions[0].device_type
        self._is_on_gpu = self._device_type == "cuda"
        self._memory: dict[Any, Callable[..., Any] | None] = {}
        """The version's call by the kind of call; None: the original."""
        self._weights: list[tuple[dict[str, Any], str, torch.dtype]] = []
        """Where each weight lies, its name there, and its type."""
        self._children: list[tuple[dict[str, Any], tuple[Any, ...]]] = []
        self._hooks: list[Any] = []
        self._is_given_up = False
        """True if no version may run: the module was changed before it was copied."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Dispatcher:
        """Return the copied module's dispatcher, which builds versions of its own when called."""
        copied = memo.get(id(self.module))
        if copied is None:
            return self
        made = Dispatcher(copied, self.versions, self._once)
        if not self._is_as_it_was():
            made._is_given_up = True
        return made

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled: versions are code of this process."""
        raise pickle.PicklingError(
            "a model with applied versions is not pickled: call cudal1.unapply(model) first, or "
            "save its state_dict()"
        )

    def call(self, *args: Any, **named: Any) -> Any:
        """Return what the module returns. It stands in the module as `forward`."""
        if (
            named
            or is_dynamo_compiling()
            or is_autocast_enabled(self._device_type)
            or (is_grad_enabled() and self._needs_gradients(args))
        ):
            return self._elsewhere(args, named)
        if len(args) == 1 and type(args[0]) is Tensor:
            (x,) = args
            kind = x.shape, x.dtype, x.get_device(), x.is_contiguous(), self.module.training
        else:
            kind = self._kind(args)
        run = self._memory.get(kind, UNSEEN)
        if run is None:
            return self._original(*args)
        if run is UNSEEN:
            return self._first(kind, args)
        if not self._is_as_it_was() or (self._is_on_gpu and self._is_beside(args)):
            return self._original(*args)
        try:
            return run(*args)
        except Exception as error:  # noqa: BLE001 -- whatever the version raises, the original may not
            return self._failed(kind, args, error)

    # --- what goes to the original ----------------------------------------------------------------

    def _needs_gradients(self, args: tuple[Any, ...]) -> bool:
        for arg in args:
            if isinstance(arg, Tensor) and arg.requires_grad:
                return True
        return any(weight.requires_grad for weight in self.module.parameters())

    def _elsewhere(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if not is_dynamo_compiling():
            if named:
                self._say("keywords", "a call has keyword arguments, and none were proven")
            elif is_autocast_enabled(self._device_type):
                self._say("autocast", "autocast is on, and was not proven")
            else:
                self._say(
                    "gradients", "gradients are wanted, and none were proven; use torch.no_grad()"
                )
        return self._original(*args, **named)

    def _is_as_it_was(self) -> bool:
        """Return whether submodules, their hooks and the weights' types are as they were."""
        for weights, name, dtype in self._weights:
            weight = weights.get(name)
            if weight is None or weight.dtype is not dtype:
                self._say("types", "a weight's type was changed after apply")
                return False
        if any(self._hooks):
            self._say("hooks", "a submodule has hooks, which a version would not call")
            return False
        for names, children in self._children:
            if tuple(names.values()) != children:
                self._say("children", "a submodule was replaced after apply; apply again")
                return False
        return True

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

    def remember(self) -> None:
        """Note the submodules and weights that a version replaces, as they are."""
        for module in self.module.modules():
            for weights in (module._parameters, module._buffers):
                self._weights += [
                    (weights, name, tensor.dtype)
                    for name, tensor in weights.items()
                    if tensor is not None
                ]
            if module._modules:
                self._children.append((module._modules, tuple(module._modules.values())))
            if module is not self.module:
                self._hooks += [module._forward_pre_hooks, module._forward_hooks]
        if self._hooks:  # hooks of all modules are called for submodules, too
            self._hooks += [of_modules._global_forward_pre_hooks, of_modules._global_forward_hooks]

    # --- what is decided once ---------------------------------------------------------------------

    def _kind(self, args: tuple[Any, ...]) -> Any:
        """Return what a decision depends on, as a key."""
        parts: list[Any] = [self.module.training]
        for arg in args:
            if type(arg) is Tensor:
                parts.append((arg.shape, arg.dtype, arg.get_device(), arg.is_contiguous()))
            elif isinstance(arg, bool | int | float | str | None):
                parts.append((type(arg), arg))
            else:
                return None  # such calls are decided as one, for the original
        return tuple(parts)

    def _first(self, kind: Any, args: tuple[Any, ...]) -> Any:
        """Decide on a kind of call, by a call of both; return the original's output."""
        if len(self._memory) >= MAX_KINDS:
            self._memory.clear()
        self._memory[kind] = None
        if not self._weights and not self._children:
            self.remember()  # a copy's module is whole only after it was copied
        version = None if kind is None or self._is_given_up else self._proven_for(args)
        expected = self._original(*args)
        if version is None or not self._is_as_it_was():
            return expected
        try:
            module = version.built(self.module)
            # its own `__call__` only where that does more than `forward`
            is_plain = type(module).__call__ is nn.Module.__call__ and not _has_hooks(module)
            run = module.forward if is_plain else module
            given = run(*args)
        except Exception as error:  # noqa: BLE001 -- it is a version's
            self._say(f"raised {version.path}", f"{version.path}: {describe(error)}")
            return expected
        if agree(given, expected, limit=LIMITS[version.precision]):
            self._memory[kind] = run
        else:
            said = f"{version.path}: its first output differs from the original's"
            self._say(f"differs {version.path}", said)
        return expected

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

    def _failed(self, kind: Any, args: tuple[Any, ...], error: Exception) -> Any:
        """Give a kind of call back to the original, after the version raised."""
        self._memory[kind] = None
        self._say(f"raised {kind}", f"the version raised ({describe(error)})")
        return self._original(*args)

    def _say(self, key: str, line: str) -> None:
        name = type(self.module).__qualname__
        self._once.say(f"{name} {key}", f"{name}: the original runs: {line}")
