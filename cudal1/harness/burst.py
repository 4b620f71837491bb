"""One trusted interval: publish inputs, wait for "done", hold every output.

Threat: the worker may write anything anywhere in its shared memory at any time. The clock runs from
when inputs lie in the ring until the worker says "done", on a GPU until the device is the judge's;
outputs are copied at once. An early "done" only copies poison or what was there before, a late
write comes too late, and nothing else that the worker says enters the time.

On the CPU a timed burst is a chain: input i+1 is published only when output i is held, so that
calls cannot be batched. Who watches an input come can begin before the clock does. On a GPU each
exchange costs switches of context (0.3 ms) and launches could not run ahead, so there all inputs
are published at once, while the worker stands still; calls can be batched. So before anything is
certified, the other order is timed as well (`quads`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cudal1.harness import wire
from cudal1.harness.oracle import Draw
from cudal1.harness.pieces import (
    DevicePiece,
    HostPiece,
    Piece,
    SlotPiece,
    bytes_of,
    dtype_of,
    stage,
    tensor_at,
)  # fmt: skip
from cudal1.harness.rings import Ring, device_ring, host_ring
from cudal1.harness.sandbox import Worker
from cudal1.harness.wire import Layout, State

if TYPE_CHECKING:
    import torch

SPIN_S = 0.02
"""How long the judge polls without sleeping; longer calls can bear a coarser look."""
NAP_S = 0.0002
LOOKS = 50
"""Looks at the counter between two looks at the clock."""
QUIET_US = 1500.0
"""A look at an idle GPU takes tens of microseconds; one shared with a kernel that runs, a slice of
its time: 2.4 ms on an H100."""
COPY_SLACK = {"cuda": 1.1, "cpu": 1.5}
"""Copies of the outputs of one burst differ by some 2 % on a GPU, by some 20 % on a CPU."""
CALM_S = 1.0
"""How long the judge waits for a GPU that is still at work."""


class Ending(Enum):
    """How a burst ended."""

    DONE = "done"
    DIED = "died"
    TIMED_OUT = "timed out"
    FAILED = "failed"
    """The worker says that the candidate raised; its text says what."""


class Order(Enum):
    """How a burst is run."""

    CHAIN = "chain"
    """Each input is published, to a worker that runs, when the output before it is held."""
    KEEP = "keep"
    """All inputs at once, to a worker that stands still; it keeps all outputs and hands them over
    after the last call."""


@dataclass(frozen=True)
class Burst:
    """What the judge holds after an interval."""

    ending: Ending
    order: Order
    draws: tuple[Draw, ...]
    elapsed_us: float
    poison: int
    """The byte that stood in the slots before."""
    outputs: torch.Tensor
    """Private copy of the output slots, as bytes; whole only when `ending` is DONE."""
    inputs_changed: bool
    """Whether the published inputs read otherwise afterwards."""


class Desk:
    """The judge's private memory for bursts of one layout, reused from burst to burst."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        import torch

        self.layout = layout
        self._device = device
        self._free: list[torch.Tensor] = []
        self._staged = torch.empty(
            layout.num_slots * layout.input_bytes, dtype=torch.uint8, device=device
        )
        self._staged_draws: list[Draw] = []
        self._touched = torch.zeros(1, device=device)
        self._copying_ns: dict[tuple[Order, int], int] = {}
        """The least that copying so many calls' outputs took after our own workers' bursts."""

    @property
    def timed_order(self) -> Order:
        """The order of timed bursts."""
        return Order.KEEP if self._is_cuda else Order.CHAIN

    @property
    def _is_cuda(self) -> bool:
        return self._device.type == "cuda"

    def make_ring(self, weights: Sequence[torch.Tensor], *, arena_bytes: int) -> Ring:
        """Memory to share with a worker, which begins with its weights."""
        num_bytes = self.layout.total_bytes + arena_bytes
        ring = device_ring(num_bytes) if self._is_cuda else host_ring(num_bytes)
        stage(ring.memory, 0, weights, self.layout.weights)
        self.settle()
        return ring

    def run(
        self, worker: Worker, draws: Sequence[Draw], *, order: Order, timeout_s: float,
        is_ours: bool = False,
    ) -> Burst:  # fmt: skip
        """Have the worker run on `draws`; `release` the burst when its outputs were compared.

        The worker stands still before and after. The inputs of one that runs our own code are not
        looked at again.
        """
        import torch

        layout, count = self.layout, len(draws)
        if list(draws) != self._staged_draws:  # reference and candidate get the same
            for slot, draw in enumerate(draws):
                stage(self._staged, slot * layout.input_bytes, draw.inputs, layout.inputs)
            self._staged_draws = list(draws)
        # not 0, 1 or 255: an output may well consist of those alone
        poison = 2 + int.from_bytes(os.urandom(1), "little") % 253
        num_bytes = layout.num_slots * layout.output_bytes
        held = (
            self._free.pop()
            if self._free
            else torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        )
        memory = worker.ring.memory
        memory[layout.output_start : layout.output_start + count * layout.output_bytes].fill_(
            poison
        )
        if not self._is_cuda:  # there every capture that ends overwrites all of it
            held[: count * layout.output_bytes].fill_(poison)
        worker.forget_places(count)
        step = 1 if order is Order.CHAIN else count
        pieces = [self._piece(worker, held, first, step) for first in range(0, count, step)]
        self.settle()
        unseen = order is Order.KEEP and not self._is_cuda
        interval = _Interval(worker, unseen=unseen, timeout_s=timeout_s)
        worker.freeze()
        ending = interval.run(count, pieces, order)
        worker.freeze()
        late_ns = self._late_ns(interval.copying_ns, (order, count), is_ours)
        elapsed_us = (interval.elapsed_ns + late_ns) / 1000
        size = 0 if is_ours else count * layout.input_bytes
        published = memory[layout.input_start :][:size].view(torch.int64)
        return Burst(
            ending, order, tuple(draws), elapsed_us, poison, held,
            inputs_changed=not published.equal(self._staged[:size].view(torch.int64)),
        )  # fmt: skip

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

    def is_quiet(self) -> bool:
        """Whether nobody computes on the device; waits a while for what is still at work."""
        if not self._is_cuda:
            return True
        deadline = time.perf_counter() + CALM_S
        while True:
            started = time.perf_counter_ns()
            self._touched.fill_(0)
            self.settle()
            if time.perf_counter_ns() - started < QUIET_US * 1000:
                return True
            if time.perf_counter() > deadline:
                return False

    def _late_ns(self, copying_ns: int, kind: tuple[Order, int], is_ours: bool) -> int:
        """What copies took longer than they do for our own workers: somebody was still at work."""
        if is_ours and copying_ns:
            self._copying_ns[kind] = min(copying_ns, self._copying_ns.get(kind, copying_ns))
        usual_ns = self._copying_ns.get(kind, copying_ns)
        return max(0, copying_ns - round(COPY_SLACK[self._device.type] * usual_ns))

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


def wait_ready(worker: Worker, timeout_s: float) -> Ending:
    """Wait until the worker has built its module."""
    deadline = time.monotonic() + timeout_s
    while worker.state == State.STARTING:
        if not worker.is_alive():
            return Ending.DIED if worker.state == State.STARTING else Ending.FAILED
        if time.monotonic() > deadline:
            return Ending.TIMED_OUT
        time.sleep(NAP_S)
    return Ending.DONE if worker.state == State.READY else Ending.FAILED


class _Interval:
    """One burst's exchanges, and what of them counts."""

    def __init__(self, worker: Worker, *, unseen: bool, timeout_s: float) -> None:
        self._worker = worker
        self._unseen = unseen
        self._timeout_ns = int(timeout_s * 1e9)
        self.elapsed_ns = 0
        """From when inputs are there to "done", in all exchanges."""
        self.copying_ns = 0
        """After it, until the outputs were held."""

    def run(self, count: int, pieces: Sequence[Piece], order: Order) -> Ending:
        """From a worker that stands still until all outputs are held."""
        worker = self._worker
        if not self._unseen:
            worker.thaw()
            worker.go(count, keep=order is Order.KEEP)  # so that it is awake when inputs come
        deadline_ns = time.perf_counter_ns() + self._timeout_ns
        for piece in pieces:
            started_ns = piece.publish()
            if self._unseen:
                worker.go(count, keep=order is Order.KEEP)
            worker.announce(piece.num_calls)
            worker.thaw()
            ending = _wait(worker, worker.num_published, deadline_ns)
            over_ns = piece.over()
            self.elapsed_ns += over_ns - started_ns
            if ending is not Ending.DONE:
                return ending
            piece.capture()
            self.copying_ns += time.perf_counter_ns() - over_ns
        return Ending.DONE


def _wait(worker: Worker, target: int, deadline_ns: int) -> Ending:
    for _ in range(LOOKS):
        if worker.num_done >= target:
            return Ending.DONE
    spin_until = time.perf_counter_ns() + int(SPIN_S * 1e9)
    while True:
        for _ in range(LOOKS):
            if worker.num_done >= target:
                return Ending.DONE
        if worker.state != State.READY:
            return Ending.FAILED
        now = time.perf_counter_ns()
        if now > deadline_ns:
            return Ending.TIMED_OUT
        if now > spin_until:
            if not worker.is_alive():
                return Ending.FAILED if worker.state != State.READY else Ending.DIED
            time.sleep(NAP_S)
        else:
            os.sched_yield()
