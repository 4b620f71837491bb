"""Compiling ahead on the machines of a Ray cluster, each beside its own judges.

What one has compiled serves all whose toolchain is the same, as where they run one image. The
largest group of such machines compiles together; on the others, candidates are compiled when they
are judged. What a machine had begun that leaves is compiled where it is judged, too.

Threat: as for a `Builder`. Compiled code crosses the cluster, which is its owner's (`cluster`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cudal1.candidate import Candidate
from cudal1.harness.builder import may_compile, not_ahead
from cudal1.harness.cluster import ANSWER_LIMIT_S, BUILDS, CLOSE_LIMIT_S, Relayed, from_ray
from cudal1.harness.kept import Kept, default_folder
from cudal1.harness.progress import Failure
from cudal1.harness.relay import Answer
from cudal1.harness.seats import MachineLost, Seat
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol


class ClusterBuilder:
    """Builds while it is open.

    Args:
        seats: on machines of a cluster (`seats_on_cluster`); their cores are left alone.
        protocol: how candidates are judged.
        folder: of this machine; what was compiled is kept there.
        num_workers: side by side on each machine; by default as a `Builder` has it there.
    """

    def __init__(
        self, seats: Sequence[Seat], protocol: EvalProtocol, *, folder: Path | None = None,
        num_workers: int | None = None,
    ) -> None:  # fmt: skip
        self._seats: dict[str, list[Seat]] = {}
        for seat in seats:
            self._seats.setdefault(seat.machine, []).append(seat)
        self._builds_for = seats[0].device.device_class
        self._protocol = protocol
        self._folder = folder
        self._asked_workers = num_workers
        self.complaint = ""
        """Why nothing is built ahead any more."""
        self._makes_room = False
        self._num_told = 0
        self._kept: Kept | None = None
        self._served = frozenset[str]()
        """Machines with the toolchain that is compiled with."""
        self._changing = threading.Lock()
        """Guards the rest: answers come in a thread of Ray's."""
        self._workers: dict[str, int] = {}
        """How many each machine has that compiles."""
        self._load = Counter[str]()
        """What each has not answered."""
        self._begun: dict[str, tuple[str, Future[Failure | None]]] = {}
        """By candidate: where, and what becomes of it."""

    def __enter__(self) -> Self:
        """Ask all machines; those that do not answer compile nothing ahead.

        Raises:
            ConfigError: the folder cannot be used here.
        """
        offers, why = self._offers()
        workers = Counter[str]()
        for tools, count in offers.values():
            workers[tools] += count
        chosen = workers.most_common(1)[0][0] if workers else ""
        self._served = frozenset(each for each, (tools, _) in offers.items() if tools == chosen)
        self._workers = {each: offers[each][1] for each in self._served if offers[each][1] > 0}
        if not offers:
            self.complaint = not_ahead(why)
        self._kept = Kept(self._folder or default_folder(), chosen)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import ray

        with suppress(MachineLost), from_ray():
            closing = [self._relay(each).close_builder.remote() for each in self._seats]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_LIMIT_S)
        if self._kept is not None:
            self._kept.close()

    @property
    def num_workers(self) -> int:
        """How many compile side by side, on all machines."""
        return sum(self._workers.values())

    def make_room(self, *, wanted: bool) -> None:
        """Say whether somebody measures now: most workers wait with what they have not begun."""
        if wanted is not self._makes_room:
            self._makes_room = wanted
            self._num_told += 1
            for machine in list(self._workers):
                self._tell(machine, "make_room", self._num_told, wanted=wanted)

    def takes(self, candidate: Candidate) -> bool:
        """Whether it is worth building one ahead: it may compile, and has not been built."""
        is_able = bool(self._workers)
        may = may_compile(candidate.source, self._builds_for)
        return is_able and may and candidate not in self._kept_here()

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        """Have one built, once, where the least is to be built; None also where it was lost."""
        with self._changing:
            if candidate.id in self._begun:
                return self._begun[candidate.id][1]
            found: Future[Failure | None] = Future()
            if not self._workers:
                found.set_result(None)
                return found
            machine = min(self._workers, key=lambda each: self._load[each] / self._workers[each])
            self._load[machine] += 1
            self._begun[candidate.id] = machine, found
        try:
            with from_ray():
                relay = self._relay(machine)
                build = relay.build.options(concurrency_group=BUILDS)
                asked = build.remote(problem, candidate).future()
        except MachineLost as error:
            self._leave(machine, not_ahead(error))
            found.set_result(None)
            return found
        asked.add_done_callback(lambda done: self._hear(machine, candidate, done, found))
        return found

    def pass_over(self, candidate: Candidate) -> None:
        """Build one no more, if that has not begun."""
        with self._changing:
            machine, found = self._begun.get(candidate.id, ("", None))
            if found is None or found.done():
                return
            del self._begun[candidate.id]
        self._tell(machine, "pass_over", candidate)

    def content(self, candidate: Candidate) -> bytes:
        """What was compiled for one; empty where nothing is known."""
        return self._kept_here().of(candidate)

    def serves(self, machine: str) -> bool:
        """Whether what is built is of use there."""
        return machine in self._served

    def _kept_here(self) -> Kept:
        assert self._kept is not None, "the builder is not open"
        return self._kept

    def _relay(self, machine: str) -> Any:
        process = self._seats[machine][0].process
        assert isinstance(process, Relayed)
        return process.relay

    def _offers(self) -> tuple[dict[str, tuple[str, int]], str]:
        """By machine its toolchain and its workers; and why one has none."""
        import ray

        asked: dict[str, Any] = {}
        found: dict[str, tuple[str, int]] = {}
        why = "no machine answers"
        for machine, seats in self._seats.items():
            devices = [seat.device for seat in seats]
            with suppress(MachineLost), from_ray():
                asked[machine] = self._relay(machine).open_builder.remote(
                    devices, self._protocol, self._asked_workers
                )
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_LIMIT_S)
        for machine, reference in asked.items():
            try:
                with from_ray():
                    answer: Answer = ray.get(reference, timeout=0)
            except MachineLost as error:
                why = str(error)
                continue
            if answer.error is None:
                found[machine] = answer.value
            else:
                why = str(answer.error)
        return found, why

    def _tell(self, machine: str, what: str, *args: object, **more: object) -> None:
        with suppress(MachineLost), from_ray():
            getattr(self._relay(machine), what).remote(*args, **more)

    # --- in a thread of Ray's --------------------------------------------------------------------

    def _hear(
        self, machine: str, candidate: Candidate, done: Future[Any], found: Future[Failure | None]
    ) -> None:
        from ray.exceptions import RayTaskError

        failure = None
        try:
            with self._changing:
                self._load[machine] -= 1
            error = done.exception()
            if error is None:
                failure, content, complaint = done.result()
                if content is not None:
                    self._kept_here().keep(candidate, content)
                if complaint:
                    self._leave(machine, complaint)
            elif not isinstance(error, RayTaskError):  # which costs this build and no other
                self._leave(machine, not_ahead(error))
        finally:
            found.set_result(failure)  # somebody waits

    def _leave(self, machine: str, complaint: str) -> None:
        """It compiles no more."""
        with self._changing:
            self._workers.pop(machine, None)
            if not self._workers and not self.complaint:
                self.complaint = complaint
