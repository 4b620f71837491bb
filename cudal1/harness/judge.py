"""The gates that a candidate passes, in order, and the verdict that comes of it.

The judge owns the clock, the inputs, the answers and the comparison, and never runs candidate
code. Gates: the worker starts and builds the module · correctness on 3, 16, … inputs of several
families · timing in quads or pairs, every timed output compared (`sessions`) · `confirmation` of
claims in a fresh process · nothing below the physical `floor`.

Threat: a candidate's source is never compiled or run here, only read for labels (`screen`); seeds
come from the operating system.

Long because the order of the gates, and of what is begun meanwhile, is to be seen in one place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from cudal1.candidate import Candidate
from cudal1.errors import CrowdedCandidateError
from cudal1.harness import claims, plan, toolchain
from cudal1.harness.burst import Desk
from cudal1.harness.ceilings import Ceilings
from cudal1.harness.confirmation import Confirmation
from cudal1.harness.costs import Costs
from cudal1.harness.crew import Crew
from cudal1.harness.device import Device
from cudal1.harness.examination import Examination
from cudal1.harness.floor import Floor
from cudal1.harness.known_references import Circumstances, KnownReferences
from cudal1.harness.oracle import Oracle
from cudal1.harness.progress import Failure, Progress, Stopwatch
from cudal1.harness.properties import look
from cudal1.harness.sameness import is_copy
from cudal1.harness.sandbox import Worker
from cudal1.harness.screen import MAX_SOURCE_BYTES, screen, syntax_error
from cudal1.harness.sessions import Sessions
from cudal1.harness.shortage import lacks_memory
from cudal1.harness.staged_check import StagedCheck
from cudal1.harness.traits import Traits
from cudal1.harness.trials import Found
from cudal1.harness.turns import Turns
from cudal1.harness.zygote import Zygote
from cudal1.measurement import Measurement, TimingSample
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import Contract, EvalProtocol
from cudal1.verdict import Status, Verdict


@dataclass(frozen=True)
class Judgement:
    """A verdict and the bursts behind it."""

    verdict: Verdict
    samples: tuple[TimingSample, ...]
    build_s: float = 0.0
    """Of `verdict.judge_s`, what the device waited for the candidate to start and be built."""
    waited_s: float = 0.0
    """For other judges of the device, beside `verdict.judge_s`."""
    timed_s: float = 0.0
    """Of `verdict.judge_s`, what it had the device alone."""
    prepare_s: float = 0.0
    """Before it: what preparing the problem took, if that was not prepared."""
    is_to_confirm: bool = False
    """Whether its claim counts only if another device agrees."""
    found: Found | None = None
    """By the problem's trial, if that came before."""
    note: str | None = None
    """What the problem's check would let through, if a trial has looked."""
    compiled: bytes = b""
    """By the candidate's process, for the one that is to confirm its claim on another device."""


class ProblemJudge:
    """Judges candidates for one problem: keeps its oracle and its memory.

    Args:
        problem: whose candidates come.
        device: what they are judged on.
        protocol: how.
        zygote: forks workers.
        ceilings: of the device.
        known: has what earlier runs have found of references; no time is taken from there.
    """

    def __init__(
        self, problem: Problem, *, device: Device, protocol: EvalProtocol, zygote: Zygote,
        ceilings: Ceilings, turns: Turns | None = None, num_lanes: int = 1,
        known: KnownReferences | None = None,
    ) -> None:  # fmt: skip
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
            problem, weight_seed=protocol.seed, device=place, precision=protocol.precision,
            mode=protocol.mode, turns=self._turns,
            traits=traits,
        )  # fmt: skip
        ceilings.peaks()  # now, while no candidate can make the device look slow
        self._layout, arena_bytes = plan.layout_and_arena(
            self._oracle, protocol, num_lanes=num_lanes
        )
        self._desk = Desk(self._layout, place, arena_bytes=arena_bytes, turns=self._turns)
        self._crew = Crew(
            problem, self._oracle, self._desk, device=device, protocol=protocol, zygote=zygote,
            turns=self._turns, num_lanes=num_lanes,
        )  # fmt: skip
        self._costs = Costs(self._oracle, self._desk, self._crew, protocol, self._rng)
        self._floor = Floor(self._oracle.traits.work, ceilings, protocol, self._turns)
        self._sessions = Sessions(
            self._oracle,
            self._desk,
            self._crew,
            self._costs,
            self._floor,
            protocol,
            zygote=zygote,
            turns=self._turns,
            num_lanes=num_lanes,
        )
        self._confirmation = Confirmation(self._crew, self._sessions, self._floor, protocol, device)
        with ExitStack() as preparing:
            preparing.callback(self.close)
            with self._crew.reference(fresh=self._is_cpu) as reference:
                # beside others only roughly: to be alone for that, too, would keep all waiting
                self._costs.orient(reference, is_calm=num_lanes == 1)
            self._crew.have_candidate()
            preparing.pop_all()

    @property
    def _is_cpu(self) -> bool:
        """Or the fake device.

        There a process costs next to nothing, and two differ by more than on a GPU: each
        measurement has a reference's process of its own.
        """
        return self._device.device_class is not DeviceClass.CUDA

    @property
    def reference_us(self) -> float:
        """About what a call of the reference takes, harness included."""
        return self._costs.known.reference_us

    def close(self) -> None:
        """End the workers that it keeps."""
        self._crew.close()
        self._desk.close()

    def judge(
        self, candidate: Candidate, *, timing: bool, record: float | None = None,
        not_built: Failure | None = None, elsewhere: bool = False,
    ) -> Judgement:  # fmt: skip
        """The verdict on one candidate; whatever it does ends here as data.

        Without `timing` it stops before the last gate: a failure is the full protocol's verdict, a
        success is one under `protocol.checks_only()`.

        Args:
            candidate: what to judge.
            timing: whether to time it.
            record: the best certified speedup of the problem so far, where it is known.
            not_built: why it could not be, where that was tried before (`builder`).
            elsewhere: whether a large claim will be confirmed on another device, and so not here.

        Raises:
            WorkerError: our own machinery failed.
        """

        def examined(examination: Examination) -> Measurement | None:
            if not_built is not None:
                raise not_built
            return self._examine(
                candidate, examination, timing=timing and self._protocol.timing, record=record,
                elsewhere=elsewhere,
            )  # fmt: skip

        return self._judgement(candidate, examined)

    def confirm(self, candidate: Candidate, first: Verdict) -> Judgement:
        """What comes of measuring a verdict's claim, as a rule another device's, in a process here.

        Its outputs are compared as always when it is timed; no others are asked for.

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
            self._desk,
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
            if self._num_lanes > 1 and lacks_memory(failure.reason):  # others may have it
                raise CrowdedCandidateError(f"{self.problem.key}: {failure.reason}") from failure
            status, reason, measurement = failure.status, failure.reason, None
            flags += failure.flags
        waited_s = self._turns.waited_s - waited_s
        only_checked = status is Status.CORRECT and measurement is None
        protocol = self._protocol.checks_only() if only_checked else self._protocol
        phases = progress.stopwatch.phases()
        verdict = Verdict(
            problem_id=self.problem.id, candidate_id=candidate.id, protocol_id=protocol.id,
            device_kind=self._device.kind, device_id=self._device.id, status=status, reason=reason,
            flags=flags, correctness=progress.compared.correctness(), measurement=measurement,
            properties=progress.seen if status is Status.CORRECT else None,
            sandbox=progress.layers, judged_at=datetime.now(UTC).isoformat(timespec="seconds"),
            judge_s=sum(seconds for _, seconds in phases), phases=phases,
        )  # fmt: skip
        return Judgement(
            verdict, tuple(progress.samples), build_s=phases.starting_s + phases.compiling_s,
            waited_s=waited_s, timed_s=self._turns.timed_s - timed_s,
            is_to_confirm=measurement is not None and progress.is_to_confirm,
        )  # fmt: skip

    # --- gates -----------------------------------------------------------------------------------

    def _examine(
        self, candidate: Candidate, examination: Examination, *, timing: bool,
        record: float | None, elsewhere: bool,
    ) -> Measurement | None:  # fmt: skip
        if len(candidate.source) > MAX_SOURCE_BYTES:
            raise Failure(Status.NO_BUILD, f"source longer than {MAX_SOURCE_BYTES} characters")
        if said := syntax_error(candidate.source):
            raise Failure(Status.NO_BUILD, said)
        stages = range(1, len(self._protocol.correctness_stages) + 1)
        if self._draws_weights:  # under two seeds, each in a process of its own
            with self._crew.candidate(candidate) as worker, self._builds_kept(worker, candidate):
                examination.await_build(worker)
                self._check(worker, examination, stages[:1])
            examination, stages = examination.another(), stages[1:]
        with self._crew.candidate(candidate) as worker:
            claim = None
            with self._builds_kept(worker, candidate):
                examination.await_build(worker)
                if timing:  # it gets ready while the candidate is checked
                    self._crew.have_reference(fresh=self._is_cpu, seed=worker.job.seed)
                self._check(worker, examination, stages)
                if timing:
                    claim = self._sessions.measure(
                        worker, examination, session=0, is_fresh=self._is_cpu
                    )
                look(worker, examination, self._oracle, self._desk)
            built = self._zygote.builds.of(candidate.id)
            examination.progress.saw(needs_compiler=bool(built))
            if claim is None or not claims.is_doubtful(claim, self._protocol, record=record):
                return claim
            if elsewhere and not claims.is_small(claim, self._protocol):
                examination.progress.is_to_confirm = True
                return self._floor.doubted(claim)
            self._crew.make_room(worker)
            return self._confirmation.confirm(candidate, claim, examination)

    def _check(self, worker: Worker, examination: Examination, stages: Sequence[int]) -> None:
        check = StagedCheck(examination, self._oracle, self._desk, self._protocol, self._turns)
        check.run(worker, stages)

    @property
    def _draws_weights(self) -> bool:
        """Whether a candidate's constructor has to draw the reference's weights, if it can."""
        is_owed = self._protocol.contract is Contract.KERNELBENCH
        return is_owed and self._oracle.is_seeded

    @contextmanager
    def _builds_kept(self, worker: Worker, candidate: Candidate) -> Iterator[None]:
        """Keep what a candidate compiled at the end, also of one whose outputs were wrong.

        Not before: it would tell the worker that the checks are over.
        """
        try:
            yield
        except Failure as failure:
            if failure.status is Status.INCORRECT:
                self._crew.keep_builds(worker, candidate)
            raise
        self._crew.keep_builds(worker, candidate)

    def _own_time(self) -> float:
        """A clock in seconds, which stands still while others have the device."""
        return time.monotonic() - self._turns.waited_s
