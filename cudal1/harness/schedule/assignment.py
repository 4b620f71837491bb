"""Judge in the process of a device what a `fleet` asks for.

Threat: none new; the process is a judge's, and runs no candidate code.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Thread
from typing import TYPE_CHECKING

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError, WorkerError
from cudal1.harness.admission import known_references
from cudal1.harness.admission.admission import Found
from cudal1.harness.device.device import Device
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.judgement import Judgement
from cudal1.harness.sandbox.launch import Source, launch
from cudal1.harness.schedule.importing import import_once
from cudal1.harness.schedule.pending import Pending
from cudal1.harness.schedule.pools import Pools
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:  # it imports PyTorch, which a coordinator does without
    from cudal1.harness.admission.trying import ReferenceTrial

_stack = ExitStack()
_pool: Pools | None = None
"""The pool of a judge's process; the coordinator has none."""
_coming: Future[Source] | None = None
"""The zygote's process that was begun for the next pool."""
_importing: Thread | None = None
"""The thread that imports PyTorch for the next pool."""
_found: dict[str, Found] = {}
"""Results of trials, by the problem's id."""


@dataclass(frozen=True)
class Assignment:
    """One candidate to judge."""

    problem: Problem
    candidate: Candidate
    timing: bool
    first: Judgement | None = None
    """The judgement that this is to confirm, mostly another device's; None: there is none."""
    refused_by: tuple[str, ...] = ()
    """Ids of devices that could not confirm it."""
    num_lost: int = 0
    """Number of judges that died with it."""
    not_built: Failure | None = None
    """The failure of its build, if that was tried."""
    built: bytes = b""
    """Code that was compiled ahead; set only while a judge is asked."""
    record: float | None = None
    """The problem's best certified speedup when a judge was asked."""
    elsewhere: bool = False
    """True if another device will confirm a large claim; set only while a judge is asked."""
    trial: ReferenceTrial | None = None
    """The trial that finds out first whether the problem can be judged; None: that is known."""


@dataclass(frozen=True)
class Refusal:
    """The reason why a candidate got no verdict: our machinery or the problem failed."""

    problem_id: str
    candidate_id: str
    reason: str


def get_ready() -> None:
    """Begin to import what a pool will need, on whatever device."""
    global _importing
    if _importing is None:  # a daemon: a process that needs no pool after all does not wait for it
        _importing = Thread(target=import_once, daemon=True)
        _importing.start()


def begin_zygote(device: Device) -> None:
    """Start the zygote's process for the next pool, on this device, while something else is done.

    It imports PyTorch anew, which takes seconds. It needs no lock: it does not use the device.
    """
    global _coming
    if _coming is None:
        _coming = Future()
        Thread(target=_begin_for, args=(_coming, device), daemon=True).start()


def _begin_for(coming: Future[Source], device: Device) -> None:
    try:
        coming.set_result(_begin(device))
    except Exception as error:  # noqa: BLE001 -- for the caller that waits
        coming.set_exception(error)


def _begin(device: Device) -> Source:
    """Start the zygote's process; meanwhile import what the pool's own processes will need."""
    get_ready()
    source = launch(device)
    assert _importing is not None
    _importing.join()
    import_once()  # raises where it failed
    return source


def open_pool(device: Device, protocol: EvalProtocol, wait_s: float) -> None:
    """Lock the device and get ready.

    Raises:
        DeviceError: another process is judging on it.
        WorkerError: the zygote's process does not start.
    """
    global _pool
    known = known_references.of_this_user()
    _found.clear()
    pools = Pools(device, protocol, wait_s=wait_s, start=_started, known=known)
    _pool = _stack.enter_context(pools)


def close_pool() -> None:
    """Give the device back, and end what was begun for a pool that did not open."""
    _stack.close()
    source = _begun()
    if source is not None:
        source.close()


def _started(device: Device) -> Source:
    """Return the zygote's process that was begun, if it is there, else another one."""
    return _begun() or _begin(device)


def _begun() -> Source | None:
    global _coming
    coming, _coming = _coming, None
    try:
        source = None if coming is None else coming.result()
    except WorkerError:
        return None
    if source is not None and not source.is_running():
        source.close()
        return None
    return source


def leave() -> None:
    """End this process as it stands: nothing can be given back to a device that is lost."""
    os._exit(1)


def judge(asked: Assignment) -> Judging | Refusal:
    """Ask the pool, unless it is known that the problem cannot be judged."""
    assert _pool is not None
    found = _known(asked, _pool.device)
    if found is not None and found.reason is not None:
        return Refusal(asked.problem.id, asked.candidate.id, found.reason)
    first = asked.first.verdict if asked.first else None
    if first is not None and first.measurement is not None:
        pending = _pool.confirm(asked.problem, asked.candidate, first, built=asked.built)
    else:
        pending = _pool.judge(
            asked.problem,
            asked.candidate,
            timing=asked.timing,
            record=asked.record,
            built=asked.built,
            not_built=asked.not_built,
            elsewhere=asked.elsewhere,
            trial=None if found else asked.trial,
            call_bytes=found.call_bytes if found else 0,
        )
    return Judging(asked, pending, _pool.device)


def _known(asked: Assignment, device: Device) -> Found | None:
    """Return what this run or an earlier one has found of a problem."""
    if asked.trial is None:
        return None
    found = _found.get(asked.problem.id) or asked.trial.known(asked.problem, device)
    if found is not None:
        _found[asked.problem.id] = found
    return found


class Judging:
    """The pool's answer to one assignment, once it is known (`isolated.Later`)."""

    def __init__(self, asked: Assignment, pending: Pending, device: Device) -> None:
        self._asked = asked
        self._device = device
        self.awaited, self.until, self.is_known = pending.awaited, pending.until, pending.is_known
        self._pending = pending

    def result(self) -> Judgement | Refusal:
        """Return the judgement, or the reason why there is none.

        Raises:
            DeviceLostError: the device computes no more; whatever else is asked will raise it, too.
        """
        problem = self._asked.problem
        try:
            said = self._pending.result()
        except (SuiteError, WorkerError) as error:
            self._keep(getattr(error, "found", None))
            reason = str(error).removeprefix(f"{problem.key}: ")
            return Refusal(problem.id, self._asked.candidate.id, reason)
        self._keep(said.found)
        found = _found.get(problem.id)
        if found is None:
            return replace(said, found=None)
        return replace(said, found=None, note=found.note, invariants=found.invariants)

    def _keep(self, found: Found | None) -> None:
        if found is not None and self._asked.trial is not None:
            _found[self._asked.problem.id] = found
            self._asked.trial.keep(self._asked.problem, self._device, found)
