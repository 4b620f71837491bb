"""Compiling candidates' extensions ahead, side by side, where there is no device and no network.

While one candidate is measured, others are built on cores that no judge needs. A builder makes a
candidate's module, for what that compiles, and keeps that for the process that will be judged; what
else the module does there, or cannot do without a device, says nothing. What a compiler does not
accept has its verdict at once, in the compiler's words.

Threat: as for any worker, which it is: no answers, no secret, no clock. What it made is read by
processes with the same source alone. Who pretends that it cannot be compiled has not been built.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import diskcache
import psutil

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.harness import places
from cudal1.harness.crew import CANDIDATE, CPU_LIMIT_S
from cudal1.harness.device import Device
from cudal1.harness.progress import Failure
from cudal1.harness.reference import load_reference
from cudal1.harness.rings import host_ring
from cudal1.harness.sandbox import Worker
from cudal1.harness.screen import MAX_SOURCE_BYTES, syntax_error
from cudal1.harness.wire import Job, Layout, State
from cudal1.harness.zygote import Zygote
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.record import content_id
from cudal1.verdict import Status

COMPILES = "cpp_extension"
"""In a source whose compiler takes long; whoever hides it is built where it is judged."""
LIMIT_S = 300.0
"""For a module to be made: an extension of many files takes minutes."""
COMPILER_BYTES = 4 << 30
"""PyTorch's headers take a compiler more than a gigabyte for each file."""
KEPT_BYTES = 4 << 30
"""Of a folder; beyond it, what was not asked for the longest goes."""
LOOK_S = 0.02
RING_BYTES = 4096
NOTHING = Layout((), (), (), 1)
IDLE = 19
"""As nice as can be: whoever compiles waits for everybody else."""
COMPILERS = ("c++", "/usr/local/cuda/bin/nvcc")


class Builder:
    """Builds while it is open, on cores that are left.

    Args:
        devices: whose candidates.
        protocol: how they are judged.
        folder: where everything that was compiled is kept; several builders may share it.
        num_workers: side by side; by default as many as there are cores and memory for.
    """

    def __init__(
        self, devices: Sequence[Device], protocol: EvalProtocol, folder: Path, *,
        num_workers: int | None = None,
    ) -> None:  # fmt: skip
        reserved = tuple(sorted({core for each in devices for core in each.reserved_cores}))
        self._device = Device(
            device_class=DeviceClass.CPU, kind="builder", id="builder", worker_core=None,
            reserved_cores=reserved, arch=devices[0].arch,
        )  # fmt: skip
        self._protocol = protocol
        self._folder = folder
        self._num_workers = num_idle(devices) if num_workers is None else num_workers
        self._open = ExitStack()
        self._threads: ThreadPoolExecutor | None = None
        self._kept: diskcache.Cache | None = None
        self._zygote: Zygote | None = None
        self._starting = threading.Lock()
        """The zygote is asked by one at a time."""
        self._is_closing = threading.Event()

    def __enter__(self) -> Self:
        """Open the folder.

        Raises:
            ConfigError: it cannot be written to.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._kept = diskcache.Cache(
                str(self._folder), size_limit=KEPT_BYTES, eviction_policy="least-recently-used"
            )
        except (OSError, diskcache.Timeout) as error:
            raise ConfigError(
                f"{self._folder}: cannot keep what is compiled there: {error}; set XDG_CACHE_HOME"
            ) from error
        self._open.callback(self._kept.close)
        self._open.callback(self._end_zygote)
        if self._num_workers > 0:
            self._threads = ThreadPoolExecutor(self._num_workers, "builder")
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

    def takes(self, candidate: Candidate) -> bool:
        """Whether it is worth building one ahead: it may compile, and has not been built."""
        source = candidate.source
        return (
            self._threads is not None and COMPILES in source and len(source) <= MAX_SOURCE_BYTES
            and syntax_error(source) is None and not self.content(candidate)
        )  # fmt: skip

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        """Build one when its turn comes: None, or why it cannot be built."""
        assert self._threads is not None, "no core is left to build on"
        return self._threads.submit(self._build, problem, candidate)

    def content(self, candidate: Candidate) -> bytes:
        """What was compiled for one; empty where nothing is known."""
        assert self._kept is not None
        found = b""
        with suppress(OSError, diskcache.Timeout):
            found = self._kept.get(self._key(candidate), b"")
        return found if isinstance(found, bytes) else b""

    # --- in a thread -----------------------------------------------------------------------------

    def _build(self, problem: Problem, candidate: Candidate) -> Failure | None:
        if self.content(candidate):  # a twin's, meanwhile
            return None
        try:
            worker = self._started(problem, candidate)
        except (CudaL1Error, OSError):  # what stops us the judge will meet, too, and name
            return None
        with worker:
            if (failure := self._awaited(worker)) is None and worker.state == State.READY:
                content = worker.hand_over()
                assert self._kept is not None
                if content:
                    with suppress(OSError, diskcache.Timeout):  # a full disk
                        self._kept.set(self._key(candidate), content)
            return failure

    def _started(self, problem: Problem, candidate: Candidate) -> Worker:
        job = Job(
            device=DeviceClass.CPU.value, entry=CANDIDATE,
            init_inputs=repr(load_reference(problem).init_inputs), weight_names=(),
            layout=NOTHING, seed=self._protocol.seed,
            memory_bytes=max(COMPILER_BYTES, self._protocol.memory_bytes), cpu_s=CPU_LIMIT_S,
            core=None, folder="", ring_bytes=RING_BYTES, allow_tf32=False, only_builds=True,
        )  # fmt: skip
        with self._starting:
            try:
                self._zygote = self._zygote or Zygote(
                    self._device, unsafe=self._protocol.unsafe, niceness=IDLE
                )
                return self._zygote.start(job, host_ring(RING_BYTES), candidate.source)
            except (CudaL1Error, OSError):
                self._end_zygote()  # the next one starts another
                raise

    def _awaited(self, worker: Worker) -> Failure | None:
        deadline = time.monotonic() + LIMIT_S
        while worker.state == State.STARTING and worker.is_alive():
            if time.monotonic() > deadline:
                said = f"did not finish compiling in {LIMIT_S:.0f} s"
                return Failure(Status.TIMED_OUT, said)
            if self._is_closing.wait(LOOK_S):
                return None
        if worker.state == State.BUILD_FAILED:
            return Failure(Status.NO_BUILD, worker.display_text())
        return None

    def _end_zygote(self) -> None:
        if self._zygote is not None:
            zygote, self._zygote = self._zygote, None
            with suppress(CudaL1Error, OSError):
                zygote.close()

    def _key(self, candidate: Candidate) -> str:
        return content_id(candidate.id, toolchain(self._device.arch))


def num_idle(devices: Sequence[Device]) -> int:
    """How many may compile: a core for each judge and each worker is left alone."""
    cores = len(os.sched_getaffinity(0)) - 2 * len(devices)
    return max(0, min(cores, psutil.virtual_memory().available // COMPILER_BYTES))


@cache
def toolchain(arch: str | None) -> str:
    """What a build depends on beside its source, as far as a worker finds it."""
    import torch

    said = [arch or "", _processor(), torch.__version__, platform.python_version(), places.HOME]
    for name in COMPILERS:
        if path := shutil.which(name, path=places.PATH):
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            said.append(done.stdout)
    return content_id(*said)


def _processor() -> str:
    """The model: an extension may be compiled for just that."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith("model name")), platform.machine())
    return platform.machine()


def default_folder() -> Path:
    """Where runs on files of candidates keep what these compiled."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "cudal1", "builds")
