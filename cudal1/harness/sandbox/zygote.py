"""Hold the judge's handle on the process that forks workers, and the workers without a job.

Threat: before its candidate arrives, a worker contains what the zygote had: nothing of the judge's.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from cudal1.errors import SandboxError, WorkerError
from cudal1.harness.device.device import Device
from cudal1.harness.sandbox.builds import Builds
from cudal1.harness.sandbox.idle_worker import IdleWorker, send_with
from cudal1.harness.sandbox.launch import START_LIMIT_S, Start, launch
from cudal1.harness.sandbox.layers import MINIMUM
from cudal1.harness.sandbox.memory import meet
from cudal1.harness.sandbox.rings import Ring, sealed
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.shared import wire
from cudal1.harness.shared.wire import FREEZE, THAW, Job
from cudal1.problem import DeviceClass
from cudal1.verdict import UNSAFE

NUM_IDLE = {DeviceClass.CPU: 2, DeviceClass.FAKE: 2, DeviceClass.CUDA: 6}
"""Number of idle workers on each kind of device: forked, confined to namespaces, without a job."""
CONVOLVES = re.compile("conv", re.IGNORECASE)
"""Part of a source that may convolve."""
MAX_LEAVING = 2
"""Number of dismissed workers that may not have ended yet: each may hold gigabytes of a GPU."""


class Zygote:
    """The warmed-up process that forks workers; start one for each judge.

    Args:
        device: what its workers may use.
        minimum: groups of layers (`layers.MINIMUM`); of each one must hold around a worker.
        unsafe: start workers even where the minimum does not hold, and mark the layers of each.
        start: starts the process.
        num_idle: workers that wait for a job once one was begun, beside those that `expect` starts;
            by default as many as suit the device.

    Raises:
        WorkerError: the process does not start.
    """

    def __init__(
        self,
        device: Device,
        *,
        minimum: tuple[tuple[str, ...], ...] = MINIMUM,
        unsafe: bool = False,
        start: Start = launch,
        num_idle: int | None = None,
    ) -> None:
        self.builds = Builds()
        """Builds of its workers' candidates."""
        self._minimum = () if unsafe else minimum
        self._marks = (UNSAFE,) if unsafe else ()
        self._idle_workers: list[IdleWorker] = []
        self._leaving: list[Worker] = []
        self._is_still = False
        self._num_idle = NUM_IDLE[device.device_class] if num_idle is None else num_idle
        # the first worker decides this; the fake device's stream stores what it is given
        self._in_place = None if device.device_class is DeviceClass.CPU else False
        self._source = start(device)

    def is_alive(self) -> bool:
        """Return whether the zygote can still be asked."""
        return self._source.is_running()

    def expect(self, count: int, reference: str) -> None:
        """Start idle workers, so many that are needed soon: each makes its context meanwhile.

        Where the source of the reference names convolutions, each loads what these need, too.
        """
        if self._is_still:
            return
        before = len(self._idle_workers)
        self._top_up(count)
        if CONVOLVES.search(reference):
            for idle in self._idle_workers[before:]:
                with contextlib.suppress(OSError):  # it has ended, which `_next` notices
                    idle.channel.send(wire.CONVOLVE)

    def start(self, job: Job, ring: Ring, source: str) -> Worker:
        """Give `job`, `ring` and `source` to a fresh worker, and welcome it.

        The layers around a worker are known only once it is confined: first start a worker that
        runs our own code.

        Raises:
            WorkerError: the machinery failed.
            SandboxError: fewer layers than the minimum stand around the worker.
        """
        return self.welcome(self.begin(job, ring, source))

    def begin(self, job: Job, ring: Ring, source: str | None = None) -> Worker:
        """Give a job to a fresh worker without waiting for it; `welcome` does that later.

        The worker's folder is made here. Without a source the worker waits for one once it is
        confined.

        Raises:
            WorkerError: the machinery failed.
        """
        control_descriptor, control = sealed("control", wire.CONTROL_BYTES)
        content = os.memfd_create("job", os.MFD_CLOEXEC)
        try:
            idle = self._next()
            folder = tempfile.mkdtemp(dir=self._source.folder)
            job = replace(job, folder=folder, in_place=bool(self._in_place))
            os.write(content, job.encode())
            send_with(idle.channel, b"job", (control_descriptor, ring.descriptor, content))
            if not self._is_still:
                self._top_up(self._num_idle)
        except (OSError, WorkerError) as error:
            ring.release()
            if isinstance(error, WorkerError):
                raise
            raise self._source.broken("cannot be reached") from error
        finally:
            for descriptor in (control_descriptor, ring.descriptor, content):
                os.close(descriptor)
        worker = Worker(job, idle, control, ring)
        if source is not None:
            worker.load(source)
        return worker

    def welcome(self, worker: Worker) -> Worker:
        """Wait until a worker that was begun is confined.

        Raises:
            WorkerError: the machinery failed.
            SandboxError: fewer layers than the minimum stand around the worker.
        """
        try:
            came = worker.welcome(self._minimum, self._marks)
        except (SandboxError, WorkerError):
            worker.close()
            raise
        if not came:
            worker.close()
            raise self._source.broken("could not confine a new worker")
        return worker

    @contextlib.contextmanager
    def lent(self, worker: Worker) -> Iterator[Worker]:
        """Yield the worker, and dismiss it at the end."""
        try:
            yield worker
        finally:
            self.dismiss(worker)

    def dismiss(self, worker: Worker) -> None:
        """Have the worker killed without waiting for its end, which takes a while on a GPU.

        `settle` waits for it.
        """
        worker.dismiss()
        self._leaving.append(worker)

    def reap(self) -> None:
        """Close dismissed workers that have ended; if more than two are left, wait for all.

        Raises:
            WorkerError: one of them does not end.
        """
        gone = [worker for worker in self._leaving if not worker.is_alive()]
        self._leaving = [worker for worker in self._leaving if worker not in gone]
        for worker in gone:
            worker.close()
        if len(self._leaving) > MAX_LEAVING:
            self.settle()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Have idle workers stand still while others are timed.

        Idle workers have contexts to make, for which the driver interrupts the work of a GPU.
        """
        self._is_still = True
        self._have_idle_workers(FREEZE)
        try:
            yield
        finally:
            self._is_still = False
            self._have_idle_workers(THAW)

    def settle(self) -> None:
        """Wait until all dismissed workers are gone.

        Raises:
            WorkerError: one is not, so that no worker can be timed.
        """
        while self._leaving:
            if not self._leaving.pop().close():
                raise WorkerError(
                    "a worker that was killed does not end: something holds it in the kernel; "
                    "look for it with ps, and restart the machine if it stays"
                )

    def renew(self) -> None:
        """Close all idle workers: they may have failed to start."""
        for idle in self._idle_workers:
            idle.close()
        self._idle_workers.clear()

    def close(self) -> None:
        """End the zygote; its workers end with their own handles."""
        self.settle()
        self.renew()
        self._source.close()

    def _next(self) -> IdleWorker:
        """Return a running worker without a job.

        Its outputs are read as those of all other workers are.
        """
        self._idle_workers = [idle for idle in self._idle_workers if idle.is_alive()]
        self._top_up(1)
        idle = self._idle_workers.pop(0)
        if self._is_still:
            idle.command(THAW)
        idle.channel.settimeout(START_LIMIT_S)
        try:
            is_readable = meet(idle.channel, idle.memory)
        except OSError:
            idle.close()
            raise
        if self._in_place is None:
            self._in_place = is_readable
        if self._in_place and not is_readable:
            idle.close()
            raise self._source.broken("started a worker whose memory cannot be read")
        return idle

    def _have_idle_workers(self, order: bytes) -> None:
        """Stop all idle workers together, or let them go on."""
        for idle in self._idle_workers:
            idle.ask(order)
        for idle in self._idle_workers:
            idle.await_answer(order)

    def _top_up(self, count: int) -> None:
        while len(self._idle_workers) < count:
            self._idle_workers.append(IdleWorker(self._source.channel))
