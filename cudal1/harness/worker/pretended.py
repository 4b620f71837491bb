"""Pretend that there is a GPU, for sources that compile only where they find one.

A published release has 78 modules that name `cpp_extension`. Of these, 19 compile when they are
imported, and 13 more when they are constructed on a CPU. Another 42 compile only for a GPU: behind
`is_available()`, after a tensor was moved, or in the first call. So PyTorch is made to say that
there is a GPU. Tensors are PyTorch's fake ones, which know shape, type and device and have no
memory. What needs more, such as a kernel that is to run, fails, and has been compiled by then.

Threat: as in `shim`; nothing but compilers' files comes of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

ARCH = "TORCH_CUDA_ARCH_LIST"
"""Name of the variable that says what is compiled for, such as 9.0+PTX."""
GPU = torch.device("cuda:0")


@contextmanager
def a_gpu() -> Iterator[None]:
    """Make all code inside find a GPU, and tensors that need no memory."""
    from torch._subclasses import fake_tensor

    class WithoutADriver(fake_tensor.FakeTensorMode):
        """A mode of fake tensors that asks for no driver, whatever PyTorch says of it."""

        @property
        def avoid_device_init(self) -> bool:
            return True

    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: GPU.index,
        "get_device_capability": lambda *_, **__: _capability(),
        "synchronize": lambda *_, **__: None,
        "empty_cache": lambda: None,
        "current_stream": lambda *_: SimpleNamespace(cuda_stream=0),
        "device": lambda *_: nullcontext(),
        "device_of": lambda *_: nullcontext(),
    }
    with ExitStack() as within:
        for name, answer in answers.items():
            within.enter_context(patch.object(torch.cuda, name, answer))
        # the original would make a context on the GPU
        within.enter_context(
            patch.object(fake_tensor, "init_gpu_context", lambda *_: None, create=True)
        )
        within.enter_context(patch.object(torch.backends.cudnn, "is_acceptable", lambda *_: False))
        within.enter_context(patch.object(torch.nn.Module, "_apply", _applied))
        within.enter_context(torch.no_grad())  # autograd asks each device for a stream
        within.enter_context(WithoutADriver(allow_non_fake_inputs=True))
        within.enter_context(_Moves())
        yield


def _capability() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.environ.get(ARCH, ""))
    return (int(found[1]), int(found[2])) if found else (0, 0)


class _Moves(TorchFunctionMode):
    """A mode that moves tensors to the GPU: PyTorch's own functions would ask its driver first."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return _copied(args[0], args[0].dtype)
        if func is torch.Tensor.to:
            device, dtype = _wanted(args[1:], kwargs)
            if device is not None and device.type == GPU.type:
                return _copied(args[0], dtype or args[0].dtype)
        return func(*args, **kwargs)


def _wanted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the device and type that `Tensor.to` is asked for; None leaves one unchanged."""
    other = kwargs.get("other", args[0] if args else None)
    if isinstance(other, torch.Tensor):
        return other.device, other.dtype
    device = dtype = None
    for each in (*args, kwargs.get("device"), kwargs.get("dtype")):
        if isinstance(each, torch.dtype):
            dtype = each
        elif isinstance(each, str | torch.device):
            device = torch.device(each)
        elif isinstance(each, int) and not isinstance(each, bool):
            device = GPU
    return device, dtype


def _copied(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.ops.aten._to_copy.default(tensor, device=GPU, dtype=dtype)


def _applied(
    module: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> torch.nn.Module:
    """Replace a module's tensors, in the place of `Module._apply`, which swaps fake tensors."""
    for child in module.children() if recurse else ():
        child._apply(function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            moved = function(parameter)
            module._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module
