"""Plan the memory of a problem's bursts: slots in a ring, and an arena behind them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cudal1.harness.oracle.oracle import Draw, Oracle
from cudal1.harness.shared.wire import MAX_PLACES, Layout
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:
    import torch

LEAST_SLOTS = 16
"""Number of calls that a GPU's ring must hold, for checks."""
SPARE_SLOTS = 3.0
"""Number of slots for each call that a timed burst is expected to have; a fast candidate gets more
calls."""
TRIED_CALLS = (1, 1, 3, 10)
CONTEXTS_BYTES, SHARE = 10 << 30, 16
"""Bytes that a dozen processes take of a GPU before any has a ring. All rings and the judge's own
copies take up to so many times one ring, each ring with an arena behind it. Seven rings may be
alive: a candidate's two, the next one's, the reference's two, two of others that end."""
SHARE_OF_A_LANE = 10
"""The same number for each of several judges. It has its candidate's ring, the reference's, and one
of a process that ends, each with its arena, and the judge's own two copies."""
WITH_ARENA = 1.5
"""Factor of a ring with its arena over a ring's share."""
ARENA_MARGIN, OUTPUTS_MARGIN, ARENA_STEP, LEAST_ARENA = 2, 1.5, 512, 64 << 20
"""Factor for the memory of a call; factor and added bytes for each output; least bytes of an arena
beside outputs. An allocator rounds up, and keeps what it had."""
LARGE_BYTES, LARGE_STEP = 10 << 20, 2 << 20
"""Bytes from which PyTorch's allocator has a piece for each tensor, and the steps of a piece's
size."""


def layout_and_arena(
    oracle: Oracle, protocol: EvalProtocol, *, num_lanes: int = 1
) -> tuple[Layout, int]:
    """Return the layout, with as many slots as bursts may use, and the bytes of its arena.

    On a GPU the arena holds what the reference's calls want in a burst that keeps all outputs. A
    candidate that needs more takes it elsewhere, and has its outputs copied. A CPU has no arena.
    """
    one = Layout(oracle.weight_specs, oracle.storages, oracle.output_specs, 1, oracle.input_views)
    most = min(protocol.max_burst_calls, MAX_PLACES // len(one.outputs))
    allowed = ring_bytes(oracle.device, protocol, num_lanes)
    if oracle.device.type != "cuda":
        slots = min(most, allowed // max(1, one.input_bytes + one.output_bytes))
        return replace(one, num_slots=max(1, slots)), 0
    # on a GPU memory takes time to be made, so no more slots than will be used
    draw, spare_us = oracle.draw(1), SPARE_SLOTS * protocol.burst_us
    a_call_us = call_us(oracle, draw, long_us=spare_us / LEAST_SLOTS)
    most = min(most, max(LEAST_SLOTS, round(spare_us / a_call_us)))
    room = int(WITH_ARENA * ring_share(oracle.device, num_lanes))
    return shared(one, most=most, allowed=allowed, room=room, call_bytes=call_bytes(oracle, draw))


def shared(
    one: Layout, *, most: int, allowed: int, room: int, call_bytes: int
) -> tuple[Layout, int]:
    """Return the layout with as many slots as a GPU has room for, and the bytes of its arena.

    There are at most `most` slots, and at least one. The slots of `one` may take `allowed` bytes,
    and `room` bytes with the arena. Two slots tell an output that is handed out twice, so there are
    two as long as they are allowed. The arena is never less than what the reference needs. A
    candidate that needs more has its outputs copied, and pays for that.
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


def ring_bytes(device: torch.device, protocol: EvalProtocol, num_lanes: int = 1) -> int:
    """Return the bytes that the inputs and outputs of a burst may take."""
    if device.type != "cuda":
        return protocol.ring_bytes
    return min(protocol.ring_bytes, ring_share(device, num_lanes))


def ring_share(device: torch.device, num_lanes: int) -> int:
    """Return the bytes of a GPU's memory that inputs and outputs in one ring may take."""
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    share = SHARE if num_lanes == 1 else SHARE_OF_A_LANE * num_lanes
    return max(total - CONTEXTS_BYTES * -(-num_lanes // 2), total // 2) // share


def is_large(ring_bytes: int, device: torch.device, num_lanes: int) -> bool:
    """Return whether a ring with its arena takes more than its share of a GPU.

    One slot may do so. There is no room then for workers that only wait.
    """
    return device.type == "cuda" and ring_bytes > WITH_ARENA * ring_share(device, num_lanes)


def call_us(oracle: Oracle, draw: Draw, *, long_us: float) -> float:
    """Return roughly the microseconds of one of several calls of the reference in a row.

    Above `long_us` the result is not exact.
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
        if len(times) > 1 and min(times) > long_us:  # the first call also loads programs
            break
    return min(times)


def call_bytes(oracle: Oracle, draw: Draw) -> int:
    """Return the bytes that one call takes of a GPU at most, beside its inputs."""
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    oracle.key(draw)
    return torch.cuda.max_memory_allocated() - before


def allocated_bytes(num_bytes: int) -> int:
    """Return roughly the bytes that one of many tensors of a size takes of an arena."""
    if num_bytes >= LARGE_BYTES:
        return -(-num_bytes // LARGE_STEP) * LARGE_STEP
    return round(OUTPUTS_MARGIN * num_bytes + ARENA_STEP)
