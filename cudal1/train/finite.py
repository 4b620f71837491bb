"""Leave out steps with a non-finite gradient: one such step would destroy a policy's weights."""

from __future__ import annotations

import logging
from typing import Any

from cudal1.errors import TrainingError

log = logging.getLogger("cudal1")

MOST_IN_A_ROW = 3
"""Successive left-out steps at which training fails; chance alone leaves out fewer in a row."""


def finite_callback() -> Any:
    """Return a trainer callback that leaves out steps with a non-finite gradient, and logs them.

    With several processes each process leaves out the same steps.

    Raises:
        TrainingError: in training, at the third such step in a row.
    """
    from transformers import TrainerCallback

    class _Finite(TrainerCallback):
        def __init__(self) -> None:
            self._in_a_row = 0

        def on_pre_optimizer_step(
            self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
        ) -> None:
            if _is_finite(model):
                self._in_a_row = 0
                return
            self._in_a_row += 1
            step = state.global_step + 1
            if self._in_a_row == MOST_IN_A_ROW:
                raise TrainingError(
                    f"step {step}: no finite gradient {MOST_IN_A_ROW} steps in a row; "
                    "lower learning_rate, or look for a weight of the policy that is no number"
                )
            model.zero_grad()  # an optimizer passes over weights without a gradient
            if state.is_world_process_zero:
                log.warning("step %d: its gradient is not finite; it is left out", step)

    return _Finite()


def _is_finite(model: Any) -> bool:
    import torch

    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    shards = [getattr(grad, "_local_tensor", grad) for grad in grads]
    if not shards:
        return True
    is_finite = torch.stack([shard.isfinite().all() for shard in shards]).all().int()
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(is_finite, torch.distributed.ReduceOp.MIN)
    return bool(is_finite)
