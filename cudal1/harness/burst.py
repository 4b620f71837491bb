"""Bursts: what goes into one, what the judge holds after it, and the memory for both.

Threat: outputs are held where no worker writes, and inputs are looked at again, for the worker may
write to those that it was given.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.errors import WorkerError
from cudal1.harness import wire
from cudal1.harness.interval import Ending, Interval, Order
from cudal1.harness.memory import touch_ns
from cudal1.harness.oracle import Draw
from cudal1.harness.outside import PATIENCE_NS, Outside
from cudal1.harness.patience import Patience
from cudal1.harness.pieces import (
    RANDOM,
    DevicePiece,
    HostPiece,
    Piece,
    SlotPiece,
    bytes_of,
    dtype_of,
    stage,
    tensor_at,
)  # fmt: skip
from cudal1.harness.quiet import no_collection
from cudal1.harness.rings import DeviceRings, Ring, host_ring
from cudal1.harness.sandbox import Worker
from cudal1.harness.turns import Turns
from cudal1.harness.wire import Layout
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:
    import torch


LOOKED_AT = 4
"""Of so many inputs of a burst on a GPU one is looked at again; bursts are many."""


@dataclass(frozen=True)
class Burst:
    """What the judge holds after an interval."""

    ending: Ending
    order: Order
    draws: tuple[Draw, ...]
    elapsed_us: float
    """What it took, and what is charged for work outside of it."""
    worked_us: float
    """What the worker and all that it started computed, in the interval or not; on a CPU alone."""
    computed_us: float
    """What it took by that count, with what is charged for pages (`spent.took_us`)."""
    outside_us: float
    """What it computed outside of the interval beyond what is usual, before it is charged."""
    is_disturbed: bool
    """Whether other programs had the worker's core, or the judge's, meanwhile."""
    poison: int
    """The byte that stood in the slots before, but for our own workers on a GPU."""
    outputs: torch.Tensor
    """Private copy of the output slots, as bytes; whole only when `ending` is DONE."""
    inputs_changed: bool
    """Whether the published inputs read otherwise afterwards."""
    is_refused: bool
    """Whether an output was not taken because it may stand at several addresses."""
    is_restless: bool
    """Whether a GPU was still at work long after all that should have used it stood still."""


class Desk:
    """The judge's private memory for bursts of one layout, reused from burst to burst."""

    def __init__(
        self,
        layout: Layout,
        device: torch.device,
        *,
        arena_bytes: int = 0,
        turns: Turns | None = None,
    ) -> None:
        import torch

        self._turns = turns or Turns()

        self.layout = layout
        self._ring_bytes = layout.total_bytes + arena_bytes
        self._rings = DeviceRings(self._ring_bytes)
        self._device = device
        self._free: list[torch.Tensor] = []
        self._staged = torch.empty(
            layout.num_slots * layout.input_bytes, dtype=torch.uint8, device=device
        )
        self._staged_draws: list[Draw] = []
        self._outside = Outside(device)

    @property
    def timed_order(self) -> Order:
        """The order of timed bursts."""
        return Order.KEEP if self._is_cuda else Order.CHAIN

    @property
    def _is_cuda(self) -> bool:
        return self._device.type == "cuda"

    def close(self) -> None:
        """Give back the device's memory as its workers end."""
        self._rings.close()

    def make_ring(
        self, weights: Sequence[torch.Tensor], example: Sequence[torch.Tensor] = ()
    ) -> Ring:
        """Return memory to share with a worker: weights, and perhaps inputs to practise on.

        Args:
            weights: as the layout has them.
            example: storages of a set of inputs.
        """
        ring = self._rings.lend() if self._is_cuda else host_ring(self._ring_bytes)
        try:
            stage(ring.memory, 0, weights, self.layout.weights)
            if example:
                stage(ring.memory, self.layout.input_start, example, self.layout.storages)
            self.settle()
        except RuntimeError:
            os.close(ring.descriptor)
            ring.release()
            raise
        return ring

    def run(
        self, worker: Worker, draws: Sequence[Draw], *, order: Order, patience: Patience,
        is_ours: bool = False,
    ) -> Burst:  # fmt: skip
        """Have the worker run on `draws`; `release` the burst when its outputs were compared.

        The worker stands still before and after. The inputs of one that runs our own code are not
        looked at again.
        """
        import torch

        layout, count = self.layout, len(draws)
        self._turns.pass_on()
        self._stage(draws)
        # not 0, 1 or 255: an output may well consist of those alone
        poison = 2 + int.from_bytes(os.urandom(1), "little") % 253
        num_bytes = layout.num_slots * layout.output_bytes
        held = (
            self._free.pop()
            if self._free
            else torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        )
        memory = worker.ring.memory
        if not (is_ours and self._is_cuda):
            slots = memory[layout.output_start :][: count * layout.output_bytes]
            slots.fill_(poison)
        if not self._is_cuda:  # on a GPU every capture that ends overwrites all of it
            held[: count * layout.output_bytes].fill_(poison)
        worker.forget_places(count)
        step = 1 if order is Order.CHAIN else count
        pieces = [self._piece(worker, held, first, step) for first in range(0, count, step)]
        self.settle()
        interval = Interval(worker, order, patience, self._turns)
        worker.freeze()  # ours, too: who waits for a warden launches the copies 20 us later
        # beside others nothing is timed, and a GPU that is at work is at theirs
        is_watched = not is_ours and self._turns.is_alone
        calming_ns = self._outside.calm_ns() if is_watched else 0
        began_ns = time.perf_counter_ns()
        with no_collection():
            ending = interval.run(count, pieces)
        worker.freeze()
        if is_watched:
            calming_ns += self._outside.calm_ns()
        rest_ns = time.perf_counter_ns() - began_ns - interval.elapsed_ns
        account = self._outside.account(
            worker, interval, count, is_ours=is_ours, is_watched=is_watched, rest_ns=rest_ns
        )
        # whoever reads an output pays for pages that nobody has touched
        touching_ns = calming_ns + sum(piece.num_untouched for piece in pieces) * touch_ns()
        return Burst(
            ending, order, tuple(draws), elapsed_us=(account.elapsed_ns + touching_ns) / 1000,
            worked_us=worker.worked_ns / 1000, outside_us=account.outside_ns / 1000,
            computed_us=(account.computed_ns + touching_ns) / 1000,
            is_disturbed=account.is_disturbed,
            poison=poison, outputs=held,
            inputs_changed=not is_ours and self._has_changed(memory, count),
            is_refused=any(piece.is_refused for piece in pieces),
            is_restless=calming_ns > PATIENCE_NS,
        )  # fmt: skip

    def _stage(self, draws: Sequence[Draw]) -> None:
        """Have the inputs ready, unless they are: reference and candidate get the same."""
        if list(draws) != self._staged_draws:
            for slot, draw in enumerate(draws):
                start = slot * self.layout.input_bytes
                stage(self._staged, start, draw.storages, self.layout.storages)
            self._staged_draws = list(draws)

    def _has_changed(self, memory: torch.Tensor, count: int) -> bool:
        """Whether what was published reads otherwise now.

        On a GPU that takes as long as the calls may take: there some of them are looked at, and
        nobody knows which.
        """
        import torch

        step, size = LOOKED_AT if self._is_cuda else 1, count * self.layout.input_bytes
        rows = slice(RANDOM.randrange(min(step, count)), None, step)
        published = memory[self.layout.input_start :][:size].view(torch.int64).view(count, -1)
        staged = self._staged[:size].view(torch.int64).view(count, -1)
        return not published[rows].equal(staged[rows])

    def await_calm(self, patience_s: float) -> bool:
        """Wait for so long until nobody is at work on a GPU; return whether that is so."""
        return self._outside.await_calm(int(patience_s * 1e9))

    def usual_us(self, order: Order, count: int) -> float | None:
        """What the reference does outside of the interval for each of so many calls, if known."""
        return self._outside.usual_us(order, count)

    def release(self, burst: Burst) -> None:
        """Take the burst's memory back."""
        self._free.append(burst.outputs)

    def raw(self, burst: Burst, slot: int) -> torch.Tensor:
        """The bytes of one call's outputs, padding included."""
        size = self.layout.output_bytes
        return burst.outputs[slot * size : (slot + 1) * size]

    def output(self, burst: Burst, slot: int) -> list[torch.Tensor]:
        """The output tensors of one call, over the judge's private copy."""
        raw, specs = self.raw(burst, slot), self.layout.outputs
        return [tensor_at(raw, o, spec) for o, spec in zip(wire.offsets(specs), specs, strict=True)]

    def outputs(self, burst: Burst) -> list[torch.Tensor]:
        """The output tensors of all calls, one above the other, over the judge's private copy."""
        layout, count = self.layout, len(burst.draws)
        rows = burst.outputs[: count * layout.output_bytes].view(count, -1)
        return [
            rows[:, start : start + spec.num_bytes].view(dtype_of(spec)).view(count, *spec.shape)
            for start, spec in zip(wire.offsets(layout.outputs), layout.outputs, strict=True)
        ]

    def _piece(self, worker: Worker, held: torch.Tensor, first: int, count: int) -> Piece:
        layout = self.layout
        start, size = first * layout.input_bytes, count * layout.input_bytes
        inputs = worker.ring.memory[layout.input_start + start :][:size]
        staged = self._staged[start : start + size]
        if self._is_cuda:
            return DevicePiece(count, inputs, staged, worker, held, layout, first)
        given = bytes_of(inputs), bytes_of(staged)
        if worker.job.in_place:
            return HostPiece(count, *given, worker, bytes_of(held), layout, first)
        start, size = first * layout.output_bytes, count * layout.output_bytes
        outputs = worker.ring.memory[layout.output_start + start :][:size]
        return SlotPiece(count, *given, bytes_of(outputs), bytes_of(held[start : start + size]))

    def settle(self) -> None:
        """Wait until the device has done what the judge asked of it."""
        if self._is_cuda:
            import torch

            torch.cuda.synchronize()


def run_own(
    desk: Desk,
    worker: Worker,
    draws: Sequence[Draw],
    protocol: EvalProtocol,
    order: Order | None = None,
) -> Burst:
    """One burst of a worker that runs our own code.

    Raises:
        WorkerError: it failed, so that nothing can be judged.
    """
    limit_s = protocol.start_timeout_s + 10 * protocol.call_timeout_s
    burst = desk.run(
        worker, draws, order=order or desk.timed_order, patience=Patience(limit_s), is_ours=True
    )
    if burst.ending is not Ending.DONE:
        raise WorkerError(
            f"the reference's worker {burst.ending.value} in a burst: "
            f"{worker.display_text() or 'no word'}; is the machine out of memory?"
        )
    return burst
