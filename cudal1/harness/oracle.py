"""The judge's own copy of a problem: it draws inputs and computes answers.

Runs the *reference*, which admission has tried in a process of its own, and never a candidate.
"""

from __future__ import annotations

import ast
import math
import random
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudal1.errors import SuiteError
from cudal1.harness.correctness import ReferenceError, reference_error
from cudal1.harness.wire import DTYPES, TensorSpec
from cudal1.problem import Problem

if TYPE_CHECKING:
    import torch

Tensors = list["torch.Tensor"]

MAX_FAMILY_ERROR = 1e-3
"""A family of inputs on which the reference itself is farther off than this says nothing."""


@dataclass(frozen=True)
class Draw:
    """One set of inputs, private to the judge until it is published."""

    inputs: Tensors
    family: str


class Oracle:
    """Inputs and answers of one problem.

    Raises:
        SuiteError: the reference cannot be run here (admission should have rejected it).
    """

    def __init__(self, problem: Problem, *, weight_seed: int) -> None:
        import torch

        self.problem = problem
        namespace = types.ModuleType("reference")
        # the reference is the user's own, admitted code; it is trusted here (docs/protocol.md)
        exec(compile(problem.source, f"<{problem.key}>", "exec"), namespace.__dict__)  # noqa: S102
        self._draw: Callable[[], list[Any]] = namespace.get_inputs
        init_inputs = list(namespace.get_init_inputs())
        self.init_inputs = repr(init_inputs)
        try:
            ast.literal_eval(self.init_inputs)
        except (ValueError, SyntaxError) as error:
            raise SuiteError(
                f"{problem.key}: get_init_inputs() must return literals, not {self.init_inputs[:80]}"
            ) from error
        torch.manual_seed(weight_seed)
        self._model: torch.nn.Module = namespace.Model(*init_inputs)
        self.weights: dict[str, torch.Tensor] = {
            name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()
        }
        torch.manual_seed(weight_seed)
        self._exact: torch.nn.Module | None = namespace.Model(*init_inputs).double()
        self._families = {"own": ReferenceError(0.0, 0.0)}
        self._examine()

    @property
    def families(self) -> list[str]:
        """Kinds of inputs that say something about this problem."""
        return list(self._families)

    def error(self, family: str) -> ReferenceError:
        """How far the reference is from the exact answer on a family."""
        return self._families[family]

    def draw(self, seed: int, family: str = "own") -> Draw:
        """Fresh inputs; the same seed and family give the same ones."""
        import torch

        # torch.manual_seed also queues a call, with a stack trace, for a CUDA that may come to life
        torch.default_generator.manual_seed(seed % 2**63)
        return Draw([_FAMILIES[family](t.contiguous()) for t in self._draw()], family)

    def random_family(self, rng: random.Random) -> str:
        """The problem's own kind half of the time, else any of the others."""
        others = self.families[1:]
        return rng.choice(others) if others and rng.random() < 0.5 else "own"

    def answer(self, draw: Draw, *, exact: bool) -> Tensors:
        """The outputs for `draw`: in float64 where the reference can be run in it, if `exact`."""
        import torch

        with torch.no_grad():
            if exact and self._exact is not None:
                inputs = [t.double() if t.is_floating_point() else t.clone() for t in draw.inputs]
                return _as_list(self._exact(*inputs))
            return _as_list(self._model(*[t.clone() for t in draw.inputs]))

    def _examine(self) -> None:
        """Learn output specs, whether float64 works, and which families are usable."""
        first = self.draw(1)
        outputs = self.answer(first, exact=False)
        self.input_specs = tuple(_spec(t) for t in first.inputs)
        self.output_specs = tuple(_spec(t) for t in outputs)
        self.weight_specs = tuple(_spec(t) for t in self.weights.values())
        try:
            self.answer(first, exact=True)
        except RuntimeError:  # an operator without a float64 kernel
            self._exact = None
        has_floats = any(t.is_floating_point() for t in first.inputs)
        for family in _FAMILIES if has_floats else ["own"]:
            error = self._family_error(family)
            if family == "own" or error.relative_l2 <= MAX_FAMILY_ERROR:
                self._families[family] = error

    def _family_error(self, family: str) -> ReferenceError:
        errors: list[ReferenceError] = []
        hopeless = ReferenceError(math.inf, math.inf)
        for seed in (11, 12, 13):
            draw = self.draw(seed, family)
            plain, exact = self.answer(draw, exact=False), self.answer(draw, exact=True)
            for output, answer in zip(plain, exact, strict=True):
                if family != "own" and not _is_telling(output):
                    return hopeless
                errors.append(reference_error(output, answer))
        return ReferenceError(max(e.relative_l2 for e in errors), max(e.element for e in errors))


def _is_telling(output: torch.Tensor) -> bool:
    """Whether an output is finite and not the same everywhere."""
    import torch

    if not output.is_floating_point():
        return True
    spread = bool(output.numel() == 1 or output.max() > output.min())
    return bool(torch.isfinite(output).all()) and spread


def _as_list(result: Any) -> Tensors:
    return list(result) if isinstance(result, tuple | list) else [result]


def _spec(tensor: torch.Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise SuiteError(f"tensors of {dtype} cannot be judged")
    return TensorSpec(dtype, tuple(tensor.shape))


def _rows_alike(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand_as(tensor).contiguous() if tensor.dim() > 1 else tensor


def _small_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mul(1.5).round().clamp(-2, 2) if tensor.is_floating_point() else tensor


def _sparse(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if not tensor.is_floating_point():
        return tensor
    return tensor * (torch.rand_like(tensor, dtype=torch.float32) < 0.1).to(tensor.dtype)


def _scaled(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor * factor if tensor.is_floating_point() else tensor


_FAMILIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "own": lambda tensor: tensor,
    "negated": _scaled(-1.0),
    "large": _scaled(16.0),
    "small": _scaled(1 / 16),
    "integers": _small_integers,
    "sparse": _sparse,
    "rows_alike": _rows_alike,
}
