"""Stop all other processes of a worker's namespace at the judge's word, and let them go on.

The warden is process 1 of the namespace. Threat: between its own bursts a worker, or whatever it
started, burns the core on which its rival is timed. The judge has the only other end of the leash.
The warden runs no candidate code, has given up its capabilities and is not readable. As process 1
it cannot be signalled from inside. A stop is one signal to all processes; the kernel delivers it to
processes that are just being forked, too. A stop is acknowledged only once every thread has been
seen stopped, twice, since an exiting process may wake others. When the warden ends, so does the
namespace. So the warden ends when a process cannot be stopped, wakes by itself, or takes more
memory than it was given. The warden also tells how long processes computed between two stops: the
kernel counts it.

Without a namespace of its own the keeper does this, by the worker's process group. The system-call
filter then lets no process leave that group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from cudal1.harness.shared.wire import COMPUTED, FREEZE, LIMITS, LOOK, THAW, WATCH, WORKED

STOPPED = frozenset("TZXx")
STOP_LIMIT_S = 5.0
"""Seconds after which a process that has not stopped never will: system calls that end are over
long before."""
PATIENCE_S = 0.02
"""Seconds after which a thread that waits in the kernel counts as stopped: such a thread stops
before it computes."""
NAP_S = 0.0001
WATCH_MS = 50
STATE, GROUP, NUM_THREADS, RESIDENT = 0, 2, 17, 21
OWN_TICKS, CHILDREN_S_TICKS = slice(11, 13), slice(13, 15)
"""Places of fields in /proc/PID/stat behind the name; the slices hold ticks in user and in kernel
mode."""
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Look:
    """A look at all processes that a worker started, at one moment."""

    states: set[str]
    """States of all threads."""
    processes: list[tuple[str, list[str]]]
    """Number of each process, and what /proc/PID/stat says behind its name."""

    @property
    def resident_bytes(self) -> int:
        """The bytes that the processes have in memory; pages that are shared count for each."""
        return sum(int(fields[RESIDENT]) * PAGE_BYTES for _, fields in self.processes)


class Warden:
    """A guard of all processes that a worker started."""

    def __init__(self, worker: int, *, in_namespace: bool) -> None:
        self._worker = worker
        self._in_namespace = in_namespace
        self._is_frozen = False
        self._limit_bytes: int | None = None
        self._clocks: dict[str, int] = {}
        self._last_born = ""

    def guard(self, *leashes: int) -> None:
        """Obey the first leash until any leash is let go of, or the worker ends or has to end."""
        poll = select.poll()
        pidfd = os.pidfd_open(self._worker)
        for descriptor in (pidfd, *leashes):
            poll.register(descriptor, select.POLLIN)
        while True:
            waiting = None if self._is_frozen or self._limit_bytes is None else WATCH_MS
            events = [descriptor for descriptor, _ in poll.poll(waiting)]
            if not events and self._is_too_big(self._look()):
                return
            if events and events != [leashes[0]]:
                return
            if events and not self._obey(leashes[0]):
                return

    def _obey(self, leash: int) -> bool:
        said = os.read(leash, 1 + LIMITS.size)
        if said == FREEZE:
            seen = self._freeze()
            done, answer = False, b""
            if seen is not None and not self._is_too_big(seen):
                done, answer = True, WORKED.pack(FREEZE, *self._worked(seen))
        elif said == THAW:
            done, answer = self._thaw(), THAW
        elif said == LOOK:
            done, answer = True, COMPUTED.pack(LOOK, *self._computed(self._look()))
        elif said[:1] == WATCH:
            self._watch(*LIMITS.unpack(said[1:]))
            return True
        else:
            return False
        if done:
            os.write(leash, answer)
        return done

    # --- stopping --------------------------------------------------------------------------------

    def _freeze(self) -> Look | None:
        """Stop all processes; return the last look at them, or None if a process did not stop."""
        started = time.monotonic()
        times_seen = 0
        while True:
            self._signal(signal.SIGSTOP)
            seen = self._look()
            states = seen.states
            elapsed = time.monotonic() - started
            if elapsed > PATIENCE_S:
                states -= {"D"}
            times_seen = times_seen + 1 if states <= STOPPED else 0
            if times_seen == 2:
                self._is_frozen = True
                return seen
            if elapsed > STOP_LIMIT_S:
                return None
            if not times_seen:
                time.sleep(NAP_S)

    def _thaw(self) -> bool:
        """Let all processes go on; return whether all had stayed stopped until then."""
        if self._is_frozen and not self._look().states <= STOPPED | {"D"}:
            return False
        self._is_frozen = False
        self._signal(signal.SIGCONT)
        return True

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._in_namespace:
                os.kill(-1, number)  # all but the sender
            else:
                os.killpg(self._worker, number)

    # --- looking ---------------------------------------------------------------------------------

    def _look(self) -> Look:
        states: set[str] = set()
        processes = self._processes()
        for process, fields in processes:
            if int(fields[NUM_THREADS]) <= 1:
                states.add(fields[STATE])
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                # os.listdir here and below: called at every freeze, and twice as quick as pathlib
                for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
                    of_thread = _stat(f"/proc/{process}/task/{thread}/stat")
                    if of_thread:
                        states.add(of_thread[STATE])
        return Look(states, processes)

    def _processes(self) -> list[tuple[str, list[str]]]:
        if self._in_namespace and os.readlink("/proc/self") != "1":  # noqa: PTH115 - as above
            return []  # no /proc of its own, and no layer `freezer`
        found: list[tuple[str, list[str]]] = []
        for process in os.listdir("/proc"):  # noqa: PTH208 - as above
            if not process.isdecimal() or (self._in_namespace and process == "1"):
                continue
            fields = _stat(f"/proc/{process}/stat")
            if fields and (self._in_namespace or int(fields[GROUP]) == self._worker):
                found.append((process, fields))
        return found

    # --- counting --------------------------------------------------------------------------------

    def _worked(self, seen: Look) -> tuple[int, int, bool]:
        """Return ns computed since the last call, bytes held, and whether any process came or went.

        A process that came and went in between shows by the last number that was given out. Threat:
        numbers begin anew after `confinement.PID_MAX`; so many births take longer than a worker is
        left alone. Without a namespace every process that is born on the machine counts as the
        worker's.
        """
        before, born = self._clocks, self._last_born
        self._clocks = {process: _clock_ns(process) for process, _ in seen.processes}
        self._last_born = Path("/proc/loadavg").read_text().split()[-1]
        worked_ns = sum(
            max(0, now - before.get(process, 0)) for process, now in self._clocks.items()
        )
        held_bytes = sum(_anonymous(process) for process, _ in seen.processes)
        has_changed = before.keys() != self._clocks.keys() or born != self._last_born
        return worked_ns, held_bytes, has_changed

    def _computed(self, seen: Look) -> tuple[int, int]:
        """Return the ns that the worker's own process computed, and those of all that it started.

        Both count from the start of each process. A process that has ended counts with its parent,
        if the parent has waited for it.
        """
        own, all_together = 0, 0
        for process, fields in seen.processes:
            ticks = sum(map(int, fields[OWN_TICKS]))
            all_together += ticks + sum(map(int, fields[CHILDREN_S_TICKS]))
            if int(process) == self._worker:
                own = ticks
        return own * TICK_NS, (all_together - own) * TICK_NS

    # --- memory ----------------------------------------------------------------------------------

    def _watch(self, extra_bytes: int, core: int) -> None:
        self._limit_bytes = self._look().resident_bytes + extra_bytes
        others = os.sched_getaffinity(0) - {core}
        if others:
            os.sched_setaffinity(0, others)

    def _is_too_big(self, seen: Look) -> bool:
        """Return whether all processes together hold too much; pages that are shared count once."""
        if self._limit_bytes is None or seen.resident_bytes <= self._limit_bytes:
            return False
        return sum(_proportional(p, fields) for p, fields in seen.processes) > self._limit_bytes


def _stat(path: str) -> list[str]:
    """Return the fields behind the name, which may hold anything; none if the process has gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, ProcessLookupError):
        return []
    try:
        content = os.read(descriptor, 4096)
    except ProcessLookupError:
        return []
    finally:
        os.close(descriptor)
    return content[content.rindex(b")") + 2 :].decode("ascii").split()


def _clock_ns(process: str) -> int:
    """Return the ns that all threads of a process computed, including threads that ended.

    The number is exact for processes that stand still. For a process that runs, it is what the
    process did before its last tick.
    """
    try:
        # the number of its clock, as clock_getcpuclockid(3) makes it
        return time.clock_gettime_ns((~int(process) << 3) | CPUCLOCK_SCHED)
    except OSError:  # the process has gone
        return 0


def _anonymous(process: str) -> int:
    """Return bytes in memory that are no file's: dropping a library's pages must hide nothing."""
    try:
        with open(f"/proc/{process}/statm", "rb") as told:
            _, resident, of_files, *_ = told.read().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(resident) - int(of_files)) * PAGE_BYTES


def _proportional(process: str, fields: list[str]) -> int:
    """Return the bytes that no file holds, each page divided by the number of its processes.

    Where the process does not let us look, return all resident bytes.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        return int(fields[RESIDENT]) * PAGE_BYTES
    return sum(
        int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
    )
