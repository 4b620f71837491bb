"""Interfere with a reference's operators, below Python: round them, or leave one out."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from cudal1.harness.oracle.parts import flat_parts
from cudal1.protocol import PrecisionClass

TF32_DROPPED_BITS = 13
HALF_UNIT = {
    PrecisionClass.STRICT: 2.0**-24,
    PrecisionClass.TF32: 2.0**-11,
    PrecisionClass.HALF: 2.0**-9,
}
"""Largest relative error of a number that is rounded as a class allows: to float32, TF32,
bfloat16."""
ADDING = {PrecisionClass.STRICT: 4.0, PrecisionClass.TF32: 1.0, PrecisionClass.HALF: 1.0}
"""Rounding errors, for each operand of an operator that adds up. In the looser classes operands are
rounded and sums are float32. In `strict` the sums round: of n numbers added one by one they make
about as much as an error of sqrt(n) / 2 for each operand."""
FIRST_SEED = 2_718_281_828
"""Seed of the first chance, far from seeds that people choose: inputs or weights of the same seed
would be like its noise."""
SINGLE = {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded}
"""Tags of operators that round each result once, or that a second call would not repeat."""


def to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Round a tensor to the ten bits behind the point that a TF32 operand has; in its own dtype."""
    words = tensor.float().view(torch.int32)
    rounded = words + (1 << (TF32_DROPPED_BITS - 1)) & -(1 << TF32_DROPPED_BITS)
    return torch.where(tensor.isfinite(), rounded.view(torch.float32).to(tensor.dtype), tensor)


def to_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Round a tensor to float32; in its own dtype."""
    return tensor.float().to(tensor.dtype)


def to_half(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that converts a tensor to a half type and back."""
    return lambda tensor: tensor.to(dtype).to(tensor.dtype)


def rounding(precision: PrecisionClass) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return the rounding that a class allows of operands and results; None: none."""
    return {
        PrecisionClass.STRICT: None,
        PrecisionClass.TF32: to_tf32,
        PrecisionClass.HALF: to_half(torch.bfloat16),
    }[precision]


def narrowest(precision: PrecisionClass) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return the conversion through the type of the smallest range in a class; None: no conversion.

    Operators may use that type.
    """
    return to_half(torch.float16) if precision is PrecisionClass.HALF else None


class _Interfering(TorchDispatchMode):
    """A mode that PyTorch's compiler does not compile.

    PyTorch would import its compiler for that, at the first operator: more than a second of
    processor time in each process. Where nothing has imported it, nothing compiles.
    """

    def __init__(self) -> None:
        super().__init__()
        self._uncompiled: Callable[..., Any] | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # `__torch_dispatch__` skips it

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
        if disable is None:
            return self.interfere(func, args, kwargs or {})
        interfere = self._uncompiled = self._uncompiled or disable(self.interfere, wrapping=False)
        return interfere(func, args, kwargs or {})

    @abstractmethod
    def interfere(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of an operator, interfered with."""


class Rounding(_Interfering):
    """A mode in which operators take and give rounded float32 (or wider) numbers.

    Kernels in lower precision that add up in float32 do the same. Real half kernels are not used:
    CPUs lack some of them, and views and in-place operators need their own tensors.
    """

    def __init__(self, rounded: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._rounded = rounded

    def interfere(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the rounded result on rounded operands; a view is only passed on."""
        if _is_view(func):
            return func(*args, **kwargs)
        if func._schema.is_mutable:  # its first argument must stay the same tensor
            result = func(args[0], *tree_map(self._round, list(args[1:])), **kwargs)
            for tensor in _tensors(result):
                tensor.copy_(self._round(tensor))
            return result
        result = func(*tree_map(self._round, list(args)), **tree_map(self._round, dict(kwargs)))
        return tree_map(self._round, result)

    def _round(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return self._rounded(value)


class Shaking(_Interfering):
    """A mode in which a model in a wide type rounds as programs of a narrower one may, by chance.

    This is Monte Carlo arithmetic (Parker, UCLA CSD-970002, 1997). Each result is rounded up or
    down by chance. An operator that adds up rounds many times within: its operands are shaken by as
    much as they may be rounded. A number that needs no rounding stays as it is, so that whole
    numbers, ties and zeros do.

    Args:
        rounded: rounds to the narrower type; None: to float32.
        half_unit: largest relative error of such a rounding.
        adding: such errors for each operand of an operator that adds up.
        keeps_results: whether results stay wide, as sums do that a program goes on with in float32.
            Where results are rounded, they may hide what operands' rounding did: a small difference
            is mostly lost.
        wide: the model's own type; numbers of others are left alone.
        seed: of the chance; PyTorch's own generators stay as they are.
    """

    def __init__(
        self,
        rounded: Callable[[torch.Tensor], torch.Tensor] | None,
        half_unit: float,
        *,
        adding: float,
        wide: torch.dtype,
        seed: int,
        keeps_results: bool = False,
    ) -> None:
        super().__init__()
        self._rounded = rounded or to_float32
        self._wide = wide
        self._half_unit = half_unit
        self._operand_error = adding * half_unit
        self._keeps_results = keeps_results
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def interfere(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result, rounded by chance; a view is only passed on."""
        result = func(*args, **kwargs)
        if _is_view(func):
            return result
        if func._schema.is_mutable:
            for tensor in _tensors(result):
                tensor.copy_(self._round(tensor, tensor))
            return result
        if SINGLE & set(func.tags):
            return tree_map(lambda value: self._round(value, value), result)
        shake = partial(self._shake, error=self._operand_error)
        shaken = func(*tree_map(shake, list(args)), **tree_map(shake, dict(kwargs)))
        return tree_map(self._round, result, shaken)

    def _round(self, exact: Any, shaken: Any) -> Any:
        """Return a shaken result, rounded by chance, where the exact result needs rounding."""
        if not self._is_wide(exact):
            return exact
        result = torch.empty_like(exact, memory_format=torch.contiguous_format)
        for ours, right, off in flat_parts(result, exact, shaken):
            nearest = self._rounded(right)
            by_chance = off
            if not self._keeps_results:
                by_chance = self._rounded(off * self._noise(off, self._half_unit))
            is_rounded = (nearest != right) & nearest.isfinite() & by_chance.isfinite()
            ours.copy_(torch.where(is_rounded, by_chance, right))
        return _laid_out_as(exact, result)

    def _shake(self, value: Any, *, error: float) -> Any:
        """Return a tensor's values, off by at most a relative error."""
        if not self._is_wide(value):
            return value
        result = torch.empty_like(value, memory_format=torch.contiguous_format)
        for ours, mine in flat_parts(result, value):
            torch.mul(mine, self._noise(mine, error), out=ours)
        return _laid_out_as(value, result)

    def _is_wide(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype is self._wide

    def _noise(self, like: torch.Tensor, error: float) -> torch.Tensor:
        """Return factors for a tensor's values, off from 1 by at most an error."""
        generator = self._generators.get(like.device)
        if generator is None:
            generator = torch.Generator(like.device).manual_seed(FIRST_SEED + self._seed)
            self._generators[like.device] = generator
        return torch.empty_like(like).uniform_(-error, error, generator=generator).add_(1.0)


class Watching(_Interfering):
    """A mode that only notes the types of numbers, except integers, that operators take or give."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def interfere(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the operator's result as it is."""
        result = func(*args, **kwargs)
        dtypes = {tensor.dtype for tensor in _tensors([args, kwargs, result])}
        self.dtypes |= {each for each in dtypes if each.is_floating_point or each.is_complex}
        return result


class Dropping(_Interfering):
    """A mode in which one operator, by its number, only returns an input of the same kind.

    Without a number no operator is left out. `droppable` has the numbers of the operators with a
    result like one of their inputs, except those that only copy or view it.
    """

    def __init__(self, number: int | None = None) -> None:
        super().__init__()
        self.droppable: list[int] = []
        self._number = number
        self._count = 0

    def interfere(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result, or instead of it an input where the operator is the one to drop."""
        number, self._count = self._count, self._count + 1
        given = _tensors((args, kwargs))
        changes = func._schema.is_mutable and bool(given)
        before = given[0].clone() if changes and number == self._number else None
        result = func(*args, **kwargs)
        several = isinstance(result, tuple | list)
        first: Any = result[0] if several and result else result
        if not isinstance(first, torch.Tensor):
            return result
        alike = [t for t in given if t.shape == first.shape and t.dtype == first.dtype]
        if not alike:
            return result
        if changes or not _is_copy(func, alike[0], first):
            self.droppable.append(number)
        if number != self._number:
            return result
        if before is not None:
            return first.copy_(before)
        return [alike[0], *result[1:]] if several else alike[0]


def _laid_out_as(like: torch.Tensor, contiguous: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the strides of another one, on which a reference's views may depend."""
    return contiguous if like.is_contiguous() else torch.empty_like(like).copy_(contiguous)


def _is_view(func: Any) -> bool:
    """Return whether the result shares memory with an argument that is not written to."""
    infos = [value.alias_info for value in func._schema.returns]
    return any(info is not None and not info.is_write for info in infos)


def _is_copy(func: Any, given: torch.Tensor, result: torch.Tensor) -> bool:
    if func.overloadpacket is torch.ops.aten.clone:
        return True
    return given.data_ptr() == result.data_ptr() and given.stride() == result.stride()


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
