"""The judge's handle on the process that forks workers, and those that wait for a job.

Threat: what is in a worker before its candidate is what the zygote had: nothing of the judge's.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from cudal1.errors import SandboxError, WorkerError
from cudal1.harness import wire
from cudal1.harness.builds import Builds
from cudal1.harness.device import Device
from cudal1.harness.launch import START_LIMIT_S, Start, launch
from cudal1.harness.layers import MINIMUM
from cudal1.harness.memory import meet
from cudal1.harness.rings import Ring, sealed
from cudal1.harness.sandbox import Worker
from cudal1.harness.spare import Spare, send_with
from cudal1.harness.wire import FREEZE, THAW, Job
from cudal1.problem import DeviceClass
from cudal1.verdict import UNSAFE

NUM_SPARES = {DeviceClass.CPU: 2, DeviceClass.FAKE: 2, DeviceClass.CUDA: 6}
"""Workers that wait, forked and confined to namespaces, for the next job."""
MAX_LEAVING = 2
"""Workers that were dismissed and have not ended: each may hold gigabytes of a GPU."""


class Zygote:
    """The warmed-up process that forks workers; start one for each judge.

    Args:
        device: what its workers may use.
        minimum: groups of layers (`layers.MINIMUM`); of each one must hold around a worker.
        unsafe: start workers even where they do not, and say so among the layers of each.
        start: starts the process.
        num_spares: workers that wait for a job; by default as many as suit the device.

    Raises:
        WorkerError: it does not start.
    """

    def __init__(
        self, device: Device, *, minimum: tuple[tuple[str, ...], ...] = MINIMUM,
        unsafe: bool = False, start: Start = launch, num_spares: int | None = None,
    ) -> None:  # fmt: skip
        self.builds = Builds()
        """What its workers' candidates compiled."""
        self._minimum = () if unsafe else minimum
        self._marks = (UNSAFE,) if unsafe else ()
        self._spares: list[Spare] = []
        self._leaving: list[Worker] = []
        self._is_still = False
        self._num_spares = num_spares or NUM_SPARES[device.device_class]
        # the first worker that is there tells; the fake device's stream stores what it is given
        self._in_place = None if device.device_class is DeviceClass.CPU else False
        self._source = start(device)

    def is_alive(self) -> bool:
        """Whether it can still be asked."""
        return self._source.is_running()

    def start(self, job: Job, ring: Ring, source: str) -> Worker:
        """Give `job`, `ring` and `source` to a fresh worker, and welcome it.

        What stands around it is known only once it stands: start one that runs our own code first.

        Raises:
            WorkerError: the machinery failed.
            SandboxError: less than the minimum stands around it.
        """
        return self.welcome(self.begin(job, ring, source))

    def begin(self, job: Job, ring: Ring, source: str | None = None) -> Worker:
        """The same without waiting for the worker, which is to be welcomed later.

        Its folder is made here. Without a source it waits for one once it is confined.

        Raises:
            WorkerError: the machinery failed.
        """
        control_descriptor, control = sealed("control", wire.CONTROL_BYTES)
        content = os.memfd_create("job", os.MFD_CLOEXEC)
        try:
            spare = self._next()
            folder = tempfile.mkdtemp(dir=self._source.folder)
            job = replace(job, folder=folder, in_place=bool(self._in_place))
            os.write(content, job.encode())
            send_with(spare.channel, b"job", (control_descriptor, ring.descriptor, content))
            if not self._is_still:
                self._top_up(self._num_spares)
        except (OSError, WorkerError) as error:
            ring.release()
            if isinstance(error, WorkerError):
                raise
            raise self._source.broken("cannot be reached") from error
        finally:
            for descriptor in (control_descriptor, ring.descriptor, content):
                os.close(descriptor)
        worker = Worker(job, spare, control, ring)
        if source is not None:
            worker.load(source)
        return worker

    def welcome(self, worker: Worker) -> Worker:
        """Wait until a worker that was begun is confined.

        Raises:
            WorkerError: the machinery failed.
            SandboxError: less than the minimum stands around it.
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
        """Have it dismissed at the end."""
        try:
            yield worker
        finally:
            self.dismiss(worker)

    def dismiss(self, worker: Worker) -> None:
        """Have it end: its death takes a while on a GPU; `settle` waits for it."""
        worker.dismiss()
        self._leaving.append(worker)

    def reap(self) -> None:
        """Give back what those had that are gone; if more than two are left, wait for all.

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
        """Have those that wait for a job stand still while others are timed.

        They have contexts to make, for which the driver interrupts what a GPU does.
        """
        self._is_still = True
        self._have_spares(FREEZE)
        try:
            yield
        finally:
            self._is_still = False
            self._have_spares(THAW)

    def settle(self) -> None:
        """Wait until all that were dismissed are gone.

        Raises:
            WorkerError: one is not, so that nobody can be timed.
        """
        while self._leaving:
            if not self._leaving.pop().close():
                raise WorkerError(
                    "a worker that was killed does not end: something holds it in the kernel; "
                    "look for it with ps, and restart the machine if it stays"
                )

    def renew(self) -> None:
        """Give up the workers that wait for a job: they may not have come about."""
        for spare in self._spares:
            spare.close()
        self._spares.clear()

    def close(self) -> None:
        """End the zygote; its workers end with their own handles."""
        self.settle()
        self.renew()
        self._source.close()

    def _next(self) -> Spare:
        """A worker that is there, has no job yet, and has its outputs read as all others have."""
        self._spares = [spare for spare in self._spares if spare.is_alive()]
        self._top_up(1)
        spare = self._spares.pop(0)
        if self._is_still:
            spare.command(THAW)
        spare.channel.settimeout(START_LIMIT_S)
        try:
            is_readable = meet(spare.channel, spare.memory)
        except OSError:
            spare.close()
            raise
        if self._in_place is None:
            self._in_place = is_readable
        if self._in_place and not is_readable:
            spare.close()
            raise self._source.broken("started a worker whose memory cannot be read")
        return spare

    def _have_spares(self, order: bytes) -> None:
        """Stop, or go on, all together."""
        for spare in self._spares:
            spare.ask(order)
        for spare in self._spares:
            spare.await_answer(order)

    def _top_up(self, count: int) -> None:
        while len(self._spares) < count:
            self._spares.append(Spare(self._source.channel))
