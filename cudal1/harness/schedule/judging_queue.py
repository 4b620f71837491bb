"""Queue candidates for verdicts: those of a policy that goes on meanwhile, or a whole list.

A thread leads the judges of all devices (`fleet`), which are processes of their own. They start,
which takes seconds, when the queue opens, and stay ready to the end. `sharing` says whether they
judge while the policy works, or only while it waits for them. What the policy offers is built at
once.

Threat: none new; the thread runs no candidate code.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError, WorkerError
from cudal1.harness.builds.builder import Builder
from cudal1.harness.device.sharing import Sharing, keeping_to
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess, kill, processes_here
from cudal1.harness.schedule.fleet import Fleet, RecordOf
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Verdict

log = logging.getLogger("cudal1")


@dataclass(frozen=True)
class _Waiting:
    """A candidate that no judge has been asked about yet."""

    problem: Problem
    candidate: Candidate
    timing: bool


Heard = tuple[str, Verdict | Refusal]
"""A candidate's id with its verdict, or the reason why there can be none."""
Settle = Callable[[Problem, Candidate, Judgement], Verdict]
"""A function that keeps a judgement and returns its verdict; called in the thread."""


class JudgingQueue:
    """A queue of candidates that are judged while it is open.

    Args:
        sharing: says which devices judge, and when.
        protocol: says how candidates are judged.
        settle: gets every judgement as soon as it is there.
        record_of: returns the record with which a claim is compared.
        builds: the folder where what was compiled ahead is kept.
        wait_s: for how many seconds to wait for a device that another judge holds.
    """

    def __init__(
        self,
        sharing: Sharing,
        protocol: EvalProtocol,
        settle: Settle,
        *,
        record_of: RecordOf,
        builds: Path,
        wait_s: float = 0.0,
    ) -> None:
        self._sharing = sharing
        self._protocol = protocol
        self._settle = settle
        self._record_of = record_of
        self._wait_s = wait_s
        self._builder = Builder(sharing.devices, protocol, builds)
        self._turn = threading.Condition()
        """A lock for the next four attributes."""
        self._waiting: list[_Waiting] = []
        self._may_judge = sharing.is_beside
        self._is_closing = False
        self._starting: list[DeviceProcess] = []
        self._asked: set[str] = set()
        """Ids of candidates that were added and have no result yet."""
        self._heard: SimpleQueue[Heard | None] = SimpleQueue()
        """Results of candidates; None: the thread has ended."""
        self._kept: dict[str, Verdict | Refusal] = {}
        """Results that came while only others were asked for."""
        self._thread = ThreadPoolExecutor(1, "judging_queue")
        self._leading = Future[None]()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Get ready to build, and begin to get ready to judge."""
        with ExitStack() as opening:
            opening.enter_context(self._builder)
            opening.callback(self._thread.shutdown)
            opening.callback(self._close)
            if self._sharing.is_beside:
                opening.enter_context(keeping_to(self._sharing.policy_cores))
            self._leading = self._thread.submit(self._lead)
            self._leading.add_done_callback(lambda _: self._heard.put(None))
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def add(self, problem: Problem, candidate: Candidate, *, timing: bool = True) -> None:
        """Add a candidate, unless it waits already; without `timing`, to be checked only."""
        if candidate.id not in self._asked and self._builder.takes(candidate):
            self._builder.begin(problem, candidate)
        self._take_in([(problem, candidate)], timing=timing)

    def collect(self) -> dict[str, Verdict]:
        """Return the verdicts on all candidates that were added since the last time, by id.

        The policy is expected to do nothing until this returns, if the two take turns.

        Raises:
            DeviceError: other processes are judging on all of the devices.
            WorkerError: a candidate could not be judged; what else was judged has been settled.
        """
        self._kept |= self._hear()
        kept, self._kept = self._kept, {}
        return {key: verdict_of(said) for key, said in kept.items()}

    def judge_all(
        self, work: Iterable[tuple[Problem, Candidate]], *, timing: bool = True
    ) -> Iterator[Heard]:
        """Yield the result of each candidate as it is known; `collect` has the results of others.

        This is for a list that is known as a whole: it is built no further ahead than it is judged.
        The policy, if there is one, is expected to do nothing meanwhile.

        Raises:
            DeviceError: other processes are judging on all of the devices.
            WorkerError: no process judges.
        """
        listed = {candidate.id: (problem, candidate) for problem, candidate in work}
        self._take_in(listed.values(), timing=timing)
        yield from [(key, self._kept.pop(key)) for key in listed if key in self._kept]
        for key, said in self._hear():
            if key in listed:
                yield key, said
            else:
                self._kept[key] = said

    def _take_in(self, work: Iterable[tuple[Problem, Candidate]], *, timing: bool) -> None:
        known = self._asked | self._kept.keys()
        new = {each.id: (problem, each) for problem, each in work if each.id not in known}
        if not new:
            return
        self._asked.update(new)
        with self._turn:
            self._waiting += [_Waiting(*pair, timing) for pair in new.values()]
            self._turn.notify()

    def _hear(self) -> Iterator[Heard]:
        with nullcontext() if self._sharing.is_beside else self._judges_turn():
            while self._asked:
                heard = self._heard.get()
                if heard is None:
                    self._heard.put(None)  # for the next caller
                    self._leading.result()  # raises the reason
                    raise WorkerError("nobody judges any more: start again")
                self._asked.remove(heard[0])
                yield heard

    @contextmanager
    def _judges_turn(self) -> Iterator[None]:
        if self._sharing.devices[0].device_class is DeviceClass.CUDA:
            import torch

            if torch.cuda.is_initialized():  # else the policy is in other processes
                torch.cuda.synchronize()
                torch.cuda.empty_cache()  # workers may need what the policy does not use
        with self._turn:
            self._may_judge = True
            self._turn.notify()
        try:
            yield
        finally:
            with self._turn:
                self._may_judge = False

    def _close(self) -> None:
        with self._turn:
            self._is_closing = True
            self._turn.notify()
            # starting may take long: another process may hold the device
            for device_process in self._starting:
                kill(device_process.process)

    # --- in the thread ---------------------------------------------------------------------------

    def _lead(self) -> None:
        os.sched_setaffinity(0, self._sharing.judge_cores)  # of the processes that it starts, too
        with (
            processes_here(self._sharing.devices) as device_processes,
            self._fleet(device_processes) as fleet,
        ):
            num_told = self._tell_lost(fleet, 0)
            while batch := self._next_batch():
                self._judge(fleet, batch)
                num_told = self._tell_lost(fleet, num_told)

    @contextmanager
    def _fleet(self, device_processes: list[DeviceProcess]) -> Iterator[Fleet]:
        """Yield a fleet of all device processes, once it is open.

        While other processes hold all devices it tries again, at least until a candidate is added.
        """
        with ExitStack() as opening:
            while True:
                with self._turn:
                    if self._is_closing:
                        raise WorkerError("closed before anybody judged")
                    self._starting = device_processes
                fleet = Fleet(
                    device_processes, self._protocol, wait_s=self._wait_s, builder=self._builder
                )
                try:
                    opening.enter_context(fleet)
                    break
                except DeviceError:
                    with self._turn:
                        if self._asked:
                            raise
                        self._turn.wait(1.0)
            with self._turn:
                self._starting = []
            yield fleet

    def _tell_lost(self, fleet: Fleet, num_told: int) -> int:
        """Report device processes that were lost and not reported; return how many are lost."""
        for device_process in fleet.lost[num_told:]:
            log.warning("%s; others take its candidates over", fleet.why_lost(device_process))
        return len(fleet.lost)

    def _judge(self, fleet: Fleet, batch: Sequence[_Waiting]) -> None:
        by_id = {each.candidate.id: each for each in batch}
        work = [(each.problem, each.candidate) for each in batch]
        for said in fleet.judge_all(work, timing=batch[0].timing, record_of=self._record_of):
            if isinstance(said, Refusal):
                self._heard.put((said.candidate_id, said))
            else:
                judged = by_id[said.verdict.candidate_id]
                verdict = self._settle(judged.problem, judged.candidate, said)
                self._heard.put((judged.candidate.id, verdict))
            if self._is_closing:
                return

    def _next_batch(self) -> list[_Waiting]:
        """Return all waiting candidates that are judged alike, by problem; none at the end."""
        with self._turn:
            self._turn.wait_for(
                lambda: self._is_closing or (self._may_judge and bool(self._waiting))
            )
            if self._is_closing:
                return []
            timing = self._waiting[0].timing
            batch = [each for each in self._waiting if each.timing is timing]
            self._waiting = [each for each in self._waiting if each.timing is not timing]
            return sorted(batch, key=lambda each: each.problem.id)


def verdict_of(said: Verdict | Refusal) -> Verdict:
    """Return the verdict, where each candidate must have one.

    Raises:
        WorkerError: there can be none.
    """
    if isinstance(said, Refusal):
        raise WorkerError(said.reason)
    return said
