"""What else is true of a correct candidate, which stays correct whatever it does now.

Threat: what a process does once it may know that it is correct says something about it, and changes
no verdict.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudal1.harness.burst import Desk
from cudal1.harness.examination import Examination
from cudal1.harness.interval import Order
from cudal1.harness.oracle import Oracle, RefusalError
from cudal1.harness.progress import Failure, Phase
from cudal1.harness.sandbox import Worker

if TYPE_CHECKING:
    import torch


def look(worker: Worker, examination: Examination, oracle: Oracle, desk: Desk) -> None:
    """Note the properties of a correct candidate that checks and timing have not shown.

    Its weights are others afterwards, or its process has ended.
    """
    progress = examination.progress
    with progress.stopwatch.during(Phase.CHECKING):
        if progress.seen.leaves_inputs is None and not oracle.mutates_inputs:
            progress.saw(leaves_inputs=True)
        if desk.layout.num_slots > 1:
            with suppress(Failure, RefusalError):
                progress.saw(deterministic=_repeats(worker, examination, oracle, desk))
        if oracle.can_change_weights and progress.seen.follows_weights is None:
            with suppress(RefusalError):
                progress.saw(follows_weights=_follows_weights(worker, examination))


def _repeats(worker: Worker, examination: Examination, oracle: Oracle, desk: Desk) -> bool:
    """Whether it gives the same bits twice for the same inputs."""
    draw = oracle.draw(examination.rng.getrandbits(62))
    burst = examination.run(worker, [draw, draw], Order.CHAIN)
    pairs = zip(desk.output(burst, 0), desk.output(burst, 1), strict=True)
    is_same = all(bytes_equal(x, y) for x, y in pairs)
    desk.release(burst)
    return is_same


def _follows_weights(worker: Worker, examination: Examination) -> bool:
    """Whether it is right with other weights, where nothing depends on it."""
    progress = examination.progress
    compared = progress.compared
    progress.compared = compared.copy()
    try:
        examination.change_weights(worker)
        burst = examination.run(worker, examination.fresh(1), Order.CHAIN)
        examination.compare(worker, burst, exact=True)
    except Failure:
        return False
    finally:
        progress.compared = compared
    return True


def bytes_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one type and shape are the same bytes, NaN among them."""
    import torch

    return one.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8))
