"""Judge on several devices at once: one process a device, one candidate at a time on each.

The devices may be of one machine or of many (`device_processes`, `cluster`). Large claims are
measured once more on another device of the same kind, where there is one (docs/timing.md). Threat:
none new; the devices' processes are judges, run no candidate code, and talk over pipes of their
own.

Long because a device can be lost at each step of what it is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cudal1.candidate import Candidate
from cudal1.errors import DeviceLostError
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.ahead import Ahead, Compiles
from cudal1.harness.schedule.assignment import Assignment, Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess, MachineLost
from cudal1.harness.schedule.open_processes import OpenProcesses, Place, places_of
from cudal1.harness.schedule.queue import ByProblem
from cudal1.harness.schedule.waiting_claims import WaitingClaims
from cudal1.harness.timing import claims
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:  # it imports PyTorch, which a coordinator does without
    from cudal1.harness.admission.trying import ReferenceTrial

AHEAD = 2
"""Number of candidates that each judge of a device has been given: one is judged, and the next one
is there without waiting."""
MAX_LOST = 2
"""Number of judges that may die with one candidate: it may be its doing, whatever we think of."""


RecordOf = Callable[[Problem, Candidate], float | None]
"""A function that returns the best certified speedup of a problem so far, a candidate's own aside;
None: there is none."""


class Fleet:
    """The devices that judge side by side while it is open.

    Args:
        device_processes: of different devices; each is locked as by a `Pool`.
        protocol: says how candidates are judged.
        wait_s: for how many seconds to wait for a device that another judge holds.
        builder: open; compiles candidates ahead.
    """

    def __init__(
        self,
        device_processes: Sequence[DeviceProcess],
        protocol: EvalProtocol,
        *,
        wait_s: float = 0.0,
        builder: Compiles | None = None,
    ) -> None:
        self._device_processes = OpenProcesses(device_processes, protocol, wait_s)
        self._protocol = protocol
        self._builder = builder
        self._ahead = Ahead[Assignment](None, lambda task: (task.problem, task.candidate))
        self._record_of: RecordOf = _no_record
        self._open = ExitStack()
        self._waiting = ByProblem[Assignment]((), id)
        self._given_back = deque[Assignment]()
        """Assignments that were given back, mostly by devices that were lost."""
        self._claims = WaitingClaims(self._device_processes)
        self._at: dict[str, str] = {}
        """The id of the problem of the last question, by place."""
        self._tried = set[str]()
        """Ids of problems of which a trial has found that they can be judged."""
        self._running: dict[Future[Any], tuple[Place, Assignment]] = {}
        """Questions that have no answer yet, in the order of asking."""

    def __enter__(self) -> Self:
        """Start a judge for each device; leave out a device that another process holds.

        Raises:
            DeviceError: other processes are judging on all of them.
            WorkerError: the processes of all have died.
        """
        with ExitStack() as opening:
            self._device_processes.open(opening)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def judge_all(
        self,
        work: Iterable[tuple[Problem, Candidate]],
        *,
        timing: bool = True,
        record_of: RecordOf | None = None,
        trial: ReferenceTrial | None = None,
    ) -> Iterator[Judgement | Refusal]:
        """Yield a judgement for each pair as it comes, or the reason why there can be none.

        `work` is taken as it is needed. With a builder all of it is taken at once, and a candidate
        that is to be built comes when it is built. Order `work` by problem: a device goes on with
        the one that it has prepared. A problem of which one candidate could not be judged is tried
        no more. `record_of` returns the record with which a claim is compared, as `Pool.judge` is
        told; without it there is none. A `trial` finds out whether a problem can be judged, on one
        device, while others go on with other problems.

        A candidate with which two judges died is refused.

        Raises:
            WorkerError: no judge is left.
        """
        tasks = (Assignment(problem, candidate, timing, trial=trial) for problem, candidate in work)
        self._record_of = record_of or _no_record
        self._make_room(wanted=True)  # builders keep off the first measurements
        self._ahead = Ahead[Assignment](self._builder, lambda task: (task.problem, task.candidate))
        self._waiting = ByProblem(self._ahead.divert(tasks), lambda task: task.problem.id)
        self._given_back.clear()
        self._claims.clear()
        self._at.clear()
        self._tried.clear()
        self._running.clear()
        try:
            yield from self._until_done()
        finally:
            self._ahead.drop(lambda _: True)
            self._make_room(wanted=False)

    def _until_done(self) -> Iterator[Judgement | Refusal]:
        while True:
            for place in self._device_processes.places():
                # others may have been lost meanwhile
                if place.device_process in self._device_processes.alive():
                    yield from self._feed(place)
            self._make_room(wanted=bool(self._running) and self._waiting.is_any_left())
            if self._running or (self._ahead.building and self._device_processes.alive()):
                asked: list[Future[Any]] = [*self._running, *self._ahead.building]
                done = wait(asked, return_when=FIRST_COMPLETED).done
                for task, failure in self._ahead.finished(done):
                    self._waiting.add(replace(task, not_built=failure))
                for future in [each for each in self._running if each in done]:  # in their order
                    if future in self._running:  # else it was lost with its device
                        yield from self._heard(future)
            elif not self._device_processes.alive():
                raise self._device_processes.none_left()
            elif not self._given_back and not len(self._claims):
                return

    def _make_room(self, *, wanted: bool) -> None:
        """Have builders keep off devices that measure, unless all that is left waits for builds."""
        if self._builder is not None:
            self._builder.make_room(wanted=wanted)

    def _feed(self, place: Place) -> Iterator[Refusal]:
        """Ask as much as may be asked at a place; yield what is refused instead."""
        device_process = place.device_process
        while self._may_ask(place):
            task = self._next(place)
            if task is None:
                return
            is_suspect = task.num_lost > 0 and len(places_of(device_process)) > 1
            if is_suspect and self._asked_of(device_process):
                self._given_back.appendleft(task)  # until it can be alone: others could die with it
                return
            try:
                record = self._record_of(task.problem, task.candidate)
                task = replace(task, record=record)
                built = self._compiled_beside(device_process, task)
                built = built or self._ahead.content(task, device_process.machine)
                # a machine that builds do not serve may have another compiler
                not_built = task.not_built if self._ahead.serves(device_process.machine) else None
                first = task.first and replace(task.first, compiled=b"")  # it goes with `built`
                is_elsewhere = self._device_processes.other(device_process) is not None
                asked = replace(
                    task, first=first, built=built, not_built=not_built, elsewhere=is_elsewhere
                )
                self._running[device_process.process.submit(assignment.judge, asked)] = place, task
                self._at[place.id] = task.problem.id
                self._waiting.went_to(place.id, task.problem.id)
            except BrokenExecutor as error:  # it died while nothing was asked
                self._give_back(task)
                if not self._asked_of(device_process):
                    # else its results will say so
                    yield from self._lose(
                        [device_process], blames=False, can_revive=True, said=str(error)
                    )
                return

    def _may_ask(self, place: Place) -> bool:
        """Return whether a place may be asked more.

        It has too little to do, and no other place of its device has a candidate that must be
        alone.
        """
        asked = self._asked_of(place.device_process)
        if len(places_of(place.device_process)) > 1 and any(task.num_lost for _, task in asked):
            return False
        return sum(at == place for at, _ in asked) < AHEAD

    def _asked_of(self, device_process: DeviceProcess) -> list[tuple[Place, Assignment]]:
        """Return the questions that a device process has not answered."""
        return [pair for pair in self._running.values() if pair[0].device_process is device_process]

    def _compiled_beside(self, device_process: DeviceProcess, task: Assignment) -> bytes:
        """Return what a candidate compiled for its claim, if that was on the same machine."""
        claimed = task.first.verdict.device_id if task.first else None
        same = {
            each.device.id
            for each in self._device_processes.all
            if each.machine == device_process.machine
        }
        return task.first.compiled if task.first and claimed in same else b""

    def _next(self, place: Place) -> Assignment | None:
        """Return the next assignment of a place, which should need no new preparation soon.

        An assignment of the problem that the place has prepared comes first. So claims wait until
        the place's run is over. Claims of a problem that another device is still at wait until
        there is no other run: preparing a problem costs as much as a few verdicts. Among the last
        runs claims come first, since others can help with a run but not with a claim.
        """
        device, at = place.device_process.device.id, self._at.get(place.id)
        mine, is_full = self._claims.of(device), self._claims.is_full(device)
        claim = next((each for each in mine if each.problem.id == at), None)
        if claim is None and (is_full or not self._goes_on(place)):
            claim = next((each for each in mine if is_full or self._is_settled(place, each)), None)
        if claim is not None:
            mine.remove(claim)
            return claim
        besides = self._in_trial_beside(place.device_process)
        task = next((each for each in self._given_back if each.problem.id not in besides), None)
        if task is None:
            task = self._waiting.take(place.id, besides)
        else:
            self._given_back.remove(task)
        return mine.popleft() if task is None and mine else task

    def _in_trial_beside(self, device_process: DeviceProcess) -> set[str]:
        """Return ids of problems that another device is asked to try first."""
        return {
            task.problem.id
            for place, task in self._running.values()
            if place.device_process is not device_process
            and task.trial
            and task.problem.id not in self._tried
        }

    def _goes_on(self, place: Place) -> bool:
        """Return whether a place has more to do at its problem, and other runs are left."""
        at = self._at.get(place.id)
        return self._waiting.goes_on(place.id, at) and self._waiting.has_runs()

    def _is_settled(self, place: Place, claim: Assignment) -> bool:
        """Return whether it is time to prepare a claim's problem."""
        if not (self._waiting.has_runs() or self._ahead.building):
            num_left = self._waiting.num_held() + len(self._claims)
            share = num_left / len(self._device_processes.alive())
            # else all other devices would wait for this one
            if len(self._claims.of(place.device_process.device.id)) >= share:
                return True
        problem = claim.problem.id
        elsewhere = {at for other, at in self._at.items() if other != place.id}
        return not (problem in elsewhere or self._waiting.is_left(problem))

    def _heard(self, future: Future[Judgement | Refusal]) -> Iterator[Judgement | Refusal]:
        """Yield what follows from an answer, or from its absence."""
        (device_process, _), task = self._running[future]
        try:
            judgement = future.result()
        except MachineLost:
            gone = [
                each
                for each in self._device_processes.alive()
                if each.machine == device_process.machine
            ]
            yield from self._lose(gone, blames=False)
            return
        except BrokenExecutor as error:
            yield from self._lose([device_process], blames=True, can_revive=True, said=str(error))
            return
        except DeviceLostError as error:
            self._device_processes.leave(device_process, str(error))
            yield from self._lose([device_process], blames=True)
            return
        del self._running[future]
        self._tried.add(task.problem.id)
        if isinstance(judgement, Refusal):
            refused = replace(task, refused_by=(*task.refused_by, device_process.device.id))
            if task.first is not None and self._claims.confirmers(refused):
                self._give_back(refused)
                return
            yield from self._refused(task, judgement.reason)
        elif task.first is not None:
            yield claims.confirmed(task.first, judgement, self._protocol)
        else:
            claim = judgement.verdict.measurement
            is_large = claim and claims.is_large(claim, self._protocol, record=task.record)
            if judgement.is_to_confirm or (
                is_large and self._device_processes.other(device_process)
            ):
                self._give_back(replace(task, first=self._claims.to_keep(judgement)))
            else:
                yield judgement

    @property
    def lost(self) -> list[DeviceProcess]:
        """The devices that judge no more: their process died, or another one held them at first."""
        return self._device_processes.lost

    def why_lost(self, device_process: DeviceProcess) -> str:
        """Return why a device was lost, as far as we know."""
        return self._device_processes.why_lost(device_process)

    def _refused(self, task: Assignment, reason: str) -> Iterator[Refusal]:
        """Refuse a candidate, and all others of its problem, which is tried no more."""
        yield Refusal(task.problem.id, task.candidate.id, reason)
        problem_id = task.problem.id
        given_back = [each for each in self._given_back if each.problem.id == problem_id]
        self._given_back = deque(each for each in self._given_back if each not in given_back)
        unbuilt = self._ahead.drop(lambda other: other.problem.id == problem_id)
        for left in [*given_back, *self._waiting.drop(problem_id), *unbuilt]:
            self._ahead.forget(left)
            yield Refusal(problem_id, left.candidate.id, reason)

    def _lose(
        self,
        gone: Sequence[DeviceProcess],
        *,
        blames: bool,
        can_revive: bool = False,
        said: str = "",
    ) -> Iterator[Refusal]:
        """Give back what lost judges were asked; a judge that starts again is not lost.

        The first question that a judge had not answered was being judged. Where several judges of a
        device work side by side, as many as there are were being judged. Those are judged once
        more, each alone. A candidate with which several judges died is refused, and the others have
        their verdicts.

        Raises:
            WorkerError: no judge is left.
        """
        for place in [place for device_process in gone for place in places_of(device_process)]:
            self._at.pop(place.id, None)
            self._waiting.release(place.id)
        given_back: list[Assignment] = []
        for device_process in gone:
            unanswered = [
                future
                for future, (busy, _) in self._running.items()
                if busy.device_process is device_process
                and not (future.done() and future.exception() is None)
            ]
            tasks = [self._running.pop(future)[1] for future in unanswered]
            for number in range(min(len(tasks), len(places_of(device_process))) if blames else 0):
                tasks[number] = replace(tasks[number], num_lost=tasks[number].num_lost + 1)
            if not (can_revive and self._device_processes.is_revived(device_process)):
                self._device_processes.lost.append(device_process)
                tasks += self._claims.leave(device_process.device.id)
            given_back += tasks
        for task in given_back:
            if task.num_lost < MAX_LOST:
                self._give_back(task)
                continue
            why = f"{task.problem.key}: {MAX_LOST} judges died with it: {said or 'no word'}"
            yield Refusal(task.problem.id, task.candidate.id, why)
        if given_back and not self._device_processes.alive():
            raise self._device_processes.none_left()

    def _give_back(self, task: Assignment) -> None:
        """Give a task back to another device; a claim that no device can confirm is judged anew."""
        if not self._claims.add(task, self._at):
            self._given_back.append(replace(task, first=None, refused_by=()))


def _no_record(_: Problem, __: Candidate) -> None:
    return None
