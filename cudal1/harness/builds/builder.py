"""A builder compiles candidates' extensions ahead, in parallel, without a device or a network.

While one candidate is measured, others are built on cores that no judge needs. A builder has a
worker import a candidate's source, construct its module and call it (`worker.building`), to make it
compile. It keeps the result for the processes that are to judge the candidate. Anything else that
the source does there, or cannot do without a device, has no consequence. A compiler's error on a
line of the source is a verdict. Every other obstacle to a build is left to the judge.

Threat: as for any worker, which it is: no answers, no secret, no clock, and none of the cores on
which a worker is timed or a judge times. Its result is read only by processes with the same
source. A source that pretends that it cannot be compiled counts as not built.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from cudal1.candidate import Candidate
from cudal1.errors import CudaL1Error
from cudal1.harness.builds.build_cache import BuildCache
from cudal1.harness.builds.toolchain import compiles_without, fingerprint
from cudal1.harness.device.device import Device, num_lanes_of
from cudal1.harness.device.quiet import unreadable
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.exchange.problem_workers import CANDIDATE, TRAINS, cpu_limit_s
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.sandbox.rings import host_ring
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.sources import packed_source
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.screen.screen import MAX_SOURCE_BYTES, syntax_error
from cudal1.harness.shared.wire import Job, Layout, State
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

COMPILER_BYTES, FOLDER_BYTES = 4 << 30, 1 << 30
"""Bytes that a candidate's build may take. COMPILER_BYTES is address space: PyTorch's headers cost
a compiler more than a gigabyte for each file. FOLDER_BYTES is for the folder's files, which are
memory, too."""
HAND_OVER_S = 30.0
LOOK_S = 0.02
RING_BYTES = 4096
PROCESSES = {DeviceClass.CUDA: 1.6, DeviceClass.CPU: 1.0, DeviceClass.FAKE: 1.0}
"""Compilers that one extension keeps busy, in the mean: of C++, and of both halves of CUDA, it has
three at most (docs/log/2026-11-30-idle-gpu.md). A core left over has one more extension begun."""
BESIDE = 2
"""One of this many workers builds during a measurement, at least. Where all cores are busy, bursts
differ by more, and a verdict takes two or three times as long
(docs/log/2026-11-25-issue4-h200.md)."""
JUDGES_LEFT = 2
"""Least number of judges that have a core without compilers while all that is left waits for
builds: one judges what was just built, and one is asked next."""
NOTHING = Layout((), (), (), 1)
MAX_FAILED_STARTS = 2
"""Failed starts in a row after which nothing is built ahead."""


class Builder:
    """Compiles candidates ahead while it is open.

    Args:
        devices: the devices that judge. Their workers' cores are left alone, and during
            measurements one more for each judge.
        protocol: the protocol that judges the candidates.
        folder: the folder of finished builds; several builders may share it.
        num_workers: builds in parallel; by default as many as cores and memory allow. Then as many
            of them as have cores that no judge needs build during a measurement.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        protocol: EvalProtocol,
        folder: Path,
        *,
        num_workers: int | None = None,
    ) -> None:
        self._devices = {
            makes_room: Device(
                device_class=DeviceClass.CPU,
                kind="builder",
                id="builder",
                worker_core=None,
                reserved_cores=judges_cores(devices, is_measured=makes_room),
                arch=devices[0].arch,
            )
            for makes_room in (True, False)
        }
        """Cores of builds, by whether a measurement goes on when they begin."""
        self._builds_for = devices[0].device_class
        self._protocol = protocol
        self._folder = folder
        if num_workers is None:
            self.num_workers, self._num_beside = num_idle(devices), num_beside(devices)
        else:
            self.num_workers, self._num_beside = num_workers, _beside(num_workers)
        self.complaint = ""
        """The reason why nothing is built ahead; empty while builds go on."""
        self._makes_room = False
        self._num_building = 0
        self._in_line = list[int]()
        """Numbers of the requests that have not begun, in their order."""
        self._num_asked = 0
        self._open = ExitStack()
        self._threads: ThreadPoolExecutor | None = None
        self._kept: BuildCache | None = None
        self._zygotes: dict[Device, Zygote] = {}
        self._num_failed = 0
        self._begun: dict[str, tuple[int, Future[Failure | None]]] = {}
        """Each candidate's number and build: several callers may want the same one."""
        self._beginning = threading.Lock()
        self._starting = threading.Lock()
        """Lets one thread at a time use the zygotes."""
        self._is_closing = threading.Event()

    def __enter__(self) -> Self:
        """Open the folder.

        Raises:
            ConfigError: it cannot be used.
        """
        self._kept = BuildCache(self._folder, fingerprint(self._devices[True].arch))
        self._open.callback(self._kept.close)
        self._open.enter_context(unreadable())
        self._open.callback(self._end_zygotes)
        if self.num_workers > 0:
            self._threads = ThreadPoolExecutor(self.num_workers, "builder")
            self._open.callback(self._threads.shutdown, cancel_futures=True)
        self._open.callback(self._is_closing.set)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def make_room(self, *, wanted: bool) -> None:
        """Set whether a measurement goes on: during one, most workers begin nothing.

        Otherwise builds begin on cores of judges, too, which have little to do.
        """
        self._makes_room = wanted

    def takes(self, candidate: Candidate) -> bool:
        """Return whether to build it ahead: it may compile, and has not been built."""
        is_able = self._threads is not None and not self.complaint
        may = may_compile(candidate.source, self._builds_for)
        return is_able and may and candidate not in self.kept

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        """Build a candidate once, in its turn; the future gives a compile error or None."""
        assert self._threads is not None, "no core is left to build on"
        with self._beginning:
            if candidate.id not in self._begun:
                number, self._num_asked = self._num_asked, self._num_asked + 1
                self._in_line.append(number)
                future = self._threads.submit(self._build, problem, candidate, number)
                self._begun[candidate.id] = number, future
            return self._begun[candidate.id][1]

    def pass_over(self, candidate: Candidate) -> None:
        """Cancel the build of a candidate, if it has not begun."""
        with self._beginning:
            number, future = self._begun.get(candidate.id, (-1, None))
            if number in self._in_line and future is not None:
                self._in_line.remove(number)
                future.cancel()  # unless its thread waits for its turn, which it then gives up
                del self._begun[candidate.id]

    def content(self, candidate: Candidate) -> bytes:
        """Return the candidate's build; empty if it is unknown."""
        return self.kept.of(candidate)

    def serves(self, machine: str) -> bool:
        """Return whether its builds can be used on a machine: only on this one."""
        return not machine

    @property
    def kept(self) -> BuildCache:
        """The builds of this builder and others."""
        assert self._kept is not None, "the builder is not open"
        return self._kept

    # --- in a thread -----------------------------------------------------------------------------

    def _build(self, problem: Problem, candidate: Candidate, number: int) -> Failure | None:
        with self._turn(number) as is_its:
            if not is_its or candidate in self.kept:
                return None
            return self._built(problem, candidate, self.kept)

    @contextmanager
    def _turn(self, number: int) -> Iterator[bool]:
        """Wait until the build may begin; yield False if it never may."""
        while not self._may_build(number):
            if number not in self._in_line or self._is_closing.wait(LOOK_S):
                yield False
                return
        try:
            yield True
        finally:
            with self._beginning:
                self._num_building -= 1

    def _may_build(self, number: int) -> bool:
        with self._beginning:
            most = self._num_beside if self._makes_room else self.num_workers
            may = self._in_line[:1] == [number] and self._num_building < most
            if may:
                self._in_line.remove(number)
                self._num_building += 1
            return may

    def _built(self, problem: Problem, candidate: Candidate, kept: BuildCache) -> Failure | None:
        worker = self._started(problem, candidate)
        if worker is None:
            return None
        with worker:
            # other processes may use the cores: a build that takes longer is left to the judge
            patience = Patience(
                self._protocol.build_timeout_s,
                idle_s=self._protocol.start_timeout_s,
                look=worker.computed,
                counts_own=True,
            )
            patience.begin()
            while worker.state == State.STARTING and worker.is_alive():
                if patience.is_over() or self._is_closing.wait(LOOK_S):
                    return None
            if worker.state == State.BUILD_FAILED:
                return Failure(Status.NO_BUILD, worker.display_text())
            # elsewhere its folder has another name, which compilers have recorded
            if worker.state == State.READY and "private_folder" in worker.layers:
                kept.keep(candidate, worker.hand_over(HAND_OVER_S))
        return None

    def _started(self, problem: Problem, candidate: Candidate) -> Worker | None:
        """Start a worker that compiles; return None where none starts: the judge reports why."""
        job = Job(
            device=DeviceClass.CPU.value,
            entry=CANDIDATE,
            init_inputs="[]",
            weight_names=(),
            layout=NOTHING,
            seed=self._protocol.seed,
            memory_bytes=COMPILER_BYTES,
            cpu_s=cpu_limit_s(self._protocol),
            core=None,
            folder="",
            ring_bytes=RING_BYTES,
            allow_tf32=False,
            builds_for=self._builds_for.value,
            problem=packed_source(problem.source),
            trains=TRAINS[self._protocol.mode],
        )
        with self._starting:
            if self._is_closing.is_set() or self.complaint:
                return None
            try:
                zygote = self._zygote(self._devices[self._makes_room])
                worker = zygote.start(job, host_ring(RING_BYTES), candidate.source)
            except (CudaL1Error, OSError) as error:
                self._num_failed += 1
                if self._num_failed >= MAX_FAILED_STARTS:
                    self.complaint = not_ahead(error)
                return None
            self._num_failed = 0
            return worker

    def _zygote(self, device: Device) -> Zygote:
        """Return the process that forks workers for some cores, started if need be."""
        zygote = self._zygotes.pop(device, None)
        if zygote is not None and not zygote.is_alive():
            self._end(zygote)
            zygote = None
        self._zygotes[device] = zygote or Zygote(device, unsafe=self._protocol.unsafe)
        return self._zygotes[device]

    def _end_zygotes(self) -> None:
        while self._zygotes:
            self._end(self._zygotes.popitem()[1])

    def _end(self, zygote: Zygote) -> None:
        with suppress(CudaL1Error, OSError):
            zygote.close()


def may_compile(source: str, device_class: DeviceClass) -> bool:
    """Return whether a source is worth running ahead for what it compiles on such a device.

    A source that hides that it compiles is compiled where it is judged.
    """
    is_short = len(source) <= MAX_SOURCE_BYTES
    return is_short and compiles_without(source, device_class) and syntax_error(source) is None


def not_ahead(why: object) -> str:
    """Return a complaint, in one line."""
    return f"extensions are not compiled ahead: {' '.join(str(why).split())}"


def judges_cores(devices: Sequence[Device], *, is_measured: bool) -> tuple[int, ...]:
    """Return the cores of the devices' workers, and the first others, one for each judge.

    Where nothing is measured but what was just built, only a few judges have one: all that time
    (`quiet.timing_core`), and `JUDGES_LEFT` at least.
    """
    reserved = {core for each in devices for core in each.reserved_cores}
    others = sorted(os.sched_getaffinity(0) - reserved)
    num_judges = sum(num_lanes_of(each) for each in devices)
    num_kept = num_judges
    if not is_measured:
        num_kept = min(num_judges, max(JUDGES_LEFT, *(each.index + 1 for each in devices)))
    return tuple(sorted(reserved | set(others[:num_judges][-num_kept:])))


def num_idle(devices: Sequence[Device]) -> int:
    """Return how many builds fit: on the remaining cores, in half the available memory.

    None fit where each core is a judge's or a worker's.
    """
    processes = PROCESSES[devices[0].device_class]
    cores = _num_cores(devices, is_measured=False) if num_beside(devices) else 0
    each_bytes = COMPILER_BYTES + FOLDER_BYTES + 2 * RING_BYTES
    by_cores = math.ceil(cores / processes)
    return max(0, min(by_cores, psutil.virtual_memory().available // 2 // each_bytes))


def num_beside(devices: Sequence[Device]) -> int:
    """Return how many builds may run during a measurement, at most as many as have cores."""
    processes = PROCESSES[devices[0].device_class]
    most = math.ceil(_num_cores(devices, is_measured=False) / processes)
    return min(math.ceil(_num_cores(devices, is_measured=True) / processes), _beside(most))


def _beside(num_workers: int) -> int:
    """Return how many of these workers build during a measurement."""
    return max(1, -(-num_workers // BESIDE))


def _num_cores(devices: Sequence[Device], *, is_measured: bool) -> int:
    return len(os.sched_getaffinity(0) - set(judges_cores(devices, is_measured=is_measured)))
