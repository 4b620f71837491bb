"""Recognise calls that were decided, in as few steps as Python allows.

A call through `apply` may cost a microsecond. So the check of a kind of call is one function,
written out for its arguments, weights and submodules: a loop over three weights takes longer than
all of it. PyTorch's own guard compares tensors in C++: class, shape, strides, type, device, whether
they want gradients, and the dispatcher's state, which autocast and other modes change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, is_grad_enabled, nn
from torch._C._dynamo.guards import TensorGuards
from torch.nn.modules import module as of_modules

Names = dict[str, Any]


class Structure:
    """The weights and submodules of a module, as a version replaces them.

    Args:
        module: the module.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.weights: list[tuple[Names, str]] = []
        """Each weight's dictionary, and its name there."""
        self.children: list[tuple[Names, str, nn.Module]] = []
        """Each submodule's dictionary, its name there, and the submodule."""
        self.hooks: list[Any] = []
        """Hooks that the original would call within."""
        for each in module.modules():
            for weights in (each._parameters, each._buffers):
                self.weights += [(weights, name) for name, tensor in weights.items() if _is(tensor)]
            inside: Names = each._modules
            self.children += [(inside, name, child) for name, child in inside.items() if child]
            if each is not module:
                self.hooks += [each._forward_pre_hooks, each._forward_hooks]
        if self.children:  # hooks of all modules are called for submodules, too
            self.hooks += [of_modules._global_forward_pre_hooks, of_modules._global_forward_hooks]

    def fault(self) -> str | None:
        """Return why the module is not as it was at `apply`; None: it is."""
        if any(self.hooks):
            return "a submodule has hooks, which a version would not call"
        if any(inside.get(name) is not child for inside, name, child in self.children):
            return "a submodule was replaced after apply; apply again"
        if any(not _is(inside.get(name)) for inside, name in self.weights):
            return "a weight was taken out after apply"
        return None


def guard(args: Sequence[Any], structure: Structure) -> Callable[..., bool] | None:
    """Return a function that recognises calls like this one; None if none can.

    It takes the arguments of a call, and may raise where they are of another number or kind.
    """
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    tensors += [inside[name] for inside, name in structure.weights]
    # torch declares a list of sizes; its own callers give a list of lists
    guards = TensorGuards(
        *tensors,
        dynamic_dims_sizes=[list(each.shape) for each in tensors],  # type: ignore[arg-type]
        dynamic_dims_strides=[list(each.stride()) for each in tensors],  # type: ignore[arg-type]
    )
    if not guards.check(*tensors):  # the same tensor twice
        return None
    known: Names = {
        "check": guards.check,
        "module": structure.module,
        "is_grad_enabled": is_grad_enabled,
    }

    def name_of(value: Any) -> str:
        name = f"v{len(known)}"
        known[name] = value
        return name

    asked = [f"a{place}" for place in range(len(args))]
    shown = [a for a, arg in zip(asked, args, strict=True) if isinstance(arg, Tensor)]
    shown += [f"{name_of(inside)}[{name!r}]" for inside, name in structure.weights]
    tests = [f"module.training is {structure.module.training}", f"check({', '.join(shown)})"]
    tests += [
        f"type({a}) is {name_of(type(arg))} and {a} == {name_of(arg)}"
        for a, arg in zip(asked, args, strict=True)
        if not isinstance(arg, Tensor)
    ]
    tests += [
        f"{name_of(inside)}[{name!r}] is {name_of(child)}"
        for inside, name, child in structure.children
    ]
    if structure.hooks:
        tests.append(f"not ({' or '.join(name_of(hooks) for hooks in structure.hooks)})")
    if any(each.requires_grad for each in tensors):
        tests.append("not is_grad_enabled()")
    # no text of a program or a version gets in but names of attributes, as literals
    exec(f"def alike({', '.join(asked)}):\n    return {' and '.join(tests)}\n", known)
    alike: Callable[..., bool] = known["alike"]
    return alike


def _is(value: object) -> bool:
    return value is not None
