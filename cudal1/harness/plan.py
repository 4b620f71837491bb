"""How much memory a problem's bursts want: slots in a ring, and an arena behind them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cudal1.harness.oracle import Draw, Oracle
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
copies may take so many times one, each with an arena behind it. Eight may be alive: a candidate's
two, the next one's, the reference's two, the empty one's, two of others that end."""
WITH_ARENA = 1.5
"""A ring and its arena, over a ring's share."""
ARENA_MARGIN, OUTPUTS_MARGIN, ARENA_STEP, LEAST_ARENA = 2, 1.5, 512, 64 << 20
"""An allocator rounds up, and keeps what it had."""
LARGE_BYTES, LARGE_STEP = 10 << 20, 2 << 20
"""PyTorch's has a piece for each tensor from the first size on, in steps of the second."""


def layout_and_arena(oracle: Oracle, protocol: EvalProtocol) -> tuple[Layout, int]:
    """Where a problem's tensors lie, with as many slots as its bursts may use; and its arena.

    The arena, in bytes, is what the reference's calls want in a burst whose outputs are all kept,
    on a GPU. A candidate that needs more takes it elsewhere, and has its outputs copied.
    """
    one = Layout(
        oracle.weight_specs, oracle.storages, oracle.output_specs, 1, oracle.input_views
    )  # fmt: skip
    most = min(protocol.max_burst_calls, MAX_PLACES // len(one.outputs))
    allowed = ring_bytes(oracle.device, protocol)
    if oracle.device.type != "cuda":
        slots = min(most, allowed // max(1, one.input_bytes + one.output_bytes))
        return replace(one, num_slots=max(1, slots)), 0
    # there memory takes time to be made
    draw, spare_us = oracle.draw(1), SPARE_SLOTS * protocol.burst_us
    a_call_us = call_us(oracle, draw, long_us=spare_us / LEAST_SLOTS)
    most = min(most, max(LEAST_SLOTS, round(spare_us / a_call_us)))
    return shared(
        one, most=most, allowed=allowed, room=int(WITH_ARENA * ring_share(oracle.device)),
        call_bytes=call_bytes(oracle, draw),
    )  # fmt: skip


def shared(
    one: Layout, *, most: int, allowed: int, room: int, call_bytes: int
) -> tuple[Layout, int]:
    """As many slots as a GPU has room for, `most` or fewer but at least one, and their arena.

    The slots of `one` may take `allowed` bytes, and with the arena `room`. Two, which tell an
    output that is handed out twice, are given as long as they are allowed. The arena is never less
    than what the reference needs: who needs more has its outputs copied, and pays for that.
    """
    kept = sum(allocated_bytes(spec.num_bytes) for spec in one.outputs)
    slot_bytes = max(1, one.input_bytes + one.output_bytes)
    beside = max(0, call_bytes - kept) + LEAST_ARENA  # the call's own output is kept
    slots = min(most, allowed // slot_bytes)
    slots = max(1, min(slots, max(2, (room - beside) // (slot_bytes + kept))))
    needed = beside + slots * kept
    wanted = needed + (ARENA_MARGIN - 1) * call_bytes
    arena = max(needed, min(wanted, room - slots * slot_bytes))
    return replace(one, num_slots=slots), arena


def ring_bytes(device: torch.device, protocol: EvalProtocol) -> int:
    """For the inputs and outputs of a burst, at most."""
    if device.type != "cuda":
        return protocol.ring_bytes
    return min(protocol.ring_bytes, ring_share(device))


def ring_share(device: torch.device) -> int:
    """Of a GPU's memory, what inputs and outputs in one ring may take."""
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    return max(total - CONTEXTS_BYTES, total // 2) // SHARE


def call_us(oracle: Oracle, draw: Draw, *, long_us: float) -> float:
    """About how long one call of the reference takes when calls follow each other.

    How much longer than `long_us` is not looked at closely.
    """
    import torch

    times = list[float]()
    for count in TRIED_CALLS:
        started = time.perf_counter()
        for _ in range(count):
            oracle.key(draw)
        if oracle.device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1e6 / count)
        if len(times) > 1 and min(times) > long_us:  # the first one also loads programs
            break
    return min(times)


def call_bytes(oracle: Oracle, draw: Draw) -> int:
    """What one call of the reference takes of a GPU at most, beside its inputs."""
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    oracle.key(draw)
    return torch.cuda.max_memory_allocated() - before


def allocated_bytes(num_bytes: int) -> int:
    """What one of many tensors of that size takes of an arena, about."""
    if num_bytes >= LARGE_BYTES:
        return -(-num_bytes // LARGE_STEP) * LARGE_STEP
    return round(OUTPUTS_MARGIN * num_bytes + ARENA_STEP)
