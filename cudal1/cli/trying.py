"""Trying the references of a suite on the devices that are to judge, side by side."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Future,
    ThreadPoolExecutor,
    wait,
)

from cudal1.cli.bar import bar
from cudal1.cli.settings import Settings
from cudal1.errors import DeviceLostError, SuiteError, WorkerError
from cudal1.harness import errand
from cudal1.harness.device import Device
from cudal1.harness.mutants import kill_table
from cudal1.harness.seats import Seat
from cudal1.problem import Admission, Problem
from cudal1.suite.admission import admit_all
from cudal1.suite.trial import TOO_SLOW

AT_A_TIME = 16
"""Problems that are tried by one new process, which imports PyTorch first."""

Notes = dict[str, str | None]
"""By the id of a problem that can be judged: what its check would let through, if anything."""


def try_references(
    problems: Sequence[Problem], seats: Sequence[Seat], settings: Settings, *, wait_s: float
) -> tuple[Notes, list[str]]:
    """What is known of each problem that can be judged, and a line on each that cannot.

    Raises:
        DeviceError: another process is judging on a device.
        WorkerError: the processes of all devices have died, or they themselves.
    """
    unique = list({problem.id: problem for problem in problems}.values())
    size = max(1, min(AT_A_TIME, -(-len(unique) // len(seats))))
    batches = deque(unique[first : first + size] for first in range(0, len(unique), size))
    free, running = deque(seats), dict[Future[tuple[Notes, list[str]]], Seat]()
    given: dict[Seat, list[Problem]] = {}
    notes: Notes = {}
    complaints: list[str] = []
    lost: list[str] = []
    """What devices said that compute no more."""
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
                said = "; ".join(lost) or "every process that is to judge has died"
                raise WorkerError(f"{said}: start again")
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                seat = running.pop(future)
                try:
                    found, refused = future.result()
                except BrokenExecutor:
                    batches.append(given[seat])
                    continue
                except DeviceLostError as error:
                    batches.append(given[seat])
                    lost.append(str(error))
                    continue
                free.append(seat)
                notes |= found
                complaints += refused
                for _ in range(len(found) + len(refused)):
                    advance()
    return notes, [*lost, *sorted(complaints)]


def _try(
    batch: list[Problem], device: Device, settings: Settings, wait_s: float
) -> tuple[Notes, list[str]]:
    """In the process of a device."""
    notes: Notes = {}
    complaints: list[str] = []
    with device.locked(wait_s=wait_s):
        errand.begin_zygote(device)  # whoever tries references judges next
        for problem, admission in admissions(batch, settings):
            try:
                if not admission.admitted:
                    raise SuiteError(f"{problem.key}: cannot be judged: {admission.reason}")
                notes[problem.id] = kill_table(problem, settings.protocol, device).rejection
            except SuiteError as error:
                complaints.append(str(error))
        if complaints:
            device.require_working()  # or that is why
    return notes, complaints


def admissions(batch: list[Problem], settings: Settings) -> Iterator[tuple[Problem, Admission]]:
    """Each with its admission, which a process of its own decides on while the last one is used."""
    limit_ms = settings.max_reference_ms
    slow: list[Problem] = []
    with ThreadPoolExecutor(1) as beside:
        tried = admit_all(batch, max_reference_ms=limit_ms)
        coming = beside.submit(next, tried, None)
        importlib.import_module("torch._dynamo")  # seconds; whoever intercepts operators needs it
        while (pair := coming.result()) is not None:
            coming = beside.submit(next, tried, None)
            if (pair[1].reason or "").startswith(TOO_SLOW):
                slow.append(pair[0])
            else:
                yield pair
    yield from admit_all(slow, max_reference_ms=limit_ms)  # with nobody beside them
