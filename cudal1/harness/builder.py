"""Compiling candidates' extensions ahead, side by side, where there is no device and no network.

While one candidate is measured, others are built on cores that no judge needs. A builder has a
worker import a candidate's source, construct its module and call it (`worker.building`), for what
that compiles, and keeps that for the processes that will be judged; what else the source does
there, or cannot do without a device, says nothing. What a compiler says of a line of the source is
a verdict; whatever else stops a build, the judge finds out.

Threat: as for any worker, which it is: no answers, no secret, no clock, and none of the cores that
judges use. What it made is read by processes with the same source alone. A source that pretends
that it cannot be compiled has not been built.
"""

from __future__ import annotations

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
from cudal1.harness.crew import CANDIDATE, TRAINS, cpu_limit_s
from cudal1.harness.device import Device, num_lanes_of
from cudal1.harness.kept import Kept
from cudal1.harness.patience import Patience
from cudal1.harness.progress import Failure
from cudal1.harness.quiet import unreadable
from cudal1.harness.rings import host_ring
from cudal1.harness.sandbox import Worker
from cudal1.harness.screen import MAX_SOURCE_BYTES, syntax_error
from cudal1.harness.toolchain import compiles_without, fingerprint
from cudal1.harness.wire import Job, Layout, State
from cudal1.harness.zygote import Zygote
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

COMPILER_BYTES, FOLDER_BYTES = 4 << 30, 1 << 30
"""What a candidate may take: PyTorch's headers cost a compiler more than a gigabyte for each file;
and its folder's files, which are memory, too."""
HAND_OVER_S = 30.0
LOOK_S = 0.02
RING_BYTES = 4096
PROCESSES = {DeviceClass.CUDA: 3, DeviceClass.CPU: 1, DeviceClass.FAKE: 1}
"""Compilers that an extension keeps busy: of C++, and of both halves of CUDA."""
BESIDE = 3
"""Of so many workers one builds while somebody measures: where all cores are busy, bursts differ by
more, and a verdict takes two or three times as long (docs/LOG.md)."""
NOTHING = Layout((), (), (), 1)
MAX_FAILED_STARTS = 2
"""In a row; then nothing is built ahead any more."""


class Builder:
    """Builds while it is open.

    Args:
        devices: whose candidates; their workers' cores and one more for each are left alone.
        protocol: how they are judged.
        folder: where everything that was compiled is kept; several builders may share it.
        num_workers: side by side; by default as many as there are cores and memory for.
    """

    def __init__(
        self, devices: Sequence[Device], protocol: EvalProtocol, folder: Path, *,
        num_workers: int | None = None,
    ) -> None:  # fmt: skip
        self._device = Device(
            device_class=DeviceClass.CPU, kind="builder", id="builder", worker_core=None,
            reserved_cores=_judges_cores(devices), arch=devices[0].arch,
        )  # fmt: skip
        self._builds_for = devices[0].device_class
        self._protocol = protocol
        self._folder = folder
        self.num_workers = num_idle(devices) if num_workers is None else num_workers
        self.complaint = ""
        """Why nothing is built ahead any more."""
        self._makes_room = False
        self._num_building = 0
        self._in_line = list[int]()
        """What was asked for and has not begun, by number."""
        self._num_asked = 0
        self._open = ExitStack()
        self._threads: ThreadPoolExecutor | None = None
        self._kept: Kept | None = None
        self._zygote: Zygote | None = None
        self._num_failed = 0
        self._begun: dict[str, tuple[int, Future[Failure | None]]] = {}
        """By candidate, with its number: several may want the same one built."""
        self._beginning = threading.Lock()
        self._starting = threading.Lock()
        """The zygote is asked by one at a time."""
        self._is_closing = threading.Event()

    def __enter__(self) -> Self:
        """Open the folder.

        Raises:
            ConfigError: it cannot be used.
        """
        self._kept = Kept(self._folder, fingerprint(self._device.arch))
        self._open.callback(self._kept.close)
        self._open.enter_context(unreadable())
        self._open.callback(self._end_zygote)
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
        """Say whether somebody measures now: most workers wait with what they have not begun."""
        self._makes_room = wanted

    def takes(self, candidate: Candidate) -> bool:
        """Whether it is worth building one ahead: it may compile, and has not been built."""
        is_able = self._threads is not None and not self.complaint
        may = may_compile(candidate.source, self._builds_for)
        return is_able and may and candidate not in self.kept

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        """Build one when its turn comes, once: what a compiler says of it, or None."""
        assert self._threads is not None, "no core is left to build on"
        with self._beginning:
            if candidate.id not in self._begun:
                number, self._num_asked = self._num_asked, self._num_asked + 1
                self._in_line.append(number)
                future = self._threads.submit(self._build, problem, candidate, number)
                self._begun[candidate.id] = number, future
            return self._begun[candidate.id][1]

    def pass_over(self, candidate: Candidate) -> None:
        """Build one no more, if that has not begun."""
        with self._beginning:
            number, future = self._begun.get(candidate.id, (-1, None))
            if number in self._in_line and future is not None:
                self._in_line.remove(number)
                future.cancel()  # unless its thread waits for its turn, and now leaves
                del self._begun[candidate.id]

    def content(self, candidate: Candidate) -> bytes:
        """What was compiled for one; empty where nothing is known."""
        return self.kept.of(candidate)

    def serves(self, machine: str) -> bool:
        """Whether what it builds is of use there: on this machine."""
        return not machine

    @property
    def kept(self) -> Kept:
        """What it and others have built."""
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
        """Wait until it may be built; False if that will not be."""
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
            most = max(1, self.num_workers // BESIDE) if self._makes_room else self.num_workers
            may = self._in_line[:1] == [number] and self._num_building < most
            if may:
                self._in_line.remove(number)
                self._num_building += 1
            return may

    def _built(self, problem: Problem, candidate: Candidate, kept: Kept) -> Failure | None:
        worker = self._started(problem, candidate)
        if worker is None:
            return None
        with worker:
            # others may have taken the cores: what takes longer is left to the judge
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
            # elsewhere its folder has another name, which compilers have noted
            if worker.state == State.READY and "private_folder" in worker.layers:
                kept.keep(candidate, worker.hand_over(HAND_OVER_S))
        return None

    def _started(self, problem: Problem, candidate: Candidate) -> Worker | None:
        """A worker that compiles; None where none starts: the judge will say why, or has more."""
        job = Job(
            device=DeviceClass.CPU.value, entry=CANDIDATE, init_inputs="[]", weight_names=(),
            layout=NOTHING, seed=self._protocol.seed, memory_bytes=COMPILER_BYTES,
            cpu_s=cpu_limit_s(self._protocol), core=None, folder="", ring_bytes=RING_BYTES,
            allow_tf32=False, builds_for=self._builds_for.value,
            problem=problem.source, trains=TRAINS[self._protocol.mode],
        )  # fmt: skip
        with self._starting:
            if self._is_closing.is_set() or self.complaint:
                return None
            try:
                if self._zygote is None or not self._zygote.is_alive():
                    self._end_zygote()
                    self._zygote = Zygote(self._device, unsafe=self._protocol.unsafe)
                worker = self._zygote.start(job, host_ring(RING_BYTES), candidate.source)
            except (CudaL1Error, OSError) as error:
                self._num_failed += 1
                if self._num_failed >= MAX_FAILED_STARTS:
                    self.complaint = not_ahead(error)
                return None
            self._num_failed = 0
            return worker

    def _end_zygote(self) -> None:
        if self._zygote is not None:
            zygote, self._zygote = self._zygote, None
            with suppress(CudaL1Error, OSError):
                zygote.close()


def may_compile(source: str, device_class: DeviceClass) -> bool:
    """Whether a source is worth running ahead for what it compiles on such a device.

    What hides that it compiles is compiled where it is judged.
    """
    is_short = len(source) <= MAX_SOURCE_BYTES
    return is_short and compiles_without(source, device_class) and syntax_error(source) is None


def not_ahead(why: object) -> str:
    """A complaint, in one line."""
    return f"extensions are not compiled ahead: {' '.join(str(why).split())}"


def _judges_cores(devices: Sequence[Device]) -> tuple[int, ...]:
    """Their workers', and the first others, one for each judge."""
    reserved = {core for each in devices for core in each.reserved_cores}
    others = sorted(os.sched_getaffinity(0) - reserved)
    num_judges = sum(num_lanes_of(each) for each in devices)
    return tuple(sorted(reserved | set(others[:num_judges])))


def num_idle(devices: Sequence[Device]) -> int:
    """How many may compile side by side: on cores that are left, in half the memory that is."""
    cores = len(os.sched_getaffinity(0) - set(_judges_cores(devices)))
    processes = PROCESSES[devices[0].device_class]
    each_bytes = COMPILER_BYTES + FOLDER_BYTES + 2 * RING_BYTES
    by_cores = max(cores // processes, min(cores, 1))
    return max(0, min(by_cores, psutil.virtual_memory().available // 2 // each_bytes))
