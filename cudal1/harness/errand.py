"""What the process of a `fleet`'s device is asked to do, and does.

Threat: none new; it is a judge's, and runs no candidate code.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError, WorkerError
from cudal1.harness import known_references
from cudal1.harness.device import Device
from cudal1.harness.judge import Judgement
from cudal1.harness.launch import Source, launch
from cudal1.harness.pending import Pending
from cudal1.harness.pools import Pools, import_once
from cudal1.harness.progress import Failure
from cudal1.harness.trials import Found, Trial
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

_stack = ExitStack()
_pool: Pools | None = None
"""Of a judge's process; the coordinator has none."""
_coming: Future[Source] | None = None
"""What was begun for the next pool."""
_found: dict[str, Found] = {}
"""What trials have found, by the problem's id."""


@dataclass(frozen=True)
class Errand:
    """One candidate to judge."""

    problem: Problem
    candidate: Candidate
    timing: bool
    first: Judgement | None = None
    """What was said before, mostly by another device, when this is asked to confirm it."""
    refused_by: tuple[str, ...] = ()
    """Devices that could not confirm it."""
    num_lost: int = 0
    """Judges that died with it."""
    not_built: Failure | None = None
    """Why it could not be, if that was tried."""
    built: bytes = b""
    """What was compiled ahead; only while it is asked."""
    record: float | None = None
    """The problem's best certified speedup when it was asked."""
    elsewhere: bool = False
    """Whether a large claim will be confirmed by another device; only while it is asked."""
    trial: Trial | None = None
    """Finds out before whether the problem can be judged; None: that is known."""


@dataclass(frozen=True)
class Refusal:
    """Why a candidate could not be judged, which is no verdict: our machinery or the problem."""

    problem_id: str
    candidate_id: str
    reason: str


def begin_zygote(device: Device) -> None:
    """Start what forks workers for the next pool, on this device, while something else is done.

    It imports PyTorch anew, which takes seconds. It needs no lock: it does not use the device.
    """
    global _coming
    if _coming is None:
        _coming = ThreadPoolExecutor(1).submit(_begin, device)


def _begin(device: Device) -> Source:
    """Start what forks workers; meanwhile import what the pool's own processes will need."""
    with ThreadPoolExecutor(1) as beside:
        importing = beside.submit(import_once)
        source = launch(device)
        importing.result()
    return source


def open_pool(device: Device, protocol: EvalProtocol, wait_s: float) -> None:
    """Lock the device and get ready.

    Raises:
        DeviceError: another process is judging on it.
        WorkerError: what forks workers does not start.
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
    """What forks workers: what was begun, if that is there, else another one."""
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


def judge(asked: Errand) -> Judging | Refusal:
    """Begin with what the pool says, unless it is known that the problem cannot be judged."""
    assert _pool is not None
    found = _known(asked, _pool.device)
    if found is not None and found.reason is not None:
        return Refusal(asked.problem.id, asked.candidate.id, found.reason)
    first = asked.first.verdict if asked.first else None
    if first is not None and first.measurement is not None:
        pending = _pool.confirm(asked.problem, asked.candidate, first, built=asked.built)
    else:
        pending = _pool.judge(
            asked.problem, asked.candidate, timing=asked.timing, record=asked.record,
            built=asked.built, not_built=asked.not_built, elsewhere=asked.elsewhere,
            trial=None if found else asked.trial,
        )  # fmt: skip
    return Judging(asked, pending, _pool.device)


def _known(asked: Errand, device: Device) -> Found | None:
    """Return what this run or an earlier one has found of a problem."""
    if asked.trial is None:
        return None
    found = _found.get(asked.problem.id) or asked.trial.known(asked.problem, device)
    if found is not None:
        _found[asked.problem.id] = found
    return found


class Judging:
    """What the pool will say of one errand (`isolated.Later`)."""

    def __init__(self, asked: Errand, pending: Pending, device: Device) -> None:
        self._asked = asked
        self._device = device
        self.awaited, self.until, self.is_known = pending.awaited, pending.until, pending.is_known
        self._pending = pending

    def result(self) -> Judgement | Refusal:
        """Return it.

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
        return replace(said, found=None, note=found and found.note)

    def _keep(self, found: Found | None) -> None:
        if found is not None and self._asked.trial is not None:
            _found[self._asked.problem.id] = found
            self._asked.trial.keep(self._asked.problem, self._device, found)
