"""Run bursts, and own the judge's private memory for their inputs and outputs.

Threat: a worker may write to the inputs that it was given. So outputs are held where no worker
writes, and inputs are compared again after the burst.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.errors import WorkerError
from cudal1.harness.device.quiet import no_collection
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.interval import Ending, Interval, Order
from cudal1.harness.exchange.outside import PATIENCE_NS, Outside
from cudal1.harness.exchange.pieces import (
    RANDOM,
    DevicePiece,
    HostPiece,
    Piece,
    SlotPiece,
    bytes_of,
    dtype_of,
    stage,
    stage_all,
    tensor_at,
)
from cudal1.harness.oracle.oracle import Draw
from cudal1.harness.sandbox.memory import touch_ns
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.sandbox.rings import DeviceRings, Ring, host_ring
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.shared import wire
from cudal1.harness.shared.wire import Layout
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:
    import torch


LOOKED_AT = 4
"""One of this many inputs is compared again after a burst on a GPU. Bursts are many."""


@dataclass(frozen=True)
class Burst:
    """The judge's record of one burst: its ending, its times and its outputs."""

    ending: Ending
    order: Order
    draws: tuple[Draw, ...]
    elapsed_us: float
    """Microseconds of the interval, with what is charged for work outside of it and for pages."""
    worked_us: float
    """Microseconds that the worker and all that it started computed, in the interval or not. They
    are counted on a CPU only."""
    computed_us: float
    """Microseconds that the burst took by that count, with what is charged for pages
    (`burst_times.took_us`)."""
    outside_us: float
    """Microseconds computed outside of the interval beyond what is usual, before they are
    charged."""
    is_disturbed: bool
    """True if other programs had the worker's core, or the judge's, meanwhile."""
    poison: int
    """The byte that filled the slots before the burst, except for our own workers on a GPU."""
    outputs: torch.Tensor
    """A private copy of the output slots, as bytes; whole only when `ending` is DONE."""
    inputs_changed: bool
    """True if the published inputs read otherwise after the burst."""
    is_refused: bool
    """True if an output was not taken because it may stand at several addresses."""
    is_restless: bool
    """True if a GPU was still at work long after all that should have used it stood still."""


class BurstRunner:
    """A runner of bursts of one layout; it owns the judge's private memory and reuses it."""

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
        self.ring_bytes = layout.total_bytes + arena_bytes
        """Bytes of the memory that each worker shares, with its arena."""
        self._rings = DeviceRings(self.ring_bytes)
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
        """Give the device's memory back; memory in use follows when its worker ends."""
        self._rings.close()

    def make_ring(
        self, weights: Sequence[torch.Tensor], example: Sequence[torch.Tensor] = ()
    ) -> Ring:
        """Return memory to share with a worker: weights, and perhaps inputs to practise on.

        Args:
            weights: in the layout's order.
            example: storages of one set of inputs.
        """
        ring = self._rings.lend() if self._is_cuda else host_ring(self.ring_bytes)
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
        self,
        worker: Worker,
        draws: Sequence[Draw],
        *,
        order: Order,
        patience: Patience,
        is_ours: bool = False,
    ) -> Burst:
        """Run one burst of a worker on `draws`.

        The worker stands still before and after. The caller has to `release` the burst once its
        outputs are compared. The inputs of a worker that runs our own code (`is_ours`) are not
        compared again. That worker alone may be asked for a burst without calls.
        """
        import torch

        assert is_ours or order is not Order.EMPTY
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
        if not self._is_cuda:  # on a GPU every completed capture overwrites all of it
            held[: count * layout.output_bytes].fill_(poison)
        worker.forget_places(count)
        step = 1 if order is Order.CHAIN else count
        pieces = [self._piece(worker, held, first, step) for first in range(0, count, step)]
        self.settle()
        interval = Interval(worker, order, patience, self._turns)
        # our own workers, too: a judge that waited for a warden launches the copies 20 us later
        worker.freeze()
        # beside other judges nothing is timed, and a GPU that is at work does their work
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
        # any reader of an output pays for pages that no process has touched: so they are charged
        touching_ns = calming_ns + sum(piece.num_untouched for piece in pieces) * touch_ns()
        return Burst(
            ending,
            order,
            tuple(draws),
            elapsed_us=(account.elapsed_ns + touching_ns) / 1000,
            worked_us=worker.worked_ns / 1000,
            outside_us=account.outside_ns / 1000,
            computed_us=(account.computed_ns + touching_ns) / 1000,
            is_disturbed=account.is_disturbed,
            poison=poison,
            outputs=held,
            inputs_changed=not is_ours and self._has_changed(memory, count),
            is_refused=any(piece.is_refused for piece in pieces),
            is_restless=calming_ns > PATIENCE_NS,
        )

    def _stage(self, draws: Sequence[Draw]) -> None:
        """Stage the inputs unless they are staged: reference and candidate get the same."""
        if list(draws) != self._staged_draws:
            storages = [draw.storages for draw in draws]
            stage_all(self._staged, self.layout.input_bytes, storages, self.layout.storages)
            self._staged_draws = list(draws)

    def _has_changed(self, memory: torch.Tensor, count: int) -> bool:
        """Return whether the published inputs differ from the staged ones.

        On a GPU comparing all of them would take as long as the calls may. There every fourth input
        is compared, from a random one on, so that no worker knows which.
        """
        import torch

        step, size = LOOKED_AT if self._is_cuda else 1, count * self.layout.input_bytes
        rows = slice(RANDOM.randrange(min(step, count)), None, step)
        published = memory[self.layout.input_start :][:size].view(torch.int64).view(count, -1)
        staged = self._staged[:size].view(torch.int64).view(count, -1)
        return not published[rows].equal(staged[rows])

    def await_calm(self, patience_s: float) -> bool:
        """Wait up to `patience_s` until no process works on a GPU; return whether that is so."""
        return self._outside.await_calm(int(patience_s * 1e9))

    def usual_us(self, order: Order, count: int) -> float | None:
        """Return the reference's microseconds per call outside of the interval, or None.

        It is known for an order and a number of calls in which a burst was not disturbed.
        """
        return self._outside.usual_us(order, count)

    def release(self, burst: Burst) -> None:
        """Take the burst's memory back."""
        self._free.append(burst.outputs)

    def raw(self, burst: Burst, slot: int) -> torch.Tensor:
        """Return the bytes of one call's outputs, padding included."""
        size = self.layout.output_bytes
        return burst.outputs[slot * size : (slot + 1) * size]

    def output(self, burst: Burst, slot: int) -> list[torch.Tensor]:
        """Return the output tensors of one call, over the judge's private copy."""
        raw, specs = self.raw(burst, slot), self.layout.outputs
        return [tensor_at(raw, o, spec) for o, spec in zip(wire.offsets(specs), specs, strict=True)]

    def outputs(self, burst: Burst) -> list[torch.Tensor]:
        """Return the output tensors of all calls, stacked, over the judge's private copy."""
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
    runner: BurstRunner,
    worker: Worker,
    draws: Sequence[Draw],
    protocol: EvalProtocol,
    order: Order | None = None,
) -> Burst:
    """Return one burst of a worker that runs our own code.

    Raises:
        WorkerError: the burst failed, so that nothing can be judged.
    """
    limit_s = protocol.start_timeout_s + 10 * protocol.call_timeout_s
    burst = runner.run(
        worker, draws, order=order or runner.timed_order, patience=Patience(limit_s), is_ours=True
    )
    if burst.ending is not Ending.DONE:
        raise WorkerError(
            f"the reference's worker {burst.ending.value} in a burst: "
            f"{worker.display_text() or 'no word'}; is the machine out of memory?"
        )
    return burst
