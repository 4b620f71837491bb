"""Make up speeds, to rehearse the experiment where there is no GPU, and to choose its settings.

This is NOT a measurement: none of its figures may be claimed of a device. The variants of a problem
that the rewriter can make of right places are written out, and so every right source is recognised.
Any other source fails. A right source's time is a roofline's. The source is run without data (on
PyTorch's `meta` device), and every operation takes as long as its bytes or its arithmetic at round
rates of a GPU.
"""

from __future__ import annotations

import ast
import itertools
import random
from hashlib import blake2b
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from cudal1.problem import Problem
from cudal1.teachers import Kind, compose, places

BYTES_PER_US, FLOPS_PER_US, LAUNCH_US = 4e6, 45e6, 3.0
"""Rates of 4 TB/s and 45 Tflop/s in float32, and µs to start a kernel."""
NOISE = 0.01
DEAD_ZONE = 1.02
MAX_VARIANTS = 20_000


def right_variants(problem: Problem) -> dict[str, tuple[int | None, ...]]:
    """Return choices by normal form, for every variant that the rewriter makes of right places."""
    options = [
        [None, *(n for n, option in enumerate(place.options) if option.kind is not Kind.WRONG)]
        for place in places(problem.source)
    ]
    return {
        normal(compose(problem.source, chosen).source): chosen
        for chosen in itertools.islice(itertools.product(*options), MAX_VARIANTS)
    }


def speedup(problem: Problem, source: str) -> float | None:
    """Return the made-up speedup of a harmless source; repeated calls agree.

    None for a source that raises: places that are right alone need not be right together.
    """
    reference_us = _us(problem, problem.source, "Model")
    try:
        speed = reference_us / _us(problem, source, "ModelNew")
    except (RuntimeError, ValueError, TypeError, IndexError):  # by shapes that do not fit
        return None
    noisy = speed * random.Random(normal(source)).gauss(1.0, NOISE)
    return round(noisy, 3) if not 1 / DEAD_ZONE < noisy < DEAD_ZONE else 1.0


def _us(problem: Problem, source: str, name: str) -> float:
    """Return made-up microseconds of a source that is known to be harmless."""
    reference: dict[str, Any] = {}
    scope: dict[str, Any] = {}
    with torch.device("meta"), torch.no_grad():  # inference_mode would hide `mm` inside `matmul`
        exec(compile(problem.source, "reference", "exec"), reference)
        exec(compile(source, "variant", "exec"), scope)
        module = scope[name](*reference["get_init_inputs"]())
        inputs = reference["get_inputs"]()
        with _Roofline() as cost:
            module(*inputs)
    return cost.us


class _Roofline(TorchDispatchMode):
    """The sum of the times that operations would take."""

    def __init__(self) -> None:
        super().__init__()
        self.us = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not func.is_view:
            touched = {
                id(t): t for t in tree_leaves((args, kwargs, made)) if isinstance(t, torch.Tensor)
            }
            num_bytes = sum(t.numel() * t.element_size() for t in touched.values())
            count = flop_registry.get(func.overloadpacket)
            flops = count(*args, **(kwargs or {}), out_val=made) if count else 0
            self.us += LAUNCH_US + max(num_bytes / BYTES_PER_US, flops / FLOPS_PER_US)
        return made


def normal(source: str) -> str:
    """Return a short id of a source whatever its layout; "" for what is no Python."""
    try:
        said = ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return blake2b(said.encode(), digest_size=12).hexdigest()
