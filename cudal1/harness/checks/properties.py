"""Look for other properties of a correct candidate, which stays correct whatever it does.

Threat: a process may know by then that it is correct. What it does says something about it, and
changes no verdict.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudal1.harness.checks.examination import Examination
from cudal1.harness.checks.progress import Phase
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.exchange.interval import Order
from cudal1.harness.oracle.oracle import Oracle, RefusalError
from cudal1.harness.sandbox.sandbox import Worker

if TYPE_CHECKING:
    import torch


def look(worker: Worker, examination: Examination, oracle: Oracle, runner: BurstRunner) -> None:
    """Note the properties of a correct candidate that checks and timing have not shown.

    Afterwards its weights are others, or its process has ended.
    """
    progress = examination.progress
    with progress.stopwatch.during(Phase.CHECKING):
        if progress.seen.leaves_inputs is None and not oracle.mutates_inputs:
            progress.saw(leaves_inputs=True)
        if runner.layout.num_slots > 1:
            with suppress(Failure, RefusalError):
                progress.saw(deterministic=_repeats(worker, examination, oracle, runner))
        if oracle.can_change_weights and progress.seen.follows_weights is None:
            with suppress(RefusalError):
                progress.saw(follows_weights=_follows_weights(worker, examination))


def _repeats(worker: Worker, examination: Examination, oracle: Oracle, runner: BurstRunner) -> bool:
    """Return whether the candidate gives the same bits twice for the same inputs."""
    draw = oracle.draw(examination.rng.getrandbits(62))
    burst = examination.run(worker, [draw, draw], Order.CHAIN)
    pairs = zip(runner.output(burst, 0), runner.output(burst, 1), strict=True)
    is_same = all(bytes_equal(x, y) for x, y in pairs)
    runner.release(burst)
    return is_same


def _follows_weights(worker: Worker, examination: Examination) -> bool:
    """Return whether the candidate is right with other weights; no verdict depends on it."""
    progress = examination.progress
    compared = progress.compared
    progress.compared = compared.copy()
    try:
        examination.change_weights(worker)
        burst = examination.run(worker, examination.fresh(1), Order.CHAIN)
        examination.compare(worker, burst, exact=False)
    except Failure:
        return False
    finally:
        progress.compared = compared
    return True


def bytes_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one type and shape are the same bytes, NaN among them."""
    import torch

    return one.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8))
