"""Compiling candidates ahead of time, side by side, where there is no device and no network.

While one candidate is measured, others are built on the cores that are left. A builder loads a
candidate's module for what it compiles, and keeps that for the processes that will be judged; what
else the module does there, or fails to do without a device, says nothing. What fails to compile has
its verdict at once, in the compiler's words.

Threat: as for any worker, which it is: no device, no answers, no secret; what it made is read by
processes with the same source alone (`builds`). Who pretends that it cannot be compiled has not
been built.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from cudal1.candidate import Candidate
from cudal1.errors import SandboxError, SuiteError, WorkerError
from cudal1.harness.builds import Builds
from cudal1.harness.crew import CANDIDATE, CPU_LIMIT_S
from cudal1.harness.device import Device
from cudal1.harness.progress import Failure
from cudal1.harness.reference import load_reference
from cudal1.harness.rings import host_ring
from cudal1.harness.sandbox import Worker
from cudal1.harness.screen import syntax_error
from cudal1.harness.wire import Job, Layout, State
from cudal1.harness.zygote import Zygote
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

COMPILES = "cpp_extension"
"""In a source whose compiler takes long; whoever hides it is built where it is judged."""
NOTHING = Layout((), (), (), 1)
LIMIT_S = 300.0
"""For a module to load: an extension of many files takes minutes."""
COMPILER_BYTES = 4 << 30
"""PyTorch's headers take a compiler more than a gigabyte for each file."""
LOOK_S = 0.01
WINDOW = 64
"""Candidates that are looked through for one that need not wait."""

Pair = tuple[Problem, Candidate]


@dataclass(frozen=True)
class Built:
    """What can be judged now."""

    problem: Problem
    candidate: Candidate
    failure: Failure | None
    """Why it could not be built."""


@dataclass(frozen=True)
class _Build:
    source: str
    worker: Worker
    deadline: float


class Builder:
    """Builds while it is open.

    Args:
        devices: whose candidates; their cores are left alone.
        protocol: how they are judged.
        builds: where everything is kept.
    """

    def __init__(self, devices: list[Device], protocol: EvalProtocol, builds: Builds) -> None:
        reserved = tuple(sorted({core for each in devices for core in each.reserved_cores}))
        self._device = Device(
            device_class=DeviceClass.CPU, kind="builder", id="builder", worker_core=None,
            reserved_cores=reserved, arch=devices[0].arch,
        )  # fmt: skip
        self._protocol = protocol
        self._builds = builds
        self._num_workers = max(1, len(os.sched_getaffinity(0)) - len(reserved) - 1)
        self._zygote: Zygote | None = None
        self._running: dict[str, _Build] = {}
        self._failures: dict[str, Failure] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for build in self._running.values():
            build.worker.close()
        if self._zygote is not None:
            self._zygote.close()

    @property
    def has_room(self) -> bool:
        """Whether another one can be begun."""
        return len(self._running) < self._num_workers

    def has_built(self, source: str) -> bool:
        """Whether there is nothing to wait for."""
        return (
            COMPILES not in source or source in self._failures or source in self._builds
            or syntax_error(source) is not None
        )  # fmt: skip

    def failure(self, source: str) -> Failure | None:
        """Why it has not been built, if it could not be."""
        return self._failures.get(source)

    def begin(self, problem: Problem, source: str) -> None:
        """Build it, unless that is done; what stops us, the judge will meet, too."""
        if source in self._running or self.has_built(source):
            return
        try:
            init_inputs = repr(load_reference(problem).init_inputs)
            # only now: most files of candidates hold nothing to compile
            self._zygote = self._zygote or Zygote(
                self._device, unsafe=self._protocol.unsafe, builds=self._builds
            )
            worker = self._zygote.start(self._job(init_inputs), host_ring(4096), source)
        except (SandboxError, SuiteError, WorkerError):
            self._builds.keep(source, b"")
            return
        self._running[source] = _Build(source, worker, time.monotonic() + LIMIT_S)

    def look(self) -> None:
        """Keep what has been built meanwhile."""
        for source, build in list(self._running.items()):
            worker = build.worker
            if time.monotonic() > build.deadline:
                said = f"did not finish compiling in {LIMIT_S:.0f} s"
                self._failures[source] = Failure(Status.TIMED_OUT, said)
            elif worker.state == State.BUILD_FAILED:
                self._failures[source] = Failure(Status.NO_BUILD, worker.display_text())
            elif worker.state == State.READY:
                self._builds.keep(source, worker.hand_over())
            elif not worker.is_alive():
                self._builds.keep(source, b"")
            else:
                continue
            del self._running[source]
            worker.close()

    def _job(self, init_inputs: str) -> Job:
        return Job(
            device=DeviceClass.CPU.value, entry=CANDIDATE, init_inputs=init_inputs,
            weight_names=(), layout=NOTHING, seed=self._protocol.seed,
            memory_bytes=max(COMPILER_BYTES, self._protocol.memory_bytes), cpu_s=CPU_LIMIT_S,
            core=None, folder="", ring_bytes=4096, allow_tf32=False, only_builds=True,
        )  # fmt: skip


class Ahead:
    """Work in its order, but who need not wait for a compiler overtakes who does.

    Args:
        work: taken as it is needed.
        builder: open.
    """

    def __init__(self, work: Iterable[Pair], builder: Builder) -> None:
        self._work: Iterator[Pair] = iter(work)
        self._builder = builder
        self._next: deque[Pair] = deque()

    @property
    def is_done(self) -> bool:
        """Whether all was taken."""
        self._look_ahead()
        return not self._next

    def take(self) -> Built | None:
        """The next one that need not wait; None while there is none."""
        self._builder.look()
        self._look_ahead()
        for problem, candidate in self._next:
            if self._builder.has_built(candidate.source):
                self._next.remove((problem, candidate))
                return Built(problem, candidate, self._builder.failure(candidate.source))
        return None

    def wait(self) -> Built | None:
        """The same, when there is one; None when all was taken."""
        while (built := self.take()) is None and not self.is_done:
            time.sleep(LOOK_S)
        return built

    def _look_ahead(self) -> None:
        while len(self._next) < WINDOW and (pair := next(self._work, None)) is not None:
            self._next.append(pair)
        for problem, candidate in self._next:
            if not self._builder.has_room:
                return
            self._builder.begin(problem, candidate.source)
