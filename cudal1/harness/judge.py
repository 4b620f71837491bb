"""The gates that a candidate passes, in order, and the verdict that comes of it.

The judge owns the clock, the inputs, the answers and the comparison, and never runs candidate code.
Gates: the worker starts and builds the module · correctness on 3, 16, … inputs of several families ·
timing in ABBA quads, every timed output compared · confirmation of large claims in fresh processes.

Threat: everything a worker says is used only against its candidate. An answer is computed after the
output for its input has been captured. Seeds come from the operating system.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median

from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness import statistics
from cudal1.harness.burst import Burst, Desk, Ending, publish_weights, wait_ready
from cudal1.harness.correctness import ORDER, Comparison, compare
from cudal1.harness.device import Device
from cudal1.harness.oracle import Draw, Oracle
from cudal1.harness.sandbox import Worker, Zygote
from cudal1.harness.screen import screen
from cudal1.harness.wire import Job, Layout, State
from cudal1.measurement import Baseline, Measurement, Role, TimingSample
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol, PrecisionClass
from cudal1.verdict import Correctness, HackFlag, Status, Verdict

WARM_UP_CALLS = 3
REFERENCE_BURSTS = 7
EMPTY_BURSTS = 9
CPU_LIMIT_S = 300
FLOOR_US = 0.05
"""A net time below this is taken as this: the ratio stays finite, and the claim gets confirmed."""
INPUT_CHANGED = "changed its inputs in place, which the reference does not"


@dataclass(frozen=True)
class Judgement:
    """A verdict and the bursts behind it."""

    verdict: Verdict
    samples: tuple[TimingSample, ...]


@dataclass(frozen=True)
class _Failure(Exception):
    """Leaves the gates: the first one that the candidate failed."""

    status: Status
    reason: str
    flags: tuple[HackFlag, ...] = ()


@dataclass
class _Progress:
    """What is known so far about the candidate under judgement."""

    num_inputs: int = 0
    stage: int = 0
    precision: PrecisionClass | None = None
    relative_l2: float = 0.0
    scaled_error: float = 0.0
    mismatch: str | None = None
    compared: bool = False
    layers: tuple[str, ...] = ()
    samples: list[TimingSample] = field(default_factory=list[TimingSample])

    def correctness(self) -> Correctness | None:
        if not self.compared:
            return None
        finite = self.mismatch is None or self.relative_l2 < float("inf")
        return Correctness(
            num_inputs=self.num_inputs, stage=self.stage, precision=self.precision,
            max_relative_l2=self.relative_l2 if finite else None,
            max_scaled_error=self.scaled_error if self.scaled_error < float("inf") else None,
            first_mismatch=self.mismatch,
        )  # fmt: skip


class ProblemJudge:
    """Judges candidates for one problem: keeps its oracle and its reference and empty workers."""

    def __init__(
        self, problem: Problem, *, device: Device, protocol: EvalProtocol, zygote: Zygote
    ) -> None:
        self.problem = problem
        self._device = device
        self._protocol = protocol
        self._zygote = zygote
        self._rng = random.SystemRandom()
        self._oracle = Oracle(problem, weight_seed=protocol.seed)
        self._layout = self._plan()
        self._desk = Desk(self._layout)
        self._helpers: list[Worker] = []
        self._pool: list[Draw] = []
        self._reference = self._helper("Model", problem.source)
        self.reference_us = self._time_reference()
        self._burst_calls = max(
            1, min(self._layout.num_slots, round(protocol.burst_us / self.reference_us))
        )
        self._empty_us: float | None = None

    def close(self) -> None:
        """End the reference and empty workers."""
        for worker in self._helpers:
            worker.close()

    def judge(self, candidate: Candidate, *, timing: bool) -> Judgement:
        """The verdict on one candidate; whatever it does ends here as data.

        Without `timing` it stops before the last gate: a failure is the full protocol's verdict, a
        success is one under `protocol.checks_only()`.

        Raises:
            WorkerError: our own machinery failed.
        """
        started = time.monotonic()
        progress = _Progress()
        flags = screen(candidate.source)
        measurement: Measurement | None = None
        status, reason = Status.CORRECT, None
        try:
            with self._start(candidate.source) as worker:
                self._await_build(worker, progress)
                self._check(worker, progress)
                if timing:
                    ratios = self._measure(worker, progress, session=0)
                    measurement = self._measurement(ratios, progress)
            if measurement is not None and measurement.certified > self._protocol.confirm_above:
                measurement = self._confirm(candidate, measurement, progress)
        except _Failure as failure:
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

    # --- workers ---------------------------------------------------------------------------------

    def _plan(self) -> Layout:
        oracle = self._oracle
        one = Layout(oracle.weight_specs, oracle.input_specs, oracle.output_specs, 1)
        slot_bytes = max(1, one.input_bytes + one.output_bytes)
        slots = min(self._protocol.max_burst_calls, self._protocol.ring_bytes // slot_bytes)
        return Layout(one.weights, one.inputs, one.outputs, max(1, slots))

    def _job(self, entry: str, source: str) -> Job:
        return Job(
            source=source, entry=entry, init_inputs=self._oracle.init_inputs,
            weight_names=tuple(self._oracle.weights), layout=self._layout,
            seed=self._protocol.seed, memory_bytes=self._protocol.memory_bytes,
            cpu_s=CPU_LIMIT_S, core=self._device.worker_core, folder="",
        )  # fmt: skip

    def _start(self, source: str) -> Worker:
        return self._launch("ModelNew", source)

    def _launch(self, entry: str, source: str) -> Worker:
        def publish(ring: memoryview) -> None:
            publish_weights(ring, self._layout, list(self._oracle.weights.values()))

        return self._zygote.start(self._job(entry, source), before_fork=publish)

    def _helper(self, entry: str, source: str) -> Worker:
        """A worker of our own: the reference, or one that computes nothing."""
        worker = self._launch(entry, source)
        self._helpers.append(worker)
        ending = wait_ready(worker, self._protocol.start_timeout_s)
        if ending is not Ending.DONE:
            raise WorkerError(
                f"{self.problem.key}: the reference worker {ending.value} while starting: "
                f"{worker.display_text() or 'no word'}"
            )
        return worker

    def _await_build(self, worker: Worker, progress: _Progress) -> None:
        ending = wait_ready(worker, self._protocol.start_timeout_s)
        progress.layers = worker.layers
        if ending is Ending.TIMED_OUT:
            raise _Failure(Status.TIMED_OUT, "did not finish loading in time")
        if ending is not Ending.DONE:
            raise _Failure(Status.NO_BUILD, worker.display_text() or "its process died while loading")

    # --- bursts ----------------------------------------------------------------------------------

    def _timeout_s(self, num_calls: int) -> float:
        allowed = num_calls * self.reference_us * 1e-6 * self._protocol.slow_factor
        return self._protocol.call_timeout_s + min(allowed, 10 * self._protocol.call_timeout_s)

    def _run(self, worker: Worker, draws: Sequence[Draw]) -> Burst:
        """One burst of the candidate; leaves with its failure."""
        burst = self._desk.run(worker, draws, timeout_s=self._timeout_s(len(draws)))
        match burst.ending:
            case Ending.DONE:
                return burst
            case Ending.TIMED_OUT:
                raise _Failure(Status.TIMED_OUT, "a call did not return in time")
            case Ending.DIED:
                raise _Failure(Status.CRASHED, "its process died in a call")
            case Ending.FAILED:
                said = worker.display_text() or "it gave no reason"
                wrong = worker.state == State.WRONG_OUTPUT
                raise _Failure(Status.INCORRECT if wrong else Status.CRASHED, said)

    def _run_helper(self, worker: Worker, draws: Sequence[Draw]) -> Burst:
        burst = self._desk.run(worker, draws, timeout_s=10 * self._protocol.call_timeout_s)
        if burst.ending is not Ending.DONE:
            raise WorkerError(
                f"{self.problem.key}: the reference worker {burst.ending.value}: "
                f"{worker.display_text() or 'no word'}"
            )
        return burst

    def _fresh(self, count: int) -> list[Draw]:
        """Inputs of the problem's own kind that nobody has seen."""
        return [self._oracle.draw(self._rng.getrandbits(62)) for _ in range(count)]

    def _pooled(self, count: int) -> list[Draw]:
        """Inputs for our own workers, which may see some twice."""
        while len(self._pool) < count:
            self._pool += self._fresh(1)
        return self._rng.sample(self._pool, count)

    def _time_reference(self) -> float:
        """A rough time of one call, to plan bursts: smallest of a few."""
        draws = self._pooled(min(2, self._layout.num_slots))
        times = [
            self._run_helper(self._reference, draws).elapsed_us for _ in range(REFERENCE_BURSTS)
        ]
        return max(1.0, min(times) / len(draws))

    def _burst_cost_us(self) -> float:
        """The harness's own cost of a burst: a low quantile, so that subtracting it never flatters."""
        if self._empty_us is None:
            empty, draws = self._helper("", ""), self._pooled(self._burst_calls)
            times = sorted(
                self._run_helper(empty, draws).elapsed_us for _ in range(EMPTY_BURSTS)
            )
            self._empty_us = times[len(times) // 4]
        return self._empty_us

    # --- gates -----------------------------------------------------------------------------------

    def _check(self, worker: Worker, progress: _Progress) -> None:
        """Correctness, in stages, on inputs of several families."""
        for stage, target in enumerate(self._protocol.correctness_stages, start=1):
            while progress.num_inputs < target:
                count = min(target - progress.num_inputs, self._layout.num_slots)
                draws = [self._draw_for_check(progress, i) for i in range(count)]
                burst = self._run(worker, draws)
                self._compare(worker, draws, burst, progress, exact=True)
            progress.stage = stage

    def _draw_for_check(self, progress: _Progress, index: int) -> Draw:
        first = progress.num_inputs + index == 0
        family = "own" if first else self._oracle.random_family(self._rng)
        return self._oracle.draw(self._rng.getrandbits(62), family)

    def _compare(
        self, worker: Worker, draws: Sequence[Draw], burst: Burst, progress: _Progress, *,
        exact: bool,
    ) -> None:  # fmt: skip
        """Compare every output of a burst; answers are computed here, after the capture."""
        if not self._desk.inputs_unchanged(worker, len(draws)):
            raise _Failure(Status.INCORRECT, INPUT_CHANGED)
        progress.compared = True
        for slot, draw in enumerate(draws):
            answers = self._oracle.answer(draw, exact=exact)
            error = self._oracle.error(draw.family)
            for output, answer in zip(self._desk.output(burst, slot), answers, strict=True):
                self._note(compare(output, answer, error), draw.family, progress)
            progress.num_inputs += 1

    def _note(self, comparison: Comparison, family: str, progress: _Progress) -> None:
        met = next((p for p in ORDER if comparison.meets(p)), None)
        progress.relative_l2 = max(progress.relative_l2, comparison.relative_l2)
        asked = self._protocol.precision
        progress.scaled_error = max(progress.scaled_error, comparison.worst[asked])
        if comparison.meets(asked):
            assert met is not None
            known = progress.precision or met
            progress.precision = max(known, met, key=ORDER.index)
            return
        progress.mismatch = (
            f"input {progress.num_inputs} ({family}): {comparison.mismatch or 'not comparable'}"
        )
        if met is not None:
            progress.precision = met
            raise _Failure(
                Status.INCORRECT, f"correct only in the looser precision class {met}, not {asked}"
            )
        progress.precision = None
        raise _Failure(Status.INCORRECT, f"wrong output: {progress.mismatch}")

    def _measure(self, worker: Worker, progress: _Progress, *, session: int) -> list[float]:
        """ABBA quads until more could not change what is certified; log-ratios."""
        count, cost_us = self._burst_calls, self._burst_cost_us()
        for _ in range(WARM_UP_CALLS):
            draws = self._fresh(min(count, 2))
            self._compare(worker, draws, self._run(worker, draws), progress, exact=False)
        ratios: list[float] = []
        while not (ratios and statistics.is_done(ratios, self._protocol)):
            times: dict[Role, list[float]] = {Role.REFERENCE: [], Role.CANDIDATE: []}
            first = self._rng.choice((Role.REFERENCE, Role.CANDIDATE))
            second = Role.CANDIDATE if first is Role.REFERENCE else Role.REFERENCE
            for position, role in enumerate((first, second, second, first)):
                elapsed_us = self._timed(worker, role, progress)
                net_us = (elapsed_us - cost_us) / count
                times[role].append(max(FLOOR_US, net_us))
                progress.samples.append(
                    TimingSample(
                        session=session, quad=len(ratios), position=position, role=role,
                        num_calls=count, burst_us=elapsed_us, net_us=net_us,
                    )
                )  # fmt: skip
            ratios.append(statistics.log_ratio(times[Role.REFERENCE], times[Role.CANDIDATE]))
        return ratios

    def _timed(self, worker: Worker, role: Role, progress: _Progress) -> float:
        if role is Role.REFERENCE:
            return self._run_helper(self._reference, self._pooled(self._burst_calls)).elapsed_us
        draws = self._fresh(self._burst_calls)
        burst = self._run(worker, draws)
        self._compare(worker, draws, burst, progress, exact=False)
        return burst.elapsed_us

    def _measurement(self, ratios: list[float], progress: _Progress) -> Measurement:
        protocol = self._protocol
        medians = statistics.bucket_medians(ratios, num_buckets=protocol.num_buckets)

        def typical(role: Role) -> float:
            return median(s.net_us for s in progress.samples if s.role is role)

        return Measurement(
            baseline=Baseline.EAGER,
            speedup=statistics.estimate(ratios, num_buckets=protocol.num_buckets),
            certified=statistics.reading(ratios, protocol),
            alpha=protocol.alpha,
            num_quads=len(ratios),
            bucket_medians=medians,
            bucket_variance=statistics.relative_variance(medians),
            is_stable=statistics.is_stable(ratios, protocol),
            reference_us=typical(Role.REFERENCE),
            candidate_us=typical(Role.CANDIDATE),
        )

    def _confirm(
        self, candidate: Candidate, claim: Measurement, progress: _Progress
    ) -> Measurement:
        """Measure a large claim again in a fresh process; the smaller of two that agree counts."""
        with self._start(candidate.source) as worker:
            self._await_build(worker, progress)
            again = self._measurement(self._measure(worker, progress, session=1), progress)
        agree = abs(again.speedup / claim.speedup - 1) <= self._protocol.confirm_within
        certified = min(claim.certified, again.certified) if agree else min(1.0, again.certified)
        return claim.model_copy(update={"certified": certified, "is_confirmed": agree})

