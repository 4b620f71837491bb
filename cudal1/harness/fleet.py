"""Judging on several devices at once: one process a device, one candidate at a time on each.

They may be of one machine or of many (`seats`, `cluster`). Large claims are made once more on
another device of the same kind, where there is one (harness.md 7.4). Threat: none new; these
processes are judges, run no candidate code, and talk over pipes of their own.

Long because a device can be lost at each step of what it is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from cudal1.candidate import Candidate
from cudal1.errors import DeviceLostError
from cudal1.harness import claims, errand
from cudal1.harness.ahead import Ahead, Compiles
from cudal1.harness.errand import Errand, Refusal
from cudal1.harness.judge import Judgement
from cudal1.harness.open_seats import OpenSeats, Place, places_of
from cudal1.harness.queue import ByProblem
from cudal1.harness.seats import MachineLost, Seat
from cudal1.harness.trials import Trial
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

AHEAD = 2
"""Candidates that each judge of a device has been given: one is judged, the next need not be waited
for."""
MAX_LOST = 2
"""Judges that may die with one candidate: it may be its doing, whatever we think of."""
MANY_CLAIMS = 32
"""So many are worth preparing their problem for, before a device is done with its own."""
MAX_COMPILED_BYTES = 256 << 20
"""Of claims that wait; what is more is compiled again where the claim is confirmed."""


RecordOf = Callable[[Problem, Candidate], float | None]
"""The best certified speedup of a problem so far, a candidate's own aside; None: there is none."""


class Fleet:
    """Devices that judge side by side while it is open.

    Args:
        seats: of different devices; each is locked as by a `Pool`.
        protocol: how.
        wait_s: for how long to wait for a device that another judge holds.
        builder: open; compiles candidates ahead.
    """

    def __init__(
        self, seats: Sequence[Seat], protocol: EvalProtocol, *, wait_s: float = 0.0,
        builder: Compiles | None = None,
    ) -> None:  # fmt: skip
        self._seats = OpenSeats(seats, protocol, wait_s)
        self._protocol = protocol
        self._builder = builder
        self._ahead = Ahead[Errand](None, lambda task: (task.problem, task.candidate))
        self._record_of: RecordOf = _no_record
        self._open = ExitStack()
        self._waiting = ByProblem[Errand]((), id)
        self._given_back = deque[Errand]()
        """By devices that were lost."""
        self._again: dict[str, deque[Errand]] = {}
        """Claims that a device is to confirm: of others, or its own where there is no other."""
        self._at: dict[str, str] = {}
        """The problem of what was asked last at each place."""
        self._tried = set[str]()
        """Problems, by id, of which a trial has found that they can be judged."""
        self._running: dict[Future[Any], tuple[Place, Errand]] = {}
        """What was asked and has no answer yet, in the order of asking."""

    def __enter__(self) -> Self:
        """Start a judge for each device; one that another process holds is left out.

        Raises:
            DeviceError: other processes are judging on all of them.
            WorkerError: the processes of all have died.
        """
        with ExitStack() as opening:
            self._seats.open(opening)
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
        self, work: Iterable[tuple[Problem, Candidate]], *, timing: bool = True,
        record_of: RecordOf | None = None, trial: Trial | None = None,
    ) -> Iterator[Judgement | Refusal]:  # fmt: skip
        """A judgement for each pair, as they come, or why there can be none.

        `work` is taken as it is needed, with a builder at once, and what is to be built comes when
        it is; order it by problem: a device goes on with the one that it has prepared. A problem of
        which one candidate could not be judged is tried no more. `record_of` says which record a
        claim is held against, as `Pool.judge` is told; without it there is none. A `trial` finds
        out whether a problem can be judged: on one device, while others go on with other problems.

        A candidate with which two judges died is refused.

        Raises:
            WorkerError: no judge is left.
        """
        tasks = (Errand(problem, candidate, timing, trial=trial) for problem, candidate in work)
        self._record_of = record_of or _no_record
        self._make_room(wanted=True)  # for what is judged first
        self._ahead = Ahead[Errand](self._builder, lambda task: (task.problem, task.candidate))
        self._waiting = ByProblem(self._ahead.divert(tasks), lambda task: task.problem.id)
        self._given_back.clear()
        self._again = {seat.device.id: deque[Errand]() for seat in self._seats.all}
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
            for place in self._seats.places():
                if place.seat in self._seats.alive():  # meanwhile
                    yield from self._feed(place)
            self._make_room(wanted=bool(self._running) and self._waiting.is_any_left())
            if self._running or (self._ahead.building and self._seats.alive()):
                asked: list[Future[Any]] = [*self._running, *self._ahead.building]
                done = wait(asked, return_when=FIRST_COMPLETED).done
                for task, failure in self._ahead.finished(done):
                    self._waiting.add(replace(task, not_built=failure))
                for future in [each for each in self._running if each in done]:  # in their order
                    if future in self._running:  # else it was lost with its device
                        yield from self._heard(future)
            elif not self._seats.alive():
                raise self._seats.none_left()
            elif not self._given_back and not any(self._again.values()):
                return

    def _make_room(self, *, wanted: bool) -> None:
        """Have builders keep off those who measure, unless all that is left waits for builds."""
        if self._builder is not None:
            self._builder.make_room(wanted=wanted)

    def _feed(self, place: Place) -> Iterator[Refusal]:
        """Ask as much as may be asked at a place; yield what is refused instead."""
        seat = place.seat
        while self._may_ask(place):
            task = self._next(place)
            if task is None:
                return
            is_suspect = task.num_lost > 0 and len(places_of(seat)) > 1
            if is_suspect and self._asked_of(seat):
                self._given_back.appendleft(task)  # until it can be alone: who else dies with it?
                return
            try:
                record = self._record_of(task.problem, task.candidate)
                task = replace(task, record=record)
                built = self._compiled_beside(seat, task)
                built = built or self._ahead.content(task, seat.machine)
                # where nothing is built for, there may be another compiler
                not_built = task.not_built if self._ahead.serves(seat.machine) else None
                first = task.first and replace(task.first, compiled=b"")  # once is enough
                is_elsewhere = self._seats.other(seat) is not None
                asked = replace(
                    task, first=first, built=built, not_built=not_built, elsewhere=is_elsewhere
                )
                self._running[seat.process.submit(errand.judge, asked)] = place, task
                self._at[place.id] = task.problem.id
                self._waiting.went_to(place.id, task.problem.id)
            except BrokenExecutor as error:  # it died while nothing was asked
                self._give_back(task)
                if not self._asked_of(seat):
                    # else its results will say so
                    yield from self._lose([seat], blames=False, can_revive=True, said=str(error))
                return

    def _may_ask(self, place: Place) -> bool:
        """Whether a place has too little to do, and nothing beside it that must be alone."""
        asked = self._asked_of(place.seat)
        if len(places_of(place.seat)) > 1 and any(task.num_lost for _, task in asked):
            return False
        return sum(at == place for at, _ in asked) < AHEAD

    def _asked_of(self, seat: Seat) -> list[tuple[Place, Errand]]:
        """What a seat was asked and has not answered."""
        return [pair for pair in self._running.values() if pair[0].seat is seat]

    def _compiled_beside(self, seat: Seat, task: Errand) -> bytes:
        """What a candidate compiled when it made its claim, if that was on the same machine."""
        claimed = task.first.verdict.device_id if task.first else None
        same = {each.device.id for each in self._seats.all if each.machine == seat.machine}
        return task.first.compiled if task.first and claimed in same else b""

    def _next(self, place: Place) -> Errand | None:
        """What is of the problem that it has prepared, and what needs no other to be prepared soon.

        So claims wait until its run is over, and those of a problem that another device is still at
        until there is no other run: preparing one costs as much as a few verdicts. Among the last
        runs claims come first, since others can help with a run but not with them.
        """
        mine = self._again[place.seat.device.id]
        is_full, at = len(mine) >= MANY_CLAIMS, self._at.get(place.id)
        claim = next((each for each in mine if each.problem.id == at), None)
        if claim is None and (is_full or not self._goes_on(place)):
            claim = next((each for each in mine if is_full or self._is_settled(place, each)), None)
        if claim is not None:
            mine.remove(claim)
            return claim
        besides = self._in_trial_beside(place.seat)
        task = next((each for each in self._given_back if each.problem.id not in besides), None)
        if task is None:
            task = self._waiting.take(place.id, besides)
        else:
            self._given_back.remove(task)
        return mine.popleft() if task is None and mine else task

    def _in_trial_beside(self, seat: Seat) -> set[str]:
        """Return problems of which another device is to find out whether they can be judged."""
        return {
            task.problem.id
            for place, task in self._running.values()
            if place.seat is not seat and task.trial and task.problem.id not in self._tried
        }

    def _goes_on(self, place: Place) -> bool:
        """Whether it has more to do at its problem, and there are runs to begin after it."""
        at = self._at.get(place.id)
        return self._waiting.goes_on(place.id, at) and self._waiting.has_runs()

    def _is_settled(self, place: Place, claim: Errand) -> bool:
        """Whether it is time to prepare a claim's problem."""
        if not (self._waiting.has_runs() or self._ahead.building):
            num_left = self._waiting.num_held() + sum(map(len, self._again.values()))
            share = num_left / len(self._seats.alive())
            if len(self._again[place.seat.device.id]) >= share:  # or all others wait for this one
                return True
        problem = claim.problem.id
        elsewhere = {at for other, at in self._at.items() if other != place.id}
        return not (problem in elsewhere or self._waiting.is_left(problem))

    def _heard(self, future: Future[Judgement | Refusal]) -> Iterator[Judgement | Refusal]:
        """What follows from an answer, or from its absence."""
        (seat, _), task = self._running[future]
        try:
            judgement = future.result()
        except MachineLost:
            gone = [each for each in self._seats.alive() if each.machine == seat.machine]
            yield from self._lose(gone, blames=False)
            return
        except BrokenExecutor as error:
            yield from self._lose([seat], blames=True, can_revive=True, said=str(error))
            return
        except DeviceLostError as error:
            self._seats.leave(seat, str(error))
            yield from self._lose([seat], blames=True)
            return
        del self._running[future]
        self._tried.add(task.problem.id)
        if isinstance(judgement, Refusal):
            refused = replace(task, refused_by=(*task.refused_by, seat.device.id))
            if task.first is not None and self._confirmers(refused):
                self._give_back(refused)
                return
            yield from self._refused(task, judgement.reason)
        elif task.first is not None:
            yield claims.confirmed(task.first, judgement, self._protocol)
        else:
            claim = judgement.verdict.measurement
            is_large = claim and claims.is_large(claim, self._protocol, record=task.record)
            if judgement.is_to_confirm or (is_large and self._seats.other(seat)):
                self._give_back(replace(task, first=self._to_keep(judgement)))
            else:
                yield judgement

    @property
    def lost(self) -> list[Seat]:
        """Devices that judge no more: their process died, or another one held them at first."""
        return self._seats.lost

    def why_lost(self, seat: Seat) -> str:
        """What became of one that is lost, as far as we know."""
        return self._seats.why_lost(seat)

    def _to_keep(self, claimed: Judgement) -> Judgement:
        """With what it compiled, while that and what others did is no burden."""
        kept = [each.first for mine in self._again.values() for each in mine if each.first]
        num_bytes = sum(len(each.compiled) for each in [*kept, claimed])
        return replace(claimed, compiled=b"") if num_bytes > MAX_COMPILED_BYTES else claimed

    def _refused(self, task: Errand, reason: str) -> Iterator[Refusal]:
        """Refuse a candidate, and all others of its problem, which nobody tries any more."""
        yield Refusal(task.problem.id, task.candidate.id, reason)
        problem_id = task.problem.id
        given_back = [each for each in self._given_back if each.problem.id == problem_id]
        self._given_back = deque(each for each in self._given_back if each not in given_back)
        unbuilt = self._ahead.drop(lambda other: other.problem.id == problem_id)
        for left in [*given_back, *self._waiting.drop(problem_id), *unbuilt]:
            self._ahead.forget(left)
            yield Refusal(problem_id, left.candidate.id, reason)

    def _lose(
        self, gone: Sequence[Seat], *, blames: bool, can_revive: bool = False, said: str = ""
    ) -> Iterator[Refusal]:
        """Give back what those had whose judges died; those that start again are not lost.

        The first that a judge had not answered was being judged, and where several judge side by
        side, as many as there are: those are judged once more, each alone. Where several judges
        died with one candidate, it is refused, and the others have their verdicts.

        Raises:
            WorkerError: none is left.
        """
        for place in [place for seat in gone for place in places_of(seat)]:
            self._at.pop(place.id, None)
            self._waiting.release(place.id)
        given_back: list[Errand] = []
        for seat in gone:
            unanswered = [
                future
                for future, (busy, _) in self._running.items()
                if busy.seat is seat and not (future.done() and future.exception() is None)
            ]
            tasks = [self._running.pop(future)[1] for future in unanswered]
            for number in range(min(len(tasks), len(places_of(seat))) if blames else 0):
                tasks[number] = replace(tasks[number], num_lost=tasks[number].num_lost + 1)
            if not (can_revive and self._seats.is_revived(seat)):
                self._seats.lost.append(seat)
                tasks += self._again[seat.device.id]
                self._again[seat.device.id].clear()
            given_back += tasks
        for task in given_back:
            if task.num_lost < MAX_LOST:
                self._give_back(task)
                continue
            why = f"{task.problem.key}: {MAX_LOST} judges died with it: {said or 'no word'}"
            yield Refusal(task.problem.id, task.candidate.id, why)
        if given_back and not self._seats.alive():
            raise self._seats.none_left()

    def _give_back(self, task: Errand) -> None:
        """For another device; a claim that nobody is left to confirm was never made."""
        able = self._confirmers(task)
        if not able:
            self._given_back.append(replace(task, first=None, refused_by=()))
            return

        def burden(device: str) -> tuple[bool, int]:
            mine, problem = self._again[device], task.problem.id
            at = {
                self._at.get(place.id) for place in self._seats.places() if place.device == device
            }
            is_there = problem in {*at, *(each.problem.id for each in mine)}
            return not is_there, len(mine)

        self._again[min(able, key=burden)].append(task)

    def _confirmers(self, task: Errand) -> list[str]:
        """Devices that can confirm a claim: others of its kind, else its own."""
        if task.first is None:
            return []
        kind, own = task.first.verdict.device_kind, task.first.verdict.device_id
        able = [
            each.device.id for each in self._seats.alive()
            if each.device.kind == kind and each.device.id not in task.refused_by
        ]  # fmt: skip
        return [device for device in able if device != own] or able


def _no_record(_: Problem, __: Candidate) -> None:
    return None
