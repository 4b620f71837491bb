"""Judge many candidates on one device: one candidate at a time, each pair once.

A pool holds the device's lock, the zygote and, for the problem at hand, its prepared judge. `fleet`
judges on several devices.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cudal1 import interrupt
from cudal1.candidate import Candidate
from cudal1.errors import CrowdedError, DeviceLostError, UnfitError
from cudal1.harness.admission.admission import Found
from cudal1.harness.admission.known_references import KnownReferences
from cudal1.harness.device.ceilings import Ceilings
from cudal1.harness.device.device import Device
from cudal1.harness.device.quiet import undisturbed, unreadable
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.exchange.problem_workers import too_large
from cudal1.harness.judge import ProblemJudge
from cudal1.harness.judgement import Judgement
from cudal1.harness.sandbox.launch import Start, launch
from cudal1.harness.sandbox.layers import MINIMUM
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status, Verdict

if TYPE_CHECKING:  # it imports PyTorch, which a coordinator does without
    from cudal1.harness.admission.trying import ReferenceTrial

CALLS_OF_A_JUDGE = 8
"""Memory of a GPU that a judge takes, over the bytes of a call's inputs and outputs. It has a ring
and an arena for each of two workers, and a trial's answers in float64 take as much."""
NUM_PREPARED = {DeviceClass.CPU: 8, DeviceClass.FAKE: 8, DeviceClass.CUDA: 1}
"""Number of problems of which oracle and rings are kept; on a GPU they take gigabytes."""

__all__ = ["Judgement", "Pool"]


class Pool:
    """A pool that judges on a device, which it holds alone while it is open.

    Args:
        device: what it judges on.
        protocol: says how candidates are judged; if it is `unsafe`, also below the minimum, and
            every verdict says so.
        wait_s: for how many seconds to wait for a device that another judge holds.
        minimum: groups of layers; of each one must hold around a worker, or nothing is judged.
        start: starts the zygote's process.
        holds: whether the process that forked this one holds the device for it (`pools`).
        ceilings: of the device, where they are known.
        turns: this judge's turns on the device.
        num_lanes: the number of judges with such a share of the device; 1: it has no other.
        known: has what earlier runs have found of references.
    """

    def __init__(
        self,
        device: Device,
        protocol: EvalProtocol,
        *,
        wait_s: float = 0.0,
        minimum: tuple[tuple[str, ...], ...] = MINIMUM,
        start: Start = launch,
        holds: bool = False,
        ceilings: Ceilings | None = None,
        turns: Turns | None = None,
        num_lanes: int = 1,
        known: KnownReferences | None = None,
    ) -> None:
        self.device = device
        self._holds = holds
        self._start = start
        self._minimum = minimum
        self._wait_s = wait_s
        self.protocol = protocol
        self._turns = turns or Turns()
        self._num_lanes = num_lanes
        self._stack = ExitStack()
        self._zygote: Zygote | None = None
        self._ceilings = ceilings or Ceilings(device.torch_name, core=device.worker_core)
        self._known = known
        self._prepared: OrderedDict[str, ProblemJudge] = OrderedDict()

    def __enter__(self) -> Self:
        """Lock the device and start the zygote.

        Raises:
            DeviceError: another process is judging on the device.
            WorkerError: the zygote's process does not start.
        """
        with ExitStack() as opening:
            if not self._holds:
                opening.enter_context(self.device.locked(wait_s=self._wait_s))
            opening.enter_context(unreadable())
            self._turns.halt = self._halt
            self._zygote = Zygote(
                self.device,
                minimum=self._minimum,
                unsafe=self.protocol.unsafe,
                start=self._start,
                # beside other judges only those that are needed: contexts are made one by one
                num_idle=None if self._num_lanes == 1 else 0,
            )
            opening.callback(self._zygote.close)
            opening.callback(self._forget_all)
            self._stack = opening.pop_all()
        return self

    def close(self) -> None:
        """End what is left, as leaving the context does."""
        self._stack.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, DeviceLostError):
            self._prepared.clear()  # nothing can be given back to it
        self._stack.close()

    def judge(
        self,
        problem: Problem,
        candidate: Candidate,
        *,
        timing: bool = True,
        record: float | None = None,
        built: bytes = b"",
        not_built: Failure | None = None,
        elsewhere: bool = False,
        trial: ReferenceTrial | None = None,
        call_bytes: int = 0,
    ) -> Judgement:
        """Return the judgement of one candidate; without `timing`, on its correctness only.

        `record` is the problem's best certified speedup so far. Claims far above it are confirmed
        here or, as `elsewhere` says, on another device, by its `confirm`. `built` is what was
        compiled ahead, `not_built` the reason why that failed (`builder`). A `trial` finds out
        first whether the problem can be judged; without it, `call_bytes` are those of a call's
        inputs and outputs, if they are known.

        Raises:
            UnfitError: the problem cannot be judged.
            CrowdedError: memory is short, which other judges may have.
            SandboxError: less than the minimum stands around a worker.
            DeviceLostError: the device computes no more, and may have failed the candidate.
        """
        self._require_room(problem, call_bytes)
        began = time.monotonic()
        found = None if trial is None else self._tried(problem, trial)
        trial_s = time.monotonic() - began
        with self._prepared_for(problem, candidate, built) as (prepared, prepare_s):
            interrupt.check()
            said = prepared.judge(
                candidate, timing=timing, record=record, not_built=not_built, elsewhere=elsewhere
            )
            if said.verdict.status is not Status.CORRECT:
                self.device.require_working()
        compiled = b""
        if said.is_to_confirm:
            assert self._zygote is not None
            compiled = self._zygote.builds.of(candidate.id)
        return replace(said, prepare_s=prepare_s, compiled=compiled, found=found, trial_s=trial_s)

    def confirm(
        self, problem: Problem, candidate: Candidate, first: Verdict, *, built: bytes = b""
    ) -> Judgement:
        """Measure a verdict's claim once more on this device; mostly another device has made it.

        Raises:
            SandboxError: less than the minimum stands around a worker.
            DeviceLostError: the device computes no more, and may have failed the candidate.
        """
        with self._prepared_for(problem, candidate, built) as (prepared, prepare_s):
            said = prepared.confirm(candidate, first)
            if said.verdict.status is not Status.CORRECT:
                self.device.require_working()
        return replace(said, prepare_s=prepare_s)

    def _tried(self, problem: Problem, trial: ReferenceTrial) -> Found | None:
        """Return what a trial finds of a problem that can be judged; None if it is prepared."""
        if problem.id in self._prepared:
            return None
        with self._turns.using(), undisturbed(self.device):
            self._expect_workers(problem)
            found = trial.find_out(
                problem, self.device, self._turns, partial(self._require_room, problem)
            )
        if found.reason is None:
            return found
        said = f"{problem.key}: {found.reason}"
        if self._num_lanes > 1 and lacks_memory(said):
            raise CrowdedError(said)
        raise UnfitError(said, found)

    def _require_room(self, problem: Problem, call_bytes: int) -> None:
        """Have a problem wait for more of a GPU's memory before it fills what others need.

        Raises:
            CrowdedError: this judge's share is too small for calls with so many bytes.
        """
        if self._num_lanes == 1 or self.device.device_class is not DeviceClass.CUDA:
            return
        import torch

        _, total_bytes = torch.cuda.mem_get_info(torch.device(self.device.torch_name))
        share = CALLS_OF_A_JUDGE * call_bytes / total_bytes
        if share * self._num_lanes > 1:
            said = f"{problem.key}: calls of {call_bytes >> 20} MiB need {share:.0%} of the memory"
            raise CrowdedError(said, share)

    @contextmanager
    def _prepared_for(
        self, problem: Problem, candidate: Candidate, built: bytes
    ) -> Iterator[tuple[ProblemJudge, float]]:
        with self._turns.using(), self.device.watched(), undisturbed(self.device):
            began = time.monotonic()
            prepared, zygote = self._prepare(problem), self._zygote
            assert zygote is not None
            prepare_s = time.monotonic() - began
            zygote.builds.give(candidate.id, built)
            yield prepared, prepare_s

    def reference_us(self, problem: Problem) -> float:
        """Return roughly the microseconds of one call of the reference, harness included."""
        with self._turns.using(), self.device.watched(), undisturbed(self.device):
            return self._prepare(problem).reference_us

    def _prepare(self, problem: Problem) -> ProblemJudge:
        assert self._zygote is not None, "the pool is not open"
        prepared = self._prepared.pop(problem.id, None)
        if prepared is None:
            while len(self._prepared) >= NUM_PREPARED[self.device.device_class]:
                self._prepared.popitem(last=False)[1].close()
            prepared = self._prepared_newly(problem, self._zygote)
        self._prepared[problem.id] = prepared
        return prepared

    def _prepared_newly(self, problem: Problem, zygote: Zygote) -> ProblemJudge:
        import torch

        zygote.settle()  # workers of the last problem hold memory, and so does its judge
        self._expect_workers(problem)
        if self.device.device_class is DeviceClass.CUDA:
            torch.cuda.empty_cache()  # what is cached has other sizes
        try:
            return ProblemJudge(
                problem,
                device=self.device,
                protocol=self.protocol,
                zygote=zygote,
                ceilings=self._ceilings,
                turns=self._turns,
                num_lanes=self._num_lanes,
                known=self._known,
            )
        except torch.OutOfMemoryError as error:
            raise CrowdedError(too_large(problem, self.device, error)) from error

    def _expect_workers(self, problem: Problem) -> None:
        """Have workers for the reference and the first candidate get ready beside other work."""
        if self._num_lanes > 1:
            assert self._zygote is not None
            self._zygote.expect(2, problem.source)

    def _halt(self) -> Callable[[], None]:
        """Stop what was begun on the device before a problem is prepared; return what resumes it.

        Workers that get ready make contexts, for which the driver interrupts the work of a GPU.
        """
        import torch

        assert self._zygote is not None
        still = ExitStack()
        still.enter_context(self._zygote.still())
        if self.device.device_class is DeviceClass.CUDA and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return still.close

    def _forget_all(self) -> None:
        for prepared in self._prepared.values():
            prepared.close()
        self._prepared.clear()
