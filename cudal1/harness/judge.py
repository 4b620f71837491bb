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
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from cudal1.candidate import Candidate
from cudal1.harness import claims, plan, rule, statistics
from cudal1.harness.burst import Desk
from cudal1.harness.ceilings import Ceilings
from cudal1.harness.credible import Credible
from cudal1.harness.crew import Crew
from cudal1.harness.device import Device
from cudal1.harness.examination import Examination, run_own
from cudal1.harness.oracle import Oracle
from cudal1.harness.progress import Failure, Progress
from cudal1.harness.quads import Quads
from cudal1.harness.roofline import BELOW_FLOOR
from cudal1.harness.sandbox import Worker
from cudal1.harness.screen import screen
from cudal1.harness.zygote import Zygote
from cudal1.measurement import Baseline, Measurement, Role, TimingSample
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status, Verdict

REFERENCE_BURSTS = 5
EMPTY_BURSTS, MAX_EMPTY_BURSTS = 5, 20
EMPTY_MEMORY = 60
"""Latest empty bursts of one size, whose smallest time is subtracted."""
AGREEING, EMPTY_AGREEMENT = 3, 1.1
"""So many of the smallest must lie this close: else a busy machine has spoilt them all."""
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
        self._oracle = Oracle(
            problem, weight_seed=protocol.seed, device=place, precision=protocol.precision
        )
        self._work = self._oracle.work()
        self._ceilings = ceilings
        ceilings.peaks()  # now, while no candidate can make the device look slow
        self._layout = plan.layout(self._oracle, protocol)
        arena_bytes = plan.arena_bytes(self._oracle, self._layout.num_slots)
        self._desk = Desk(self._layout, place, arena_bytes=arena_bytes)
        self._crew = Crew(
            problem, self._oracle, self._desk, device=device, protocol=protocol, zygote=zygote
        )
        self._empty_us: dict[int, deque[float]] = {}
        with ExitStack() as preparing:
            preparing.callback(self.close)
            with self._crew.reference(fresh=True) as reference:
                self.reference_us = self._time_reference(reference)
                self._crew.weigh(reference)
            is_cuda = device.device_class is DeviceClass.CUDA
            self._cost_us = (
                self._time_empty(min(plan.LEAST_SLOTS, self._layout.num_slots)) if is_cuda else 0.0
            )
            preparing.pop_all()

    def close(self) -> None:
        """End the workers that it keeps."""
        self._crew.close()
        self._desk.close()

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
        with self._crew.candidate(candidate) as worker:
            examination.await_build(worker)
            if timing:  # it gets ready while the candidate is checked
                self._crew.have_reference(fresh=self._device.device_class is not DeviceClass.CUDA)
            examination.check(worker)
            if not timing:
                return None
            return self._session(worker, examination, session=0)

    def _confirmed(
        self, candidate: Candidate, claim: Measurement, progress: Progress
    ) -> Measurement:
        """Measure a claim again, in fresh processes; a small gain up to twice.

        Raises:
            Failure: this time the candidate failed.
        """
        again = self._again(candidate, progress, session=1)
        if again.certified <= 1.0 and claims.is_small(claim, self._protocol):
            again = self._again(candidate, progress, session=2)
        return claims.settled(
            self._doubted(claim), self._doubted(again), self._protocol,
            confirmed_on=self._device.id,
        )  # fmt: skip

    def _again(self, candidate: Candidate, progress: Progress, *, session: int) -> Measurement:
        examination = self._examination()
        examination.progress = progress  # its bursts are as long as they were
        self._crew.have_reference(fresh=True)
        with self._crew.candidate(candidate) as worker:
            examination.await_build(worker)
            return self._session(worker, examination, session=session)

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
        quads = Quads(
            examination, self._desk, self._oracle, self._protocol, session=session,
            time_empty=self._time_empty,
        )  # fmt: skip
        with self._crew.reference(fresh=fresh) as reference, self._crew.still():
            ratios = quads.measure(worker, reference)
            samples = [s for s in examination.progress.samples if s.session == session]
            measured = self._measurement(ratios, samples)
            if measured.certified <= 1.0:
                return measured
            limit = Credible(quads, examination, self._desk, worker, reference).limit()
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

    # --- times -----------------------------------------------------------------------------------

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
        empty = self._crew.empty()
        known = self._empty_us.setdefault(num_calls, deque(maxlen=EMPTY_MEMORY))
        for _ in range(MAX_EMPTY_BURSTS):
            burst = run_own(self._desk, empty, [draw] * num_calls, self._protocol)
            self._desk.release(burst)
            known.append(burst.elapsed_us)
            smallest = sorted(known)[:AGREEING]
            if len(known) >= EMPTY_BURSTS and smallest[-1] <= EMPTY_AGREEMENT * smallest[0]:
                break
        return min(known)
