"""Give each problem a pool in its own process: what a reference does costs that problem only.

The device's process holds the lock and the zygote's process, and runs no problem's code. It forks a
process for each problem, which keeps the oracle and asks for workers as any pool does. Threat: none
new; a problem is trusted by its user's word. But what it raises, prints or changes, or how it ends,
must not reach another problem's verdicts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import groupby, product
from multiprocessing.connection import wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cudal1.errors import (
    CrowdedCandidateError,
    CrowdedError,
    DeviceLostError,
    DisturbedError,
    SuiteError,
    UnfitError,
    WorkerError,
)
from cudal1.harness.admission.known_references import KnownReferences
from cudal1.harness.builds.toolchain import compiles_itself
from cudal1.harness.device.ceilings import Ceilings, Peaks
from cudal1.harness.device.device import Device, num_lanes_of
from cudal1.harness.device.turns import Turns, TurnsFile
from cudal1.harness.judgement import Judgement
from cudal1.harness.reference.forked import Ended, Forked
from cudal1.harness.reference.reference_code import CALL_LIMIT_S
from cudal1.harness.sandbox.launch import Lent, Source, Start, launch
from cudal1.harness.schedule.importing import import_once
from cudal1.harness.schedule.lane import Lane
from cudal1.harness.schedule.pending import Asked, Pending
from cudal1.harness.schedule.pool import NUM_PREPARED, Pool
from cudal1.harness.schedule.widths import WideTurns, wider
from cudal1.harness.schedule.zygotes import Zygotes
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:  # it imports PyTorch, which a coordinator does without
    from cudal1.harness.admission.trying import ReferenceTrial

PEAKS_LIMIT_S = 120.0
"""Seconds that measuring a device's ceilings may take; it takes one."""
DEADLY = (Ended, DeviceLostError, MemoryError, WorkerError, CrowdedError, UnfitError)
"""Errors that a problem's process does not survive: what it holds may be lost, or is not wanted."""


class Pools:
    """Pools on a device that is held alone while they are open, each problem in its own process.

    On a GPU several problems are judged side by side, and take turns in timing (`turns`).

    Args:
        device: what they judge on.
        protocol: says how candidates are judged.
        wait_s: for how many seconds to wait for a device that another judge holds.
        start: starts the zygote's process.
        known: has what earlier runs have found of references.
    """

    def __init__(
        self,
        device: Device,
        protocol: EvalProtocol,
        *,
        wait_s: float = 0.0,
        start: Start = launch,
        known: KnownReferences | None = None,
    ) -> None:
        self.device = device
        self.protocol = protocol
        self._wait_s = wait_s
        self._known = known
        self._zygotes = Zygotes(device, start)
        self._peaks: Peaks | None = None
        self._num_active = num_lanes_of(device)
        # a lane has a core of its own, where the device has cores for lanes
        num_prepared = 1 if device.lane_cores else NUM_PREPARED[device.device_class]
        num_lanes = max(num_prepared, self._num_active)
        self._lanes = deque(Lane(number) for number in range(num_lanes))
        """Lanes in the order of their last use, the latest used last."""
        self._waiting = deque[Pending]()
        self._fit = set[str]()
        """Ids of problems of which a trial has found that they can be judged."""
        self._crowded: dict[str, int] = {}
        """Numbers of lanes that problems take up for which one lane's memory was too little."""
        self._wide_turns = WideTurns(self._num_active)
        self._turns: TurnsFile | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Lock the device and start the zygote's process.

        Raises:
            DeviceError: another process is judging on the device.
            WorkerError: the zygote's process does not start.
        """
        with ExitStack() as opening:
            opening.enter_context(self.device.locked(wait_s=self._wait_s))
            opening.callback(self._zygotes.close)
            opening.callback(self._forget_all)
            self._zygotes.source(compilers=False)
            if self._num_active > 1:
                self._turns = opening.enter_context(closing(TurnsFile(self._num_active)))
            import_once().set_num_threads(1)  # a fork must find no other threads
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def judge(self, problem: Problem, *arguments: Any, **named: Any) -> Pending:
        """Ask the problem's pool to judge a candidate: `Pool.judge`."""
        return self._begin(Asked(problem, "judge", arguments, named))

    def confirm(self, problem: Problem, *arguments: Any, **named: Any) -> Pending:
        """Ask the problem's pool to confirm a claim: `Pool.confirm`."""
        return self._begin(Asked(problem, "confirm", arguments, named))

    def _begin(self, asked: Asked) -> Pending:
        asked = replace(asked, width=self._crowded.get(asked.problem.id, 1))
        pending = Pending(self, asked)
        self._waiting.append(pending)
        self.go_on()
        return pending

    # --- lanes -----------------------------------------------------------------------------------

    def awaited(self, pending: Pending) -> Collection[int]:
        """Return the descriptor of the process that was asked; of all, if none was asked yet."""
        lanes = self._lanes_of(pending)
        return [lane.forked.fileno() for lane in lanes if lane.forked is not None]

    def until(self, pending: Pending) -> float:
        """Return when that process is given up, or the first one of all, by the monotonic clock."""
        return min((lane.until for lane in self._lanes_of(pending)), default=time.monotonic())

    def go_on(self) -> None:
        """Take in the answers that have come, and ask as many questions as may be asked."""
        for lane in self._busy():
            assert lane.forked is not None
            has_said = bool(wait([lane.forked.fileno()], 0))
            if has_said or time.monotonic() >= lane.until:
                self._hear(lane, lane.forked)
        while (pending := self._next()) is not None:
            self._waiting.remove(pending)
            self._ask(pending)

    def _busy(self) -> list[Lane]:
        return [lane for lane in self._lanes if lane.pending is not None]

    def _lanes_of(self, pending: Pending) -> list[Lane]:
        busy = self._busy()
        return [lane for lane in busy if lane.pending is pending] or busy

    def _next(self) -> Pending | None:
        """Return the question to ask next, if one may be asked.

        A problem that no lane is at comes first, among questions of one width.
        """
        waiting = self._wide_turns.among(self._waiting)
        busy = [lane.pending for lane in self._lanes if lane.pending is not None]
        num_free = self._num_active - sum(each.asked.width for each in busy)
        at = {each.asked.problem.id for each in busy}
        in_trial = {each.asked.problem.id for each in busy if self._is_in_trial(each)}
        for width, alike in groupby(waiting, lambda each: each.asked.width):
            if width > num_free:
                break
            for avoided, each in product((at, in_trial), list(alike)):
                if each.asked.problem.id not in avoided:
                    return each
        return None

    def _is_in_trial(self, pending: Pending) -> bool:
        """Return whether a question is to tell first that its problem can be judged."""
        asked = pending.asked
        return asked.named.get("trial") is not None and asked.problem.id not in self._fit

    def _ask(self, pending: Pending) -> None:
        asked = pending.asked
        if asked.problem.id in self._fit and "trial" in asked.named:
            asked = pending.asked = replace(asked, named={**asked.named, "trial": None})
        pending.num_tries += 1
        free = [lane for lane in self._lanes if lane.pending is None]
        same = (lane for lane in free if lane.problem_id == asked.problem.id)
        lane = next(same, None) or next((each for each in free if each.forked is None), free[0])
        self._lanes.remove(lane)
        self._lanes.append(lane)
        self._make_room(lane, asked)
        lane.pending = pending
        try:
            compilers = self._wants_compilers(asked)
            is_there = lane.forked is not None and lane.problem_id == asked.problem.id
            is_there = is_there and lane.width == asked.width
            if not is_there or (compilers and not lane.has_compilers):
                lane.close()
                self._prepare(lane, asked, compilers=compilers)
            assert lane.forked is not None
            lane.until = lane.forked.begin(
                asked.name, asked.problem, *asked.arguments, **asked.named
            )
        except Exception as error:  # noqa: BLE001 -- for the caller that asked
            self._fail(lane, error)

    def _make_room(self, lane: Lane, asked: Asked) -> None:
        """End idle processes of other lanes as far as they have memory that is another's.

        The longest idle ones end first.
        """
        idle = [each for each in self._lanes if each.pending is None and each is not lane]
        idle = [each for each in idle if each.forked is not None]
        taken = asked.width + sum(each.width for each in self._busy())
        while idle and taken + sum(each.width for each in idle) > len(self._lanes):
            idle.pop(0).close()

    def _wants_compilers(self, asked: Asked) -> bool:
        """Return whether a worker may compile in its own process, for a GPU.

        All questions that wait for the problem count: a lane is prepared once for them.
        """
        if self.device.device_class is not DeviceClass.CUDA:
            return False
        waiting = (each.asked for each in self._waiting)
        same = [asked, *(each for each in waiting if each.problem.id == asked.problem.id)]
        sources = [asked.problem.source, *(each.arguments[0].source for each in same)]
        return any(compiles_itself(source) for source in sources)

    def _prepare(self, lane: Lane, asked: Asked, *, compilers: bool) -> None:
        """Start a process for the problem in a lane."""
        self._peaks = self._peaks or self._measured()
        lane.source = self._zygotes.source(compilers=compilers)
        lane.has_compilers, lane.width = compilers, asked.width
        keeps = [lane.source.channel.fileno()]
        keeps += [] if self._turns is None else [self._turns.fileno()]
        trial: ReferenceTrial | None = asked.named.get("trial")
        lane.forked = Forked(
            partial(self._make, lane, asked.width),
            keeps=keeps,
            call_limit_s=trial.call_limit_s if trial else CALL_LIMIT_S,
        )
        lane.problem_id = asked.problem.id

    def _hear(self, lane: Lane, forked: Forked) -> None:
        try:
            said: Judgement = forked.finish()
        except Exception as error:  # noqa: BLE001 -- for the caller that asked
            self._fail(lane, error)
            return
        pending, lane.pending = lane.pending, None
        assert pending is not None
        if said.found is not None:
            self._fit.add(pending.asked.problem.id)
        pending.settle(said)

    def _fail(self, lane: Lane, error: Exception) -> None:
        """Report why a lane has no answer, or have the question asked once more."""
        pending, lane.pending = lane.pending, None
        assert pending is not None
        asked, source = pending.asked, lane.source
        if isinstance(error, DEADLY):
            lane.kill()
        if isinstance(error, CrowdedError) and asked.width < self._num_active:
            self._give_room(pending, error)
            return
        key = asked.problem.key
        if isinstance(error, Ended):
            error = SuiteError(f"{key}: its reference {error}")
        elif isinstance(error, UnfitError):
            try:
                require_working(self.device)  # else the lost device is the reason
            except DeviceLostError as lost:
                error = lost
        elif isinstance(error, DeviceLostError):
            try:
                require_working(self.device)
                error = SuiteError(f"{key}: loses the device for its process: {error}")
            except DeviceLostError as lost:
                error = lost
        elif isinstance(error, MemoryError):
            error = SuiteError(f"{key}: too large for the memory here: {error}")
        elif isinstance(error, WorkerError):
            self._renew()
            if source not in self._zygotes and pending.num_tries == 1:
                # the zygote's process that forked its workers had ended
                self._waiting.appendleft(pending)
                return
        self._settle(pending, error)

    def _give_room(self, pending: Pending, error: CrowdedError) -> None:
        """Ask once more with the memory that is needed, else with half of the lanes', or alone.

        What the problem lacks, all of its waiting questions get. Work of others that does not end
        has no place beside it at all.
        """
        problem_id, width = pending.asked.problem.id, pending.asked.width
        is_memory = not isinstance(error, DisturbedError)
        wanted = wider(width, error.share, self._num_active) if is_memory else self._num_active
        wanted = max(wanted, self._crowded.get(problem_id, 1))
        pending.asked = replace(pending.asked, width=wanted)
        self._waiting.appendleft(pending)
        if not is_memory or isinstance(error, CrowdedCandidateError):
            return
        self._crowded[problem_id] = wanted
        for each in self._waiting:
            if each.asked.problem.id == problem_id and each.asked.width < wanted:
                each.asked = replace(each.asked, width=wanted)

    def _settle(self, pending: Pending, error: Exception) -> None:
        """Settle a question with an error, and all that wait for a trial that has failed."""
        settled = [pending]
        if self._is_in_trial(pending) and isinstance(error, SuiteError):
            problem_id = pending.asked.problem.id
            waiting = [each for each in self._waiting if each.asked.problem.id == problem_id]
            settled += filter(self._is_in_trial, waiting)
        for each in settled[1:]:
            self._waiting.remove(each)
        for each in settled:
            each.settle(None, error)

    def _measured(self) -> Peaks:
        """Measure the device's ceilings, in a process that leaves no context behind.

        Raises:
            WorkerError: the process has ended, or does not.
        """
        try:
            with closing(Forked(self._ceilings, answer_limit_s=PEAKS_LIMIT_S)) as forked:
                return forked.ask("peaks")
        except Ended as error:
            said = f"the process that measures what {self.device.kind} can do at most {error}"
            raise WorkerError(said) from error

    def _ceilings(self) -> Ceilings:
        return Ceilings(self.device.torch_name, core=self.device.worker_core, known=self._peaks)

    def _make(self, lane: Lane, width: int) -> Pool:
        """Open a pool in the problem's process, which takes up so many lanes.

        The pool holds no lock, and has its workers forked by the zygote's process of the device.
        """
        is_alone = width == self._num_active
        num_judges = 1 if is_alone else max(2, self._num_active // width)
        assert isinstance(lane.source, Source)
        source = Lent(lane.source)
        turns = Turns() if self._turns is None else self._turns.opened()
        device = self.device
        if device.lane_cores:
            device = device.model_copy(update={"worker_core": device.lane_cores[lane.number]})
        pool = Pool(
            device,
            self.protocol,
            start=lambda _: source,
            holds=True,
            ceilings=self._ceilings(),
            turns=turns,
            num_lanes=num_judges,
            known=self._known,
        )
        return pool.__enter__()

    def _renew(self) -> None:
        """Close idle lanes of a zygote's process that has ended; another one starts when needed."""
        ended = self._zygotes.ended()
        for lane in self._lanes:
            if lane.pending is None and lane.source in ended:
                lane.close()

    def _forget_all(self) -> None:
        for lane in self._lanes:
            lane.close()


def require_working(device: Device) -> None:
    """Have a fresh process compute one sum on a device.

    A context of this process would not survive the next fork.
    """
    try:
        Forked(device.require_working).close()
    except Ended as error:
        raise DeviceLostError(f"device {device.kind} {device.id}: its process {error}") from error
