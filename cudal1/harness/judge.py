"""Lead a candidate through the gates, in order, and make the verdict.

The judge owns the clock, the inputs, the answers and the comparison, and never runs candidate code.
The gates:

* The worker starts and builds the module.
* Outputs are correct on 3, 16, … inputs of several families.
* The candidate is timed in quads or pairs, and every timed output is compared (`sessions`).
* Claims are confirmed in a fresh process (`confirmation`).
* Nothing is faster than the physical `floor`.

Threat: a candidate's source is never compiled or run here, only read for labels (`screen`); seeds
come from the operating system.

Long because the order of the gates, and of what is begun meanwhile, is to be seen in one place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from cudal1.candidate import Candidate
from cudal1.errors import CrowdedCandidateError
from cudal1.harness.admission.known_references import Circumstances, KnownReferences
from cudal1.harness.builds import toolchain
from cudal1.harness.checks.examination import Examination
from cudal1.harness.checks.progress import Progress, Stopwatch
from cudal1.harness.checks.properties import look
from cudal1.harness.checks.staged_check import StagedCheck
from cudal1.harness.device.ceilings import Ceilings
from cudal1.harness.device.device import Device
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange import plan
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.costs import Costs
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.exchange.problem_workers import ProblemWorkers
from cudal1.harness.judgement import Judgement
from cudal1.harness.oracle.oracle import Oracle
from cudal1.harness.oracle.traits import Traits
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.screen.sameness import is_copy
from cudal1.harness.screen.screen import MAX_SOURCE_BYTES, screen, syntax_error
from cudal1.harness.timing import claims
from cudal1.harness.timing.confirmation import Confirmation
from cudal1.harness.timing.floor import Floor
from cudal1.harness.timing.sessions import Sessions
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import Contract, EvalProtocol
from cudal1.verdict import Status, Verdict


class ProblemJudge:
    """A judge of candidates for one problem; it keeps the problem's oracle and memory.

    Args:
        problem: the candidates' problem.
        device: what they are judged on.
        protocol: says how they are judged.
        zygote: forks workers.
        ceilings: of the device.
        turns: this judge's turns on the device.
        num_lanes: the number of judges with such a share of the device; 1: it has no other.
        known: has what earlier runs have found of references; no time is taken from there.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        device: Device,
        protocol: EvalProtocol,
        zygote: Zygote,
        ceilings: Ceilings,
        turns: Turns | None = None,
        num_lanes: int = 1,
        known: KnownReferences | None = None,
    ) -> None:
        import torch

        self.problem = problem
        self._device = device
        self._protocol = protocol
        self._zygote = zygote
        self._turns = turns or Turns()
        self._num_lanes = num_lanes
        self._rng = random.SystemRandom()
        place = torch.device(device.torch_name)
        traits = known and known.find(Circumstances.of(problem, protocol, device), Traits)
        self._oracle = Oracle(
            problem,
            weight_seed=protocol.seed,
            device=place,
            precision=protocol.precision,
            mode=protocol.mode,
            turns=self._turns,
            traits=traits,
        )
        ceilings.peaks()  # measured while no candidate can make the device look slow
        self._layout, arena_bytes = plan.layout_and_arena(
            self._oracle, protocol, num_lanes=num_lanes
        )
        self._runner = BurstRunner(self._layout, place, arena_bytes=arena_bytes, turns=self._turns)
        self._workers = ProblemWorkers(
            problem,
            self._oracle,
            self._runner,
            device=device,
            protocol=protocol,
            zygote=zygote,
            turns=self._turns,
            num_lanes=num_lanes,
        )
        self._costs = Costs(self._oracle, self._runner, self._workers, protocol, self._rng)
        self._floor = Floor(self._oracle.traits.work, ceilings, protocol, self._turns)
        self._sessions = Sessions(
            self._oracle,
            self._runner,
            self._workers,
            self._costs,
            self._floor,
            protocol,
            zygote=zygote,
            turns=self._turns,
            num_lanes=num_lanes,
        )
        self._confirmation = Confirmation(
            self._workers, self._sessions, self._floor, protocol, device
        )
        with ExitStack() as preparing:
            preparing.callback(self.close)
            with self._workers.reference(fresh=self._is_cpu) as reference:
                # beside other judges only roughly: to be alone for that, too, would keep all
                # waiting
                self._costs.orient(reference, is_calm=num_lanes == 1)
            self._workers.have_candidate()
            preparing.pop_all()

    @property
    def _is_cpu(self) -> bool:
        """True on a CPU, or on the fake device.

        There a process costs next to nothing, and two differ by more than on a GPU. So each
        measurement has a reference's process of its own.
        """
        return self._device.device_class is not DeviceClass.CUDA

    @property
    def reference_us(self) -> float:
        """The rough microseconds of one call of the reference, harness included."""
        return self._costs.known.reference_us

    def close(self) -> None:
        """End the workers that it keeps, and give the rings back."""
        self._workers.close()
        self._runner.close()

    def judge(
        self,
        candidate: Candidate,
        *,
        timing: bool,
        record: float | None = None,
        not_built: Failure | None = None,
        elsewhere: bool = False,
    ) -> Judgement:
        """Return the judgement of one candidate; whatever the candidate does ends here as data.

        Without `timing` the judgement stops before the last gate. A failure is then the full
        protocol's verdict, and a success is one under `protocol.checks_only()`.

        Args:
            candidate: what to judge.
            timing: whether to time it.
            record: the best certified speedup of the problem so far, where it is known.
            not_built: the reason why it could not be built, where that was tried before
                (`builder`).
            elsewhere: whether a large claim will be confirmed on another device, and so not here.

        Raises:
            WorkerError: our own machinery failed.
        """

        def examined(examination: Examination) -> Measurement | None:
            if not_built is not None:
                raise not_built
            return self._examine(
                candidate,
                examination,
                timing=timing and self._protocol.timing,
                record=record,
                elsewhere=elsewhere,
            )

        return self._judgement(candidate, examined)

    def confirm(self, candidate: Candidate, first: Verdict) -> Judgement:
        """Measure a verdict's claim once more, in a process here.

        As a rule another device has made the claim. Outputs are compared as always when the
        candidate is timed; no others are asked for.

        Raises:
            WorkerError: our own machinery failed.
        """
        claim = first.measurement
        assert claim is not None

        def examined(examination: Examination) -> Measurement | None:
            progress = examination.progress
            progress.seen = first.properties or progress.seen
            progress.call_us = claim.candidate_us  # bursts are about as long as they were
            return self._confirmation.repeat(candidate, claim, examination)

        return self._judgement(candidate, examined)

    def _judgement(
        self, candidate: Candidate, examined: Callable[[Examination], Measurement | None]
    ) -> Judgement:
        waited_s, timed_s = self._turns.waited_s, self._turns.timed_s
        progress = Progress(
            stopwatch=Stopwatch(self._own_time),
            compiles=toolchain.compiles(candidate.source),
            compiles_itself=toolchain.compiles_itself(candidate.source),
        )
        examination = Examination(
            self._oracle,
            self._runner,
            self._protocol,
            costs=self._costs.known,
            rng=self._rng,
            progress=progress,
            turns=self._turns,
        )
        progress.saw(copies_reference=is_copy(candidate.source, self.problem.source))
        flags = screen(candidate.source)
        measurement: Measurement | None = None
        status, reason = Status.CORRECT, None
        try:
            measurement = examined(examination)
        except Failure as failure:
            if self._num_lanes > 1 and lacks_memory(failure.reason):  # other judges may have it
                raise CrowdedCandidateError(f"{self.problem.key}: {failure.reason}") from failure
            status, reason, measurement = failure.status, failure.reason, None
            flags += failure.flags
        waited_s = self._turns.waited_s - waited_s
        only_checked = status is Status.CORRECT and measurement is None
        protocol = self._protocol.checks_only() if only_checked else self._protocol
        phases = progress.stopwatch.phases()
        verdict = Verdict(
            problem_id=self.problem.id,
            candidate_id=candidate.id,
            protocol_id=protocol.id,
            device_kind=self._device.kind,
            device_id=self._device.id,
            status=status,
            reason=reason,
            flags=flags,
            correctness=progress.compared.correctness(),
            measurement=measurement,
            properties=progress.seen if status is Status.CORRECT else None,
            sandbox=progress.layers,
            judged_at=datetime.now(UTC).isoformat(timespec="seconds"),
            judge_s=sum(seconds for _, seconds in phases),
            phases=phases,
        )
        return Judgement(
            verdict,
            tuple(progress.samples),
            build_s=phases.starting_s + phases.compiling_s,
            waited_s=waited_s,
            timed_s=self._turns.timed_s - timed_s,
            is_to_confirm=measurement is not None and progress.is_to_confirm,
        )

    # --- gates -----------------------------------------------------------------------------------

    def _examine(
        self,
        candidate: Candidate,
        examination: Examination,
        *,
        timing: bool,
        record: float | None,
        elsewhere: bool,
    ) -> Measurement | None:
        if len(candidate.source) > MAX_SOURCE_BYTES:
            raise Failure(Status.NO_BUILD, f"source longer than {MAX_SOURCE_BYTES} characters")
        if said := syntax_error(candidate.source):
            raise Failure(Status.NO_BUILD, said)
        stages = range(1, len(self._protocol.correctness_stages) + 1)
        if self._draws_weights(examination):  # under two seeds, each in a process of its own
            with self._workers.candidate(candidate) as worker, self._builds_kept(worker, candidate):
                self._workers.expect_another()
                examination.await_build(worker)
                self._check(worker, examination, stages[:1])
            examination, stages = examination.another(), stages[1:]
        with self._workers.candidate(candidate) as worker:
            claim = None
            with self._builds_kept(worker, candidate):
                examination.await_build(worker)
                if timing:  # it gets ready while the candidate is checked
                    self._workers.have_reference(fresh=self._is_cpu, seed=worker.job.seed)
                self._check(worker, examination, stages)
                if timing:
                    claim = self._sessions.measure(
                        worker, examination, session=0, is_fresh=self._is_cpu
                    )
                look(worker, examination, self._oracle, self._runner)
            built = self._zygote.builds.of(candidate.id)
            examination.progress.saw(needs_compiler=bool(built))
            if claim is None or not claims.is_doubtful(claim, self._protocol, record=record):
                return claim
            if elsewhere and not claims.is_small(claim, self._protocol):
                examination.progress.is_to_confirm = True
                return self._floor.doubted(claim)
            self._workers.make_room(worker)
            return self._confirmation.confirm(candidate, claim, examination)

    def _check(self, worker: Worker, examination: Examination, stages: Sequence[int]) -> None:
        check = StagedCheck(examination, self._oracle, self._runner, self._protocol, self._turns)
        check.run(worker, stages)

    def _draws_weights(self, examination: Examination) -> bool:
        """Return whether a candidate must show that it draws the reference's weights.

        Its constructor has to draw them. The reference's own does, and so does a copy of it, which
        is checked in full under one seed. Threat: a candidate that is taken for a copy and is none
        is right under that seed, and earns 1.00 at most.
        """
        if examination.progress.seen.copies_reference:
            return False
        return self._protocol.contract is Contract.KERNELBENCH and self._oracle.is_seeded

    @contextmanager
    def _builds_kept(self, worker: Worker, candidate: Candidate) -> Iterator[None]:
        """Keep what a candidate compiled at the end, also if its outputs were wrong.

        It is not kept before: that would tell the worker that the checks are over.
        """
        try:
            yield
        except Failure as failure:
            if failure.status is Status.INCORRECT:
                self._workers.keep_builds(worker, candidate)
            raise
        self._workers.keep_builds(worker, candidate)

    def _own_time(self) -> float:
        """Return the seconds of a clock that stands still while others have the device."""
        return time.monotonic() - self._turns.waited_s
