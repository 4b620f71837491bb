"""One trusted interval: publish inputs, wait, hold every output.

Threat: the worker may write anything anywhere in its shared memory at any time. Inputs are secret
until the clock runs; the clock stops when private copies of all outputs exist; an early "done"
only copies poison, a late write comes too late, and nothing else that the worker says enters the
time. A timed burst is a chain: input i+1 is published only when output i is held, so that calls
cannot be batched (a worker that claims to be done early gets the next input, and its poison is
what was held).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cudal1.harness import wire
from cudal1.harness.oracle import Draw
from cudal1.harness.sandbox import Worker
from cudal1.harness.wire import State, TensorSpec

if TYPE_CHECKING:
    import torch

SPIN_S = 0.02
"""How long the judge polls without sleeping; longer calls can bear a coarser look."""
NAP_S = 0.0002
LOOKS = 50
"""Looks at the counter between two looks at the clock."""


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
    """Each input is published when the output before it is held: the only order that is timed."""
    KEEP = "keep"
    """All inputs at once; all outputs are kept by the worker and stored after the last call."""


@dataclass(frozen=True)
class Burst:
    """What the judge holds after an interval."""

    ending: Ending
    order: Order
    draws: tuple[Draw, ...]
    elapsed_us: float
    poison: int
    """The byte that stood in the slots before."""
    outputs: bytearray
    """Private copy of the output slots; whole only when `ending` is DONE."""
    inputs_changed: bool
    """Whether the published inputs read otherwise afterwards."""


class Desk:
    """The judge's private memory for bursts of one layout, reused from burst to burst."""

    def __init__(self, layout: wire.Layout) -> None:
        self.layout = layout
        self._free: list[bytearray] = []
        self._staged = bytearray(layout.num_slots * layout.input_bytes)

    def run(
        self, worker: Worker, draws: Sequence[Draw], *, order: Order, timeout_s: float
    ) -> Burst:
        """Have the worker run on `draws`; `release` the burst when its outputs were compared.

        The interval starts before the first input byte is published and ends when the last output
        byte is private.
        """
        layout, count = self.layout, len(draws)
        for slot, draw in enumerate(draws):
            stage(self._staged, slot * layout.input_bytes, draw.inputs, layout.inputs)
        # not 0, 1 or 255: an output may well consist of those alone
        poison = 2 + int.from_bytes(os.urandom(1), "little") % 253
        held = self._free.pop() if self._free else bytearray(layout.num_slots * layout.output_bytes)
        inputs = worker.ring[layout.input_start : layout.input_start + count * layout.input_bytes]
        size = count * layout.output_bytes
        outputs = worker.ring[layout.output_start : layout.output_start + size]
        staged, private = memoryview(self._staged)[: len(inputs)], memoryview(held)[:size]
        for memory in (outputs, private):
            _fill(memory, poison)
        if order is Order.CHAIN:
            pieces = [
                _Piece(
                    inputs[slot * layout.input_bytes : (slot + 1) * layout.input_bytes],
                    staged[slot * layout.input_bytes : (slot + 1) * layout.input_bytes],
                    outputs[slot * layout.output_bytes : (slot + 1) * layout.output_bytes],
                    private[slot * layout.output_bytes : (slot + 1) * layout.output_bytes],
                )
                for slot in range(count)
            ]
        else:
            pieces = [_Piece(inputs, staged, outputs, private, num_calls=count)]
        started = time.perf_counter_ns()
        ending = _through(worker, count, pieces, order, started + int(timeout_s * 1e9))
        elapsed_us = (time.perf_counter_ns() - started) / 1000
        return Burst(
            ending, order, tuple(draws), elapsed_us, poison, held,
            inputs_changed=not _same(inputs, staged),
        )  # fmt: skip

    def release(self, burst: Burst) -> None:
        """Take the burst's memory back."""
        self._free.append(burst.outputs)

    def output(self, burst: Burst, slot: int) -> list[torch.Tensor]:
        """The output tensors of one call, over the judge's private copy."""
        start = slot * self.layout.output_bytes
        return [
            _tensor(memoryview(burst.outputs), start + offset, spec)
            for offset, spec in zip(
                wire.offsets(self.layout.outputs), self.layout.outputs, strict=True
            )
        ]


@dataclass(frozen=True)
class _Piece:
    """Inputs that are published together, and the outputs that are then awaited."""

    inputs: memoryview
    staged: memoryview
    outputs: memoryview
    private: memoryview
    num_calls: int = 1


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


def stage(
    memory: bytearray | memoryview, start: int, tensors: Sequence[torch.Tensor],
    specs: Sequence[TensorSpec],
) -> None:  # fmt: skip
    """Write tensors into a slot that starts at `start`."""
    view = memoryview(memory)
    for tensor, spec, offset in zip(tensors, specs, wire.offsets(tuple(specs)), strict=True):
        if spec.num_bytes:
            view[start + offset : start + offset + spec.num_bytes] = raw_bytes(tensor, spec)


def raw_bytes(tensor: torch.Tensor, spec: TensorSpec) -> memoryview:
    """The bytes of a contiguous tensor, without copying them."""
    assert tensor.is_contiguous()
    raw = (ctypes.c_char * spec.num_bytes).from_address(tensor.data_ptr())
    return memoryview(raw).cast("B")


def _fill(memory: memoryview, byte: int) -> None:
    import torch

    if len(memory):
        torch.frombuffer(memory, dtype=torch.uint8).fill_(byte)


def _same(one: memoryview, other: memoryview) -> bool:
    """Whether the bytes are equal; comparing memoryviews directly would take a step a byte."""
    import torch

    if len(one) == 0:
        return True
    pair = (torch.frombuffer(view, dtype=torch.int64) for view in (one, other))
    return torch.equal(*pair)


def _through(
    worker: Worker, count: int, pieces: Sequence[_Piece], order: Order, deadline_ns: int
) -> Ending:
    """The interval itself."""
    worker.go(count, keep=order is Order.KEEP)
    for piece in pieces:
        piece.inputs[:] = piece.staged
        worker.announce(piece.num_calls)
        ending = _wait(worker, worker.num_published, deadline_ns)
        if ending is not Ending.DONE:
            return ending
        piece.private[:] = piece.outputs
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


def _tensor(memory: memoryview, start: int, spec: TensorSpec) -> torch.Tensor:
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.num_bytes == 0:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.frombuffer(memory[start : start + spec.num_bytes], dtype=dtype).view(spec.shape)
