"""One trusted interval: publish inputs, wait, hold every output.

Threat: the worker may write anything anywhere in its shared memory at any time. Inputs are secret until
the clock runs; the clock stops when private copies of all outputs exist; an early "done" only copies
poison, a late write comes too late, and nothing else that the worker says enters the time.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from cudal1.harness import wire
from cudal1.harness.oracle import Draw
from cudal1.harness.sandbox import Worker
from cudal1.harness.wire import State, TensorSpec

if TYPE_CHECKING:
    import torch

SPIN_S = 0.02
"""How long the judge polls without sleeping; longer bursts can bear a coarser look."""
NAP_S = 0.0002


class Ending(Enum):
    """How a burst ended."""

    DONE = "done"
    DIED = "died"
    TIMED_OUT = "timed out"
    FAILED = "failed"
    """The worker says that the candidate raised; its text says what."""


@dataclass(frozen=True)
class Burst:
    """What the judge holds after an interval."""

    ending: Ending
    elapsed_us: float
    outputs: memoryview
    """Private copy of the output slots; whole only when `ending` is DONE."""


class Desk:
    """The judge's private memory for bursts of one layout, reused from burst to burst."""

    def __init__(self, layout: wire.Layout) -> None:
        self.layout = layout
        self._outputs = bytearray(layout.num_slots * layout.output_bytes)
        self._poison = memoryview(os.urandom(1) * (layout.num_slots * layout.output_bytes))
        self._staged = bytearray(layout.num_slots * layout.input_bytes)

    def run(self, worker: Worker, draws: Sequence[Draw], *, timeout_s: float) -> Burst:
        """Publish `draws` to the worker and wait for all outputs.

        The interval starts before the first input byte is published and ends when the last output
        byte is private.
        """
        layout, count = self.layout, len(draws)
        for slot, draw in enumerate(draws):
            _stage(self._staged, slot * layout.input_bytes, draw.inputs, layout.inputs)
        size = count * layout.output_bytes
        target = worker.num_done + count
        ring = worker.ring
        inputs = ring[layout.input_start : layout.input_start + count * layout.input_bytes]
        outputs = ring[layout.output_start : layout.output_start + size]
        outputs[:] = self._poison[:size]
        staged = memoryview(self._staged)[: count * layout.input_bytes]
        held = memoryview(self._outputs)[:size]
        started = time.perf_counter_ns()
        inputs[:] = staged
        worker.go(count)
        ending = _wait(worker, target, started, timeout_s)
        held[:] = outputs
        elapsed_us = (time.perf_counter_ns() - started) / 1000
        return Burst(ending, elapsed_us, held)

    def inputs_unchanged(self, worker: Worker, count: int) -> bool:
        """Whether the published inputs still read as the judge wrote them."""
        start, size = self.layout.input_start, count * self.layout.input_bytes
        published = np.frombuffer(worker.ring, np.uint8, size, start)
        return np.array_equal(published, np.frombuffer(self._staged, np.uint8, size))

    def output(self, burst: Burst, slot: int) -> list[torch.Tensor]:
        """The output tensors of one call, over the judge's private copy."""
        start = slot * self.layout.output_bytes
        return [
            _tensor(burst.outputs, start + offset, spec)
            for offset, spec in zip(
                wire.offsets(self.layout.outputs), self.layout.outputs, strict=True
            )
        ]


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


def publish_weights(
    ring: memoryview, layout: wire.Layout, weights: Sequence[torch.Tensor]
) -> None:
    """Write the reference's weights where a worker will look for them."""
    _stage(ring, 0, weights, layout.weights)


def _wait(worker: Worker, target: int, started_ns: int, timeout_s: float) -> Ending:
    spin_until = started_ns + int(SPIN_S * 1e9)
    deadline = started_ns + int(timeout_s * 1e9)
    while worker.num_done < target:
        if worker.state != State.READY:
            return Ending.FAILED
        now = time.perf_counter_ns()
        if now > spin_until:
            if now > deadline:
                return Ending.TIMED_OUT
            if not worker.is_alive():
                return Ending.FAILED if worker.state != State.READY else Ending.DIED
            time.sleep(NAP_S)
    return Ending.DONE


def _stage(
    memory: bytearray | memoryview, start: int, tensors: Sequence[torch.Tensor],
    specs: Sequence[TensorSpec],
) -> None:  # fmt: skip
    view = memoryview(memory)
    for tensor, spec, offset in zip(tensors, specs, wire.offsets(tuple(specs)), strict=True):
        if spec.num_bytes:
            source = tensor.contiguous()
            raw = (ctypes.c_char * spec.num_bytes).from_address(source.data_ptr())
            view[start + offset : start + offset + spec.num_bytes] = memoryview(raw).cast("B")


def _tensor(memory: memoryview, start: int, spec: TensorSpec) -> torch.Tensor:
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.num_bytes == 0:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.frombuffer(memory[start : start + spec.num_bytes], dtype=dtype).view(spec.shape)
