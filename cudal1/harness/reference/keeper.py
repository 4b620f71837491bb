"""Run a problem's code below a keeper, a process that lets nothing of the problem outlive it.

A problem's file may start processes that leave its group and session, or kill its parent. The
keeper is that parent. It is a subreaper: processes that lose their parent become its children. It
ends them all once the problem's process has ended, or when it is asked to. Threat: none new; a
keeper holds nothing and answers nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
STREAMS = (0, 1, 2)
END_LIMIT_S = 5.0
"""Seconds that a keeper may take to end after it is asked to; a stopped keeper never ends by
itself."""
REAP_S = 0.005
"""Seconds between killing processes and reaping them again."""
STOPPED = 128 + signal.SIGSTOP
"""Exit status of a keeper after its problem has stopped; no time limit ends a stopped process."""
WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def fork_kept(run: Callable[[], NoReturn]) -> int:
    """Fork a keeper, below which another process calls `run`; return the keeper's process id.

    The keeper ends as the process that calls `run` does: with the same exit status, or by the same
    signal. If that process stops (SIGSTOP), the keeper ends it and exits with status `STOPPED`.
    """
    keeper = os.fork()
    if keeper:
        return keeper
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        _die_with_parent()
        adopt_orphans()
        problem = os.fork()
        if problem == 0:
            _die_with_parent()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
            run()
        close_all_but()  # a pipe that the problem closes is closed, since the keeper holds no copy
        _end_as(_keep(problem))
    finally:
        os._exit(1)


def close_all_but(*kept: int) -> None:
    """Close all inherited files, except standard streams and some others; their numbers stay taken.

    A problem that writes to descriptors at random, or that leaves a process behind, must not reach
    the pipes and locks of the process that forked it. The fork also inherits Python objects that
    own these descriptors: sockets, files, suspended context managers. Each closes its number, and
    may write to it, when it is freed, which the collector does at any time. If the number were
    free, a later open would get it, and an inherited object would close a file of the fork's own.
    So each number leads to `/dev/null` until its owner closes it. Inherited garbage is not
    collected at all.
    """
    gc.freeze()
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    spared = {*STREAMS, nowhere, *kept}
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 -- numbers, not paths
        if number not in spared and _is_open(number):
            os.dup2(nowhere, number, inheritable=False)
    os.close(nowhere)


def _is_open(number: int) -> bool:
    """Return whether a descriptor is open; that of a finished listing of descriptors is not."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def end_kept(keeper: int, *, patience_s: float = 0.0) -> int:
    """End a keeper and all that it keeps; return its wait status.

    Args:
        keeper: its process id; a keeper that has ended is only reaped.
        patience_s: seconds in which the problem's process may end by itself.
    """
    handle = os.pidfd_open(keeper)
    try:
        has_ended = select.select([handle], [], [], patience_s)[0]
        for number in (signal.SIGTERM, signal.SIGKILL):
            if has_ended:
                break
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            has_ended = select.select([handle], [], [], END_LIMIT_S)[0]
    finally:
        os.close(handle)
    return os.waitpid(keeper, 0)[1]


def adopt_orphans() -> None:
    """Make descendants that lose their parents children of this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_children() -> dict[int, int]:
    """End all descendants of this process; return wait statuses by process id."""
    found: dict[int, int] = {}
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        found |= _reaped()
        time.sleep(REAP_S)
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep(problem: int) -> int:
    """Wait for the problem's end or for SIGTERM, end the rest, and return the problem's status."""
    found: dict[int, int] = {}
    is_asked = is_stopped = False
    while problem not in found and not is_asked and not is_stopped:
        is_asked = signal.sigwait(WATCHED) == signal.SIGTERM
        found |= _reaped()
        is_stopped = problem not in found and _is_stopped(problem)
    ended = (found | end_children())[problem]
    return STOPPED << 8 if is_stopped else ended


def _is_stopped(child: int) -> bool:
    options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, child, options) is not None


def _reaped() -> dict[int, int]:
    """Reap children that have ended; return wait statuses by process id."""
    found: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                break
            found[process] = status
    return found


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF if os.WIFEXITED(status) else 1)
