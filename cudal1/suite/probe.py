"""Try references: one JSON source a line in, one JSON reason (or null) a line out.

Runs in a process of its own (`admission.py`). What it looks for is why a problem could not be judged,
or would reward work that nobody has to do: after METR's and robust-kbench's task filters.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import types
from typing import Any

MEMORY_BYTES = 16 << 30


class _Rejected(Exception):
    """The reason, in one line."""


def reason_to_reject(source: str, *, max_reference_ms: float) -> str | None:
    """Why a problem cannot be judged, or None."""
    try:
        _try_out(source, max_reference_ms)
    except _Rejected as rejected:
        return str(rejected)
    except Exception as error:  # noqa: BLE001 (the file is somebody else's and may raise anything)
        return " ".join(f"raises {type(error).__name__}: {error}".split())[:300]
    return None


def _try_out(source: str, max_reference_ms: float) -> None:
    import torch

    namespace = types.ModuleType("problem")
    exec(compile(source, "<problem>", "exec"), namespace.__dict__)  # noqa: S102
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if not callable(getattr(namespace, name, None)):
            raise _Rejected(f"defines no {name}")
    init_inputs = list(namespace.get_init_inputs())

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return namespace.Model(*init_inputs)

    def inputs(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        drawn = list(namespace.get_inputs())
        if not drawn or not all(isinstance(value, torch.Tensor) for value in drawn):
            raise _Rejected("get_inputs() must return a list of tensors")
        return drawn

    def outputs(module: torch.nn.Module, values: list[torch.Tensor]) -> list[torch.Tensor]:
        with torch.no_grad():
            result: Any = module(*[value.clone() for value in values])
        found = list(result) if isinstance(result, tuple | list) else [result]
        if not found or not all(isinstance(value, torch.Tensor) for value in found):
            raise _Rejected("forward must return a tensor or a tuple of tensors")
        return found

    first, module = inputs(1), model()
    base = outputs(module, first)
    started = time.perf_counter()
    again = outputs(module, first)
    elapsed_ms = (time.perf_counter() - started) * 1000
    if elapsed_ms > max_reference_ms:
        raise _Rejected(f"one call takes {elapsed_ms:.0f} ms, more than {max_reference_ms:.0f} ms")
    _judge_values(base)
    torch.manual_seed(99)
    for other in (again, outputs(model(), first)):
        if not all(torch.equal(a, b) for a, b in zip(base, other, strict=True)):
            raise _Rejected("gives different outputs for equal inputs and weights")
    _judge_dependence(base, first, lambda values: outputs(module, values), inputs(2))


def _judge_values(outputs: list[Any]) -> None:
    for output in outputs:
        if output.numel() == 0:
            raise _Rejected("an output has no elements")
        if output.is_floating_point() and not bool(output.isfinite().all()):
            raise _Rejected("an output holds NaN or infinity")
        if output.numel() > 1 and bool((output == output.flatten()[0]).all()):
            raise _Rejected("an output is the same in every element")


def _judge_dependence(base: list[Any], first: list[Any], call: Any, second: list[Any]) -> None:
    if _same(base, call(second)):
        raise _Rejected("the output does not depend on the inputs")
    for place in range(len(first)):
        changed = [*first]
        changed[place] = second[place]
        if _same(base, call(changed)):
            raise _Rejected(f"the output does not depend on input {place}")


def _same(left: list[Any], right: list[Any]) -> bool:
    import torch

    return all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-12)
        for a, b in zip(left, right, strict=True)
    )


def main() -> None:
    """Serve requests until the end of the input; a problem's own prints go nowhere."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    max_reference_ms = float(sys.argv[1])
    for line in sys.stdin:
        answer = reason_to_reject(json.loads(line), max_reference_ms=max_reference_ms)
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
