"""The gates that a candidate passes, in order, and the verdict that comes of it.

The judge owns the clock, the inputs, the answers and the comparison, and never runs candidate
code. Gates: the worker starts and builds the module · correctness on 3, 16, … inputs of several
families · timing in ABBA quads, every timed output compared · confirmation of large claims in
fresh processes · nothing below the physical floor.

Threat: a candidate's source is never compiled or run here, only read for labels (`screen`); seeds
come from the operating system.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness import claims, plan, rule, statistics
from cudal1.harness.burst import Desk, Ending, wait_ready
from cudal1.harness.ceilings import Ceilings
from cudal1.harness.device import Device
from cudal1.harness.examination import Examination, run_own
from cudal1.harness.oracle import Oracle
from cudal1.harness.progress import Failure, Progress
from cudal1.harness.quads import Quads
from cudal1.harness.roofline import BELOW_FLOOR
from cudal1.harness.sandbox import Worker, Zygote
from cudal1.harness.screen import screen
from cudal1.harness.wire import Job
from cudal1.measurement import Baseline, Measurement, Role, TimingSample
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol, PrecisionClass
from cudal1.verdict import Status, Verdict

REFERENCE_BURSTS = 5
EMPTY_BURSTS, MAX_EMPTY_BURSTS = 5, 20
EMPTY_MEMORY = 60
"""Latest empty bursts of one size, whose smallest time is subtracted."""
AGREEING, EMPTY_AGREEMENT = 3, 1.1
"""So many of the smallest must lie this close: else a busy machine has spoilt them all."""
CPU_LIMIT_S = 300
MAX_LENT = 16
"""Measurements of one reference's process on a GPU."""
MEMORY_MARGIN = 2
"""A candidate that held so many times the reference's share of a GPU's memory is to blame when
others find none."""
MAX_SOURCE_BYTES = 1 << 20


@dataclass(frozen=True)
class Judgement:
    """A verdict and the bursts behind it."""

    verdict: Verdict
    samples: tuple[TimingSample, ...]


class ProblemJudge:
    """Judges candidates for one problem: keeps its oracle and its memory."""

    def __init__(
        self, problem: Problem, *, device: Device, protocol: EvalProtocol, zygote: Zygote,
        ceilings: Ceilings,
    ) -> None:  # fmt: skip
        import torch

        self.problem = problem
        self._device = device
        self._protocol = protocol
        self._zygote = zygote
        self._rng = random.SystemRandom()
        place = torch.device(device.torch_name)
        self._oracle = Oracle(problem, weight_seed=protocol.seed, device=place)
        self._work = self._oracle.work()
        self._ceilings = ceilings
        ceilings.peaks()  # now, while no candidate can make the device look slow
        self._layout = plan.layout(self._oracle, protocol)
        self._arena_bytes = plan.arena_bytes(self._oracle, self._layout.num_slots)
        self._desk = Desk(self._layout, place)
        self._empty_us: dict[int, deque[float]] = {}
        self._empty: Worker | None = None
        self._waiting: Worker | None = None
        zygote.settle()
        self._times_lent = 0
        with self._lent_reference(fresh=True) as reference:
            self.reference_us = self._time_reference(reference)
            self._reference_bytes = self._released_by(reference)
        is_cuda = device.device_class is DeviceClass.CUDA
        self._cost_us = (
            self._time_empty(min(plan.LEAST_SLOTS, self._layout.num_slots)) if is_cuda else 0.0
        )

    def close(self) -> None:
        """End the workers that it keeps."""
        for worker in (self._empty, self._waiting):
            if worker is not None:
                worker.close()
        self._empty = self._waiting = None

    def judge(
        self, candidate: Candidate, *, timing: bool, record: float | None = None
    ) -> Judgement:
        """The verdict on one candidate; whatever it does ends here as data.

        Without `timing` it stops before the last gate: a failure is the full protocol's verdict, a
        success is one under `protocol.checks_only()`.

        Args:
            candidate: what to judge.
            timing: whether to time it.
            record: the best certified speedup of the problem so far, where it is known.

        Raises:
            WorkerError: our own machinery failed.
        """
        started = time.monotonic()
        examination = self._examination()
        progress, flags = examination.progress, screen(candidate.source)
        measurement: Measurement | None = None
        status, reason = Status.CORRECT, None
        try:
            measurement = self._examine(
                candidate, examination, timing=timing and self._protocol.timing
            )
            if measurement and claims.is_doubtful(measurement, self._protocol, record=record):
                measurement = self._confirmed(candidate, measurement, progress)
        except Failure as failure:
            status, reason, measurement = failure.status, failure.reason, None
            flags += failure.flags
        only_checked = status is Status.CORRECT and measurement is None
        protocol = self._protocol.checks_only() if only_checked else self._protocol
        verdict = Verdict(
            problem_id=self.problem.id, candidate_id=candidate.id, protocol_id=protocol.id,
            device_kind=self._device.kind, device_id=self._device.id, status=status, reason=reason,
            flags=flags, correctness=progress.correctness(), measurement=measurement,
            sandbox=progress.layers, judged_at=datetime.now(UTC).isoformat(timespec="seconds"),
            judge_s=time.monotonic() - started,
        )  # fmt: skip
        return Judgement(verdict, tuple(progress.samples))

    # --- gates -----------------------------------------------------------------------------------

    def _examine(
        self, candidate: Candidate, examination: Examination, *, timing: bool
    ) -> Measurement | None:
        if len(candidate.source) > MAX_SOURCE_BYTES:
            raise Failure(Status.NO_BUILD, f"source longer than {MAX_SOURCE_BYTES} characters")
        with self._lent_candidate(candidate) as worker:
            examination.await_build(worker)
            if timing:  # it gets ready while the candidate is checked
                self._have_reference(fresh=self._device.device_class is not DeviceClass.CUDA)
            examination.check(worker)
            if not timing:
                return None
            return self._session(worker, examination, session=0)

    def _confirmed(
        self, candidate: Candidate, claim: Measurement, progress: Progress
    ) -> Measurement:
        """Measure a claim again, in fresh processes.

        Raises:
            Failure: this time the candidate failed.
        """
        examination = self._examination()
        examination.progress = progress  # its bursts are as long as they were
        self._have_reference(fresh=True)
        with self._lent_candidate(candidate) as worker:
            examination.await_build(worker)
            again = self._session(worker, examination, session=1)
        return claims.settled(
            self._doubted(claim), self._doubted(again), self._protocol,
            confirmed_on=self._device.id,
        )  # fmt: skip

    def _doubted(self, claim: Measurement) -> Measurement:
        """The claim; if it is below the floor, then below one of ceilings measured once more."""
        if not claims.is_impossible(claim):
            return claim
        self._ceilings.again()
        return claim.model_copy(update={"floor_us": self._floor_us()})

    def _floor_us(self) -> float | None:
        floor_us = self._work.floor_us(self._ceilings.peaks(), self._protocol.precision)
        return floor_us if floor_us > 0 else None

    def _examination(self) -> Examination:
        return Examination(
            self._oracle, self._desk, self._protocol,
            reference_call_us=self.reference_us, cost_us=self._cost_us, rng=self._rng,
        )  # fmt: skip

    def _session(self, worker: Worker, examination: Examination, *, session: int) -> Measurement:
        """Measure against the reference: on a CPU, and a second time, in as fresh a process."""
        fresh = session > 0 or self._device.device_class is not DeviceClass.CUDA
        self._zygote.settle()  # who was dismissed before still held the device
        quads = Quads(examination, self._desk, self._oracle, self._protocol, session=session)
        with self._lent_reference(fresh=fresh) as reference, self._zygote.still():
            ratios = quads.measure(worker, reference, time_empty=self._time_empty)
            samples = [s for s in examination.progress.samples if s.session == session]
            measured = self._measurement(ratios, samples)
            if measured.certified <= 1.0:
                return measured
            limit = quads.batching_limit(worker, reference)
        certified = min(measured.certified, statistics.conservative(limit))
        if certified < self._protocol.dead_zone:
            certified = 1.0
        return measured.model_copy(update={"certified": certified})

    def _measurement(self, ratios: list[float], samples: list[TimingSample]) -> Measurement:
        def typical(role: Role) -> float:
            return median(sample.net_us for sample in samples if sample.role is role)

        said = rule.read(ratios, self._protocol)
        reference_us, floor_us = typical(Role.REFERENCE), self._floor_us()
        if floor_us is not None and reference_us < BELOW_FLOOR * floor_us:
            floor_us = None  # a program that we trust has disproved it
        return Measurement(
            baseline=Baseline.EAGER, speedup=said.speedup, certified=said.certified,
            alpha=said.alpha, lower=said.lower, upper=said.upper, num_quads=len(ratios),
            bucket_medians=said.buckets, bucket_variance=said.bucket_variance,
            is_stable=said.is_stable, reference_us=reference_us,
            candidate_us=typical(Role.CANDIDATE), floor_us=floor_us,
        )  # fmt: skip

    # --- workers ---------------------------------------------------------------------------------

    def _begin(self, entry: str, source: str, cpu_s: int | None) -> Worker:
        weights = self._oracle.original_weights
        ring = self._desk.make_ring(list(weights.values()), arena_bytes=self._arena_bytes)
        job = Job(
            source=source, device=self._device.device_class.value, entry=entry,
            init_inputs=self._oracle.init_inputs, weight_names=tuple(weights),
            layout=self._layout, seed=self._protocol.seed,
            memory_bytes=self._protocol.memory_bytes, cpu_s=cpu_s,
            core=self._device.worker_core, folder="",
            ring_bytes=ring.num_bytes,
            allow_tf32=self._protocol.precision is not PrecisionClass.STRICT,
        )  # fmt: skip
        return self._zygote.begin(job, ring)

    @contextmanager
    def _lent_candidate(self, candidate: Candidate) -> Iterator[Worker]:
        """A fresh worker with the candidate, and the original weights, whatever others were given.

        Who takes so much memory of a GPU that nothing is left to judge it with has failed.
        """
        import torch

        self._oracle.change_weights(None)
        worker = self._zygote.welcome(self._begin("ModelNew", candidate.source, CPU_LIMIT_S))
        with self._zygote.lent(worker):
            try:
                yield worker
            except (torch.OutOfMemoryError, WorkerError):
                if self._released_by(worker) <= MEMORY_MARGIN * self._reference_bytes:
                    raise
                self._zygote.renew()  # those that were made meanwhile found no memory either
                raise Failure(Status.CRASHED, "took the device's memory that others need") from None

    @contextmanager
    def _lent_reference(self, *, fresh: bool) -> Iterator[Worker]:
        """A worker with the reference, which one measurement uses up, or several if not `fresh`.

        On a GPU each process needs a context, a third of a second of the driver's; that others are
        no faster is what a second measurement finds out.
        """
        self._have_reference(fresh=fresh)
        worker, self._waiting = self._waiting, None
        assert worker is not None
        self._times_lent += 1
        again = False
        try:
            yield self._ready(worker)
            again = not fresh
        except Failure:
            again = not fresh
            raise
        finally:
            if again and self._times_lent < MAX_LENT:
                self._waiting = worker
            else:
                self._zygote.dismiss(worker)

    def _have_reference(self, *, fresh: bool) -> None:
        """Begin a reference's worker, for the next measurement, unless one is waiting."""
        waiting = self._waiting
        if waiting is not None and (not waiting.is_alive() or (fresh and waiting.num_published)):
            self._zygote.dismiss(waiting)
            self._waiting = None
        if self._waiting is None:
            self._waiting = self._begin("Model", self.problem.source, None)
            self._times_lent = 0

    def _ready(self, worker: Worker) -> Worker:
        """One that runs our own code, built."""
        ending = wait_ready(self._zygote.welcome(worker), self._protocol.start_timeout_s)
        if ending is not Ending.DONE:
            said = worker.display_text() or "no word"
            worker.close()
            raise WorkerError(
                f"{self.problem.key}: the reference's worker {ending.value} at its start: {said}; "
                "run stage `problems` again, or raise protocol.memory_bytes"
            )
        return worker

    def _released_by(self, worker: Worker) -> int:
        """Bytes of the device that a worker held, its ring among them; it has then ended."""
        if self._device.device_class is not DeviceClass.CUDA:
            return 0
        import torch

        before, _ = torch.cuda.mem_get_info()
        worker.close()
        return torch.cuda.mem_get_info()[0] - before

    def _time_reference(self, reference: Worker) -> float:
        """A rough time of one call, to plan bursts: smallest of a few.

        On the CPU with the harness's own cost, which is small there.
        """
        count, cost_us = min(2, self._layout.num_slots), 0.0
        if self._device.device_class is DeviceClass.CUDA:
            count = min(plan.LEAST_SLOTS, self._layout.num_slots)
            cost_us = self._time_empty(count)
        draws = [self._oracle.draw(self._rng.getrandbits(62)) for _ in range(count)]
        times: list[float] = []
        for _ in range(REFERENCE_BURSTS):
            burst = run_own(self._desk, reference, draws, self._protocol)
            self._desk.release(burst)
            times.append((burst.elapsed_us - cost_us) / count)
        return max(1.0, min(times))

    def _time_empty(self, num_calls: int) -> float:
        """The harness's own cost of a burst: the smallest time, so that nobody is flattered.

        Too large a cost would leave next to nothing of short calls, and their ratio could be any.
        """
        draw = self._oracle.draw(self._rng.getrandbits(62))
        if self._empty is not None and not self._empty.is_alive():
            self._empty.close()
            self._empty = None
        self._empty = self._empty or self._ready(self._begin("", "", None))
        known = self._empty_us.setdefault(num_calls, deque(maxlen=EMPTY_MEMORY))
        for _ in range(MAX_EMPTY_BURSTS):
            burst = run_own(self._desk, self._empty, [draw] * num_calls, self._protocol)
            self._desk.release(burst)
            known.append(burst.elapsed_us)
            smallest = sorted(known)[:AGREEING]
            if len(known) >= EMPTY_BURSTS and smallest[-1] <= EMPTY_AGREEMENT * smallest[0]:
                break
        return min(known)
