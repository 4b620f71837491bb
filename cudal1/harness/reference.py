"""What a problem's source defines.

It is the user's own code, which admission has tried, and is trusted here (docs/protocol.md).
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudal1.errors import SuiteError
from cudal1.problem import Problem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Reference:
    """A problem's module and the inputs of its calls."""

    module: Callable[..., torch.nn.Module]
    init_inputs: list[Any]
    """Literals, in the order of the constructor's arguments."""
    draw: Callable[[], list[Any]]

    def make(self) -> torch.nn.Module:
        """A new module, with the weights that it draws; they want no gradients."""
        return self.module(*self.init_inputs).requires_grad_(False)


def load_reference(problem: Problem) -> Reference:
    """Run a problem's source.

    Raises:
        SuiteError: its constructor's arguments cannot be sent to a worker.
    """
    namespace = types.ModuleType("reference")
    exec(compile(problem.source, f"<{problem.key}>", "exec"), namespace.__dict__)
    given: object = namespace.get_init_inputs()
    if not isinstance(given, list | tuple):
        raise SuiteError(
            f"{problem.key}: get_init_inputs() must return a list of the constructor's arguments, "
            f"in order, not {type(given).__name__}"
        )
    init_inputs: list[Any] = list(given)
    try:
        ast.literal_eval(repr(init_inputs))
    except (ValueError, SyntaxError) as error:
        raise SuiteError(
            f"{problem.key}: get_init_inputs() must return literals, not {repr(init_inputs)[:80]}"
        ) from error
    return Reference(namespace.Model, init_inputs, namespace.get_inputs)
