"""Start and end the workers of one problem.

They are a candidate's, the reference's, and on a CPU one that computes nothing.

Threat: a candidate is alone in a process that ran nothing before. The others run our own code. What
fails in them is our failure, unless a candidate took the device's memory from them.

Long because processes of all three kinds share one device's memory: which of them ends before
another begins is decided in one place.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from cudal1.candidate import Candidate
from cudal1.errors import CrowdedError, WorkerError
from cudal1.harness.device.device import Device
from cudal1.harness.device.quiet import staying
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.failure import Failure, NotKept
from cudal1.harness.exchange.interval import Ending, wait_ready
from cudal1.harness.exchange.plan import is_large
from cudal1.harness.oracle.oracle import Oracle
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.sandbox.rings import Ring
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.sources import packed_source
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.shared.seeding import BITS
from cudal1.harness.shared.wire import Job
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol, Mode, PrecisionClass
from cudal1.verdict import Status

CANDIDATE, REFERENCE = "ModelNew", "Model"
"""Names of the classes that sources define: a candidate's, and a reference's."""
REGISTERS = re.compile(r"torch\.library|load_inline|cpp_extension")
"""Calls of a reference that leave more behind in its process than could be taken back."""
TRAINS = {Mode.CONSTRUCTED: None, Mode.TRAIN: True, Mode.EVAL: False}
CPU_LIMIT_S = 300
"""Seconds of processor time for a candidate's process, beside what it may compile."""
MAX_LENT = 16
"""Number of measurements of one reference's process on a GPU."""
SHORT, ROOM_BYTES = 8, 4 << 30
"""A GPU is short of memory when less than this part of it is left: an eighth. Bytes that others may
need beside a candidate."""
MEMORY_MARGIN = 2
"""Factor over the reference's share of a GPU's memory. A candidate that held more is to blame when
others find none."""


class ProblemWorkers:
    """The workers of one problem, from their start to their end.

    Args:
        problem: its reference is run.
        oracle: of the problem; gives the weights.
        runner: makes the memory that is shared.
        device: where the workers run.
        protocol: says how candidates are judged.
        zygote: forks the workers.
        turns: this judge's turns on the device.
        num_lanes: the number of judges with such a share of the device; 1: it has no other.
    """

    def __init__(
        self,
        problem: Problem,
        oracle: Oracle,
        runner: BurstRunner,
        *,
        device: Device,
        protocol: EvalProtocol,
        zygote: Zygote,
        turns: Turns,
        num_lanes: int,
    ) -> None:
        self._problem = problem
        self._oracle = oracle
        self._runner = runner
        self._device = device
        self._protocol = protocol
        self._zygote = zygote
        self._turns = turns
        self._is_shared = num_lanes > 1
        self._is_large = is_large(runner.ring_bytes, oracle.device, num_lanes)
        self._lent: list[Worker] = []
        """Workers in use."""
        turns.halt = self.halt
        self._empty: Worker | None = None
        self._references: dict[bool, Worker] = {}
        """Workers of the reference: one that has measured nothing yet (True), and on a GPU one that
        lasts."""
        self._next: Worker | None = None
        """A confined worker for the next candidate: starting it takes a fifth of a verdict on a
        GPU."""
        self._times_lent = 0
        self._free_bytes = 0
        """Free bytes of the device when the last candidate was loaded."""
        practises = self._begins_next and not REGISTERS.search(problem.source)
        self._practice = packed_source(problem.source) if practises else b""
        self._example = oracle.draw(protocol.seed).storages if practises else []
        """Public inputs for a worker that practises."""

    def close(self) -> None:
        """End the workers that are kept."""
        for worker in (self._empty, self._next, *self._references.values()):
            if worker is not None:
                self._zygote.dismiss(worker)
        self._empty = self._next = None
        self._references.clear()

    @contextmanager
    def candidate(self, candidate: Candidate) -> Iterator[Worker]:
        """Lend a fresh worker with the candidate; give the oracle its private seed's weights.

        Raises:
            Failure: it took so much of a GPU's memory that nothing was left to judge it with.
        """
        import torch

        worker, self._next = self._next, None
        if worker is not None and not worker.is_alive():
            self._zygote.dismiss(worker)
            worker = None
        worker = self._zygote.welcome(worker or self._begin_candidate())
        with self._zygote.lent(worker), self._used(worker):
            self._free_bytes, total_bytes = self._memory()
            if self._free_bytes < total_bytes // SHORT:
                self._zygote.settle()  # workers that are ending may hold what it needs
                self._free_bytes, _ = self._memory()
            worker.load(candidate.source, self._zygote.builds.of(candidate.id))
            try:
                self._oracle.reseed(worker.job.seed)
                self.have_candidate()
                yield worker
            except (torch.OutOfMemoryError, WorkerError) as error:
                if self._is_shared and not isinstance(error, WorkerError):
                    raise CrowdedError(too_large(self._problem, self._device, error)) from error
                if self._took_too_much(worker):
                    said = "took the device's memory that others need"
                    raise Failure(Status.CRASHED, said) from None
                if isinstance(error, WorkerError):
                    raise
                raise WorkerError(too_large(self._problem, self._device, error)) from error

    def make_room(self, worker: Worker) -> None:
        """End a candidate's first process, unless its second one fits on a GPU beside it.

        On a GPU ending takes a tenth of a second and disturbs others. So a process that may stay
        stands still meanwhile.
        """
        free_bytes, _ = self._memory()
        taken_bytes = self._free_bytes - free_bytes
        if not self._is_cuda or free_bytes < taken_bytes + ROOM_BYTES:
            self._zygote.dismiss(worker)
            self._zygote.settle()

    def have_candidate(self) -> None:
        """Start the worker of the next candidate, on a GPU that no other judge uses."""
        if self._next is None and self._begins_next:
            self._next = self._begin_candidate()

    def expect_another(self) -> None:
        """Have a worker for a candidate's second process get ready, where other judges are."""
        if self._is_shared:
            self._zygote.expect(1, self._problem.source)

    @contextmanager
    def reference(self, *, fresh: bool, seed: int | None = None) -> Iterator[Worker]:
        """Lend a worker with the reference; one measurement uses it up, or several if not `fresh`.

        On a GPU each process needs a context, a third of a second of the driver's. The worker has
        public weights until it is given others. What else was drawn is of `seed`, where that
        matters.

        Raises:
            WorkerError: the worker does not start.
        """
        fresh = fresh or not self._oracle.is_carried
        self.have_reference(fresh=fresh, seed=seed)
        worker = self._references.pop(fresh)
        again = False
        try:
            with self._used(worker):
                yield self._ready(worker)
            again = not fresh
        except (Failure, NotKept):
            again = not fresh
            raise
        finally:
            self._times_lent += not fresh
            if again and self._times_lent < MAX_LENT:
                self._references[fresh] = worker
            else:
                self._zygote.dismiss(worker)

    def have_reference(self, *, fresh: bool, seed: int | None = None) -> None:
        """Start a reference's worker, unless one is there: it gets ready meanwhile."""
        is_carried = self._oracle.is_carried
        fresh, seed = fresh or not is_carried, self._protocol.seed if seed is None else seed
        kept = self._references.get(fresh)
        if kept is not None and not (kept.is_alive() and (is_carried or kept.job.seed == seed)):
            self._zygote.dismiss(self._references.pop(fresh))
        if fresh not in self._references:
            self._references[fresh] = self._begin(REFERENCE, None, seed, self._problem.source)
            if not fresh:
                self._times_lent = 0

    def keep_builds(self, worker: Worker, candidate: Candidate) -> None:
        """Keep what a candidate compiled, for its next process; once is enough."""
        if candidate.id not in self._zygote.builds:
            self._zygote.builds.keep(candidate.id, worker.hand_over())

    def empty(self) -> Worker:
        """Return the worker that computes nothing, which a GPU does without (`costs`).

        Raises:
            WorkerError: the worker does not start.
        """
        if self._empty is not None and not self._empty.is_alive():
            self._empty.close()
            self._empty = None
        self._empty = self._empty or self._ready(self._begin("", None, self._protocol.seed, ""))
        return self._empty

    @contextmanager
    def still(self) -> Iterator[None]:
        """Stop all waiting workers while others are timed, and keep the judge on its core."""
        with self._zygote.still(), staying(self._device):
            if self._next is not None:
                self._next.freeze()
            try:
                yield
            finally:
                if self._next is not None:
                    self._next.thaw()

    def halt(self) -> Callable[[], None]:
        """Stop all workers that may be at work on the device; return what resumes them."""
        import torch

        self._zygote.settle()  # workers that end give back what they had on the device
        all_of_them = (*self._lent, self._next, self._empty, *self._references.values())
        halted = [each for each in all_of_them if each is not None and not each.is_frozen]
        for worker in halted:
            worker.freeze()
        still = ExitStack()
        still.enter_context(self._zygote.still())
        if self._is_cuda:
            torch.cuda.synchronize()

        def go_on() -> None:
            still.close()
            for worker in halted:
                worker.thaw()

        return go_on

    @contextmanager
    def _used(self, worker: Worker) -> Iterator[None]:
        self._lent.append(worker)
        try:
            yield
        finally:
            self._lent.remove(worker)

    @property
    def _begins_next(self) -> bool:
        return self._is_cuda and not self._is_shared and not self._is_large

    @property
    def _is_cuda(self) -> bool:
        return self._device.device_class is DeviceClass.CUDA

    def _memory(self) -> tuple[int, int]:
        """Return the free bytes of the GPU, and all of its bytes."""
        import torch

        return torch.cuda.mem_get_info() if self._is_cuda else (0, 0)

    def _begin_candidate(self) -> Worker:
        """Start a candidate's worker; its seed cannot be known while the candidate is written."""
        return self._begin(CANDIDATE, cpu_limit_s(self._protocol), secrets.randbits(BITS))

    def _begin(self, entry: str, cpu_s: int | None, seed: int, source: str | None = None) -> Worker:
        weights = self._oracle.original_weights
        self._zygote.reap()
        try:
            ring = self._ring()
        except WorkerError:
            self.close()  # workers that only wait hold the device's memory, too
            self._zygote.settle()  # and so do workers dismissed earlier
            ring = self._ring_beside_others()
        job = Job(
            device=self._device.device_class.value,
            entry=entry,
            init_inputs=self._oracle.init_inputs,
            constants=repr(self._oracle.constants),
            weight_names=tuple(weights),
            layout=self._runner.layout,
            seed=seed,
            memory_bytes=self._protocol.memory_bytes,
            cpu_s=cpu_s,
            core=self._device.worker_core,
            folder="",
            ring_bytes=ring.num_bytes,
            practice=self._practice if entry == CANDIDATE else b"",
            allow_tf32=self._protocol.precision is not PrecisionClass.STRICT,
            trains=TRAINS[self._protocol.mode],
        )
        return self._zygote.begin(job, ring, source)

    def _ring_beside_others(self) -> Ring:
        try:
            return self._ring()
        except WorkerError as error:
            if self._is_shared:
                raise CrowdedError(f"{self._problem.key}: {error}") from error
            raise

    def _ring(self) -> Ring:
        weights = list(self._oracle.original_weights.values())
        return self._runner.make_ring(weights, self._example)

    def _ready(self, worker: Worker) -> Worker:
        """Return a worker that runs our own code, once it is built."""
        patience = Patience(self._protocol.start_timeout_s)
        ending = wait_ready(self._zygote.welcome(worker), patience, self._turns)
        if ending is not Ending.DONE:
            said = worker.display_text() or "no word"
            worker.close()
            raise WorkerError(
                f"{self._problem.key}: the reference's worker {ending.value} at its start: {said}; "
                "run stage `problems` again, or raise protocol.memory_bytes"
            )
        worker.announce_weights()  # the weights that its ring began with
        return worker

    def _took_too_much(self, candidate: Worker) -> bool:
        """End a candidate; return whether it held far more GPU memory than the reference."""
        held_bytes = self._released_by(candidate)
        if not held_bytes:
            return False
        # workers made meanwhile found no memory either
        self._zygote.renew()
        if self._next is not None:
            self._zygote.dismiss(self._next)
            self._next = None
        with self.reference(fresh=True) as reference:
            return held_bytes > MEMORY_MARGIN * self._released_by(reference)

    def _released_by(self, worker: Worker) -> int:
        """End a worker; return the bytes of the device that it held, its ring among them."""
        if not self._is_cuda:
            return 0
        self._zygote.settle()  # what others give back meanwhile would be counted, too
        before, _ = self._memory()
        worker.end()
        released = self._memory()[0] - before
        worker.close()
        return released + worker.ring.num_bytes


def cpu_limit_s(protocol: EvalProtocol) -> int:
    """Return the seconds of processor time that each process of a candidate may take."""
    return CPU_LIMIT_S + math.ceil(protocol.build_timeout_s)


def too_large(problem: Problem, device: Device, error: Exception) -> str:
    """Return the message that a device's memory was too small, by no candidate's fault."""
    said = str(error).split(". ")[0]
    return (
        f"{problem.key}: too large for {device.kind}: {said}; lower its sizes, or "
        "protocol.ring_bytes"
    )
