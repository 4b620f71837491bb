"""Trying the references of a suite on the devices that are to judge, side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Future,
    ThreadPoolExecutor,
    wait,
)

from cudal1.cli.bar import bar
from cudal1.cli.settings import Settings
from cudal1.errors import DeviceError, DeviceLostError, WorkerError
from cudal1.harness import errand, known_references
from cudal1.harness.device import Device, num_lanes_of
from cudal1.harness.pools import require_working
from cudal1.harness.seats import Seat
from cudal1.harness.shortage import lacks_memory
from cudal1.problem import Problem
from cudal1.services.admission import Check, Probe, probe_all
from cudal1.services.trial import TOO_SLOW

AT_A_TIME = 16
"""Problems that are tried by one new process, which imports PyTorch first."""

Notes = dict[str, str | None]
"""By the id of a problem that can be judged: what its check would let through, if anything."""


def try_references(
    problems: Sequence[Problem], seats: Sequence[Seat], settings: Settings, *, wait_s: float
) -> tuple[Notes, list[str], list[Seat]]:
    """What is known of each problem that can be judged, a line on each that cannot, who is left.

    A device that computes no more, or that another process is judging on, has a line, too: it is
    left out.

    Raises:
        DeviceError: other processes are judging on all devices.
        WorkerError: the processes of all devices have died, or they themselves.
    """
    unique = list({problem.id: problem for problem in problems}.values())
    num_lanes = max(num_lanes_of(seat.device) for seat in seats)
    size = max(1, min(AT_A_TIME * num_lanes, -(-len(unique) // len(seats))))
    batches = deque(unique[first : first + size] for first in range(0, len(unique), size))
    free, running = deque(seats), dict[Future[tuple[Notes, list[str]]], Seat]()
    given: dict[Seat, list[Problem]] = {}
    notes: Notes = {}
    complaints: list[str] = []
    left_out: dict[Seat, DeviceError] = {}
    with bar("trying references", len(unique)) as advance:
        while batches or running:
            while batches and free:
                seat, batch = free.popleft(), batches.popleft()
                given[seat] = batch
                try:
                    running[seat.process.submit(_try, batch, seat.device, settings, wait_s)] = seat
                except BrokenExecutor:
                    batches.appendleft(batch)
            if not running:
                raise _none_left(seats, left_out)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                seat = running.pop(future)
                try:
                    found, refused = future.result()
                except BrokenExecutor:
                    batches.append(given[seat])
                    continue
                except DeviceError as error:
                    batches.append(given[seat])
                    left_out[seat] = error
                    continue
                free.append(seat)
                notes |= found
                complaints += refused
                for _ in range(len(found) + len(refused)):
                    advance()
    lines = [f"left out: {error}" for error in left_out.values()]
    return notes, [*lines, *sorted(complaints)], [seat for seat in seats if seat not in left_out]


def _none_left(
    seats: Sequence[Seat], left_out: Mapping[Seat, DeviceError]
) -> DeviceError | WorkerError:
    said = "; ".join(map(str, left_out.values())) or "every process that is to judge has died"
    is_lost = any(isinstance(error, DeviceLostError) for error in left_out.values())
    if len(left_out) == len(seats) and not is_lost:
        return DeviceError(said)  # they are in use, and nothing is wrong
    return WorkerError(f"{said}: start again")


def _try(
    batch: list[Problem], device: Device, settings: Settings, wait_s: float
) -> tuple[Notes, list[str]]:
    """In the process of a device: try each in a process of its own."""
    notes: Notes = {}
    complaints: list[str] = []
    with device.locked(wait_s=wait_s):
        errand.begin_zygote(device)  # this process judges next
        disturbed: list[Problem] = []
        for problem, probe in _probes(batch, device, settings):
            reason = probe.reason
            if reason is None:
                notes[problem.id] = probe.rejection
            elif TOO_SLOW in reason or lacks_memory(reason):
                disturbed.append(problem)  # by what else ran there, it may be
            else:
                complaints.append(f"{problem.key}: cannot be judged: {reason}")
        alone = device.model_copy(update={"lane_cores": ()})
        for problem, probe in _probes(disturbed, alone, settings):
            if probe.reason is None:
                notes[problem.id] = probe.rejection
            else:
                complaints.append(f"{problem.key}: cannot be judged: {probe.reason}")
        if complaints:
            require_working(device)  # or that is why
    return notes, complaints


def _probes(
    batch: list[Problem], device: Device, settings: Settings
) -> Iterator[tuple[Problem, Probe]]:
    """Try them side by side, as they will be judged; each process tries some."""
    check = Check(settings.protocol, device)

    def tried(part: list[Problem]) -> list[tuple[Problem, Probe]]:
        return list(
            probe_all(
                part,
                max_reference_ms=settings.max_reference_ms,
                time_limit_s=settings.trial_limit_s,
                check=check,
                known=known_references.of_this_user(),
            )
        )

    num_lanes = num_lanes_of(device)
    parts = [part for first in range(num_lanes) if (part := batch[first::num_lanes])]
    with ThreadPoolExecutor(num_lanes) as pool:
        for found in pool.map(tried, parts):
            yield from found
