"""How much memory a problem's bursts want: slots in a ring, and an arena behind them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cudal1.harness.oracle import Oracle
from cudal1.harness.wire import MAX_PLACES, Layout
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:
    import torch

LEAST_SLOTS = 16
"""Calls that a GPU's ring must hold, for checks."""
SPARE_SLOTS = 3.0
"""Slots for each call that a timed burst is expected to have; a fast candidate gets more calls."""
TRIED_CALLS = (1, 1, 3, 10)
CONTEXTS_BYTES, SHARE = 10 << 30, 16
"""What a dozen processes take of a GPU before any has a ring; and rings, which with the judge's own
copies may take so many times one, each with an arena half as large behind it. Eight may be alive:
a candidate's two, the next one's, the reference's two, the empty one's, two of others that end."""
ARENA_MARGIN, OUTPUTS_MARGIN, ARENA_STEP, LEAST_ARENA = 2, 1.5, 512, 64 << 20
"""An allocator rounds up, and keeps what it had."""
LARGE_BYTES, LARGE_STEP = 10 << 20, 2 << 20
"""PyTorch's has a piece for each tensor from the first size on, in steps of the second."""


def layout(oracle: Oracle, protocol: EvalProtocol) -> Layout:
    """Where a problem's tensors lie, with as many slots as its bursts may use."""
    one = Layout(oracle.weight_specs, oracle.input_specs, oracle.output_specs, 1)
    slot_bytes = max(1, one.input_bytes + one.output_bytes)
    wanted = protocol.max_burst_calls
    if oracle.device.type == "cuda":  # there memory takes time to be made
        wanted = max(LEAST_SLOTS, round(SPARE_SLOTS * protocol.burst_us / call_us(oracle)))
    slots = min(
        wanted, protocol.max_burst_calls, ring_bytes(oracle.device, protocol) // slot_bytes,
        MAX_PLACES // len(one.outputs),
    )  # fmt: skip
    return Layout(one.weights, one.inputs, one.outputs, max(1, slots))


def ring_bytes(device: torch.device, protocol: EvalProtocol) -> int:
    """For the inputs and outputs of a burst, at most."""
    import torch

    if device.type != "cuda":
        return protocol.ring_bytes
    total = torch.cuda.get_device_properties(device).total_memory
    return min(protocol.ring_bytes, max(total - CONTEXTS_BYTES, total // 2) // SHARE)


def call_us(oracle: Oracle) -> float:
    """About how long one call of the reference takes when calls follow each other."""
    import torch

    draw, times = oracle.draw(1), list[float]()
    for count in TRIED_CALLS:
        started = time.perf_counter()
        for _ in range(count):
            oracle.key(draw)
        if oracle.device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1e6 / count)
    return min(times)


def arena_bytes(oracle: Oracle, num_calls: int) -> int:
    """Memory that a GPU's calls may want in a burst whose outputs are all kept.

    Of the reference: a candidate that needs more takes it elsewhere, and has its outputs copied.
    """
    import torch

    if oracle.device.type != "cuda":
        return 0
    draw = oracle.draw(1)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    oracle.key(draw)
    peak = torch.cuda.max_memory_allocated() - before
    kept = num_calls * sum(allocated_bytes(spec.num_bytes) for spec in oracle.output_specs)
    return ARENA_MARGIN * peak + kept + LEAST_ARENA


def allocated_bytes(num_bytes: int) -> int:
    """What one of many tensors of that size takes of an arena, about."""
    if num_bytes >= LARGE_BYTES:
        return -(-num_bytes // LARGE_STEP) * LARGE_STEP
    return round(OUTPUTS_MARGIN * num_bytes + ARENA_STEP)
