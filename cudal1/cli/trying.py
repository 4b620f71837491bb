"""Trying the references of a suite on the devices that are to judge, side by side."""

from __future__ import annotations

import importlib
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
from cudal1.errors import DeviceError, DeviceLostError, SuiteError, WorkerError
from cudal1.harness import errand
from cudal1.harness.device import Device
from cudal1.harness.mutants import kill_table
from cudal1.harness.seats import Seat
from cudal1.harness.shortage import lacks_memory
from cudal1.problem import Admission, Problem
from cudal1.suite.admission import admit_all
from cudal1.suite.trial import TOO_SLOW

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
    size = max(1, min(AT_A_TIME, -(-len(unique) // len(seats))))
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
    """In the process of a device."""
    notes: Notes = {}
    complaints: list[str] = []
    with device.locked(wait_s=wait_s):
        errand.begin_zygote(device)  # whoever tries references judges next
        disturbed: list[Problem] = []
        for problem, admission in admissions(batch, settings):
            said = _try_one(problem, admission, device, settings, notes)
            if said and (TOO_SLOW in said or lacks_memory(said)):
                disturbed.append(problem)  # by the other one, it may be
            elif said:
                complaints.append(said)
        with_nobody_beside = admit_all(disturbed, max_reference_ms=settings.max_reference_ms)
        for problem, admission in with_nobody_beside:
            if said := _try_one(problem, admission, device, settings, notes):
                complaints.append(said)
        if complaints:
            device.require_working()  # or that is why
    return notes, complaints


def _try_one(
    problem: Problem, admission: Admission, device: Device, settings: Settings, notes: Notes
) -> str:
    """Why it cannot be judged; otherwise nothing, and its note is taken."""
    if not admission.admitted:
        return f"{problem.key}: cannot be judged: {admission.reason}"
    try:
        notes[problem.id] = kill_table(problem, settings.protocol, device).rejection
    except SuiteError as error:
        return str(error)
    return ""


def admissions(batch: list[Problem], settings: Settings) -> Iterator[tuple[Problem, Admission]]:
    """Each with its admission, which a process of its own decides on while the last one is used."""
    with ThreadPoolExecutor(1) as beside:
        tried = admit_all(batch, max_reference_ms=settings.max_reference_ms)
        coming = beside.submit(next, tried, None)
        importlib.import_module("torch._dynamo")  # seconds; whoever intercepts operators needs it
        while (pair := coming.result()) is not None:
            coming = beside.submit(next, tried, None)
            yield pair
