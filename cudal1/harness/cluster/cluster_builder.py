"""Compile ahead on the machines of a Ray cluster, each beside its own judges.

What one machine has compiled serves all machines with the same toolchain, as where they run one
image. The largest group of such machines compiles together. For the others, candidates are compiled
when they are judged, and so is what a machine had begun that leaves.

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
from cudal1.harness.builds.build_cache import BuildCache, default_folder
from cudal1.harness.builds.builder import Builder, may_compile, not_ahead
from cudal1.harness.cluster.cluster import ANSWER_LIMIT_S, BUILDS, CLOSE_LIMIT_S, Relayed, from_ray
from cudal1.harness.cluster.relay import Answer
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.schedule.device_processes import DeviceProcess, MachineLost
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol


def builder_for(
    device_processes: Sequence[DeviceProcess], protocol: EvalProtocol
) -> Builder | ClusterBuilder:
    """Return a builder, not open yet, on the machines of the device processes."""
    if any(each.machine for each in device_processes):
        return ClusterBuilder(device_processes, protocol)
    return Builder([each.device for each in device_processes], protocol, default_folder())


class ClusterBuilder:
    """A builder on several machines, which builds while it is open.

    Args:
        device_processes: on machines of a cluster (`processes_on_cluster`); their cores are left
            alone.
        protocol: says how candidates are judged.
        folder: of this machine; what was compiled is kept there.
        num_workers: side by side on each machine; by default as a `Builder` has it there.
    """

    def __init__(
        self,
        device_processes: Sequence[DeviceProcess],
        protocol: EvalProtocol,
        *,
        folder: Path | None = None,
        num_workers: int | None = None,
    ) -> None:
        self._device_processes: dict[str, list[DeviceProcess]] = {}
        for device_process in device_processes:
            self._device_processes.setdefault(device_process.machine, []).append(device_process)
        self._builds_for = device_processes[0].device.device_class
        self._protocol = protocol
        self._folder = folder
        self._asked_workers = num_workers
        self.complaint = ""
        """The reason why nothing is built ahead; empty while candidates are."""
        self._makes_room = False
        self._num_told = 0
        self._kept: BuildCache | None = None
        self._served = frozenset[str]()
        """Machines with the toolchain that is compiled with."""
        self._changing = threading.Lock()
        """A lock for the rest: answers come in a thread of Ray's."""
        self._workers: dict[str, int] = {}
        """Number of compiling workers, by machine."""
        self._load = Counter[str]()
        """Number of builds without an answer, by machine."""
        self._begun: dict[str, tuple[str, Future[Failure | None]]] = {}
        """Machine and future result of each build, by candidate."""

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
        self._kept = BuildCache(self._folder or default_folder(), chosen)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import ray

        with suppress(MachineLost), from_ray():
            closing = [self._relay(each).close_builder.remote() for each in self._device_processes]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_LIMIT_S)
        if self._kept is not None:
            self._kept.close()

    @property
    def num_workers(self) -> int:
        """The number of candidates that compile side by side, on all machines."""
        return sum(self._workers.values())

    def make_room(self, *, wanted: bool) -> None:
        """Set whether a device measures; most workers then wait with what they have not begun."""
        if wanted is not self._makes_room:
            self._makes_room = wanted
            self._num_told += 1
            for machine in list(self._workers):
                self._tell(machine, "make_room", self._num_told, wanted=wanted)

    def takes(self, candidate: Candidate) -> bool:
        """Return whether to build a candidate ahead: it may compile, and has not been built."""
        is_able = bool(self._workers)
        may = may_compile(candidate.source, self._builds_for)
        return is_able and may and candidate not in self._kept_here()

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        """Build a candidate once, where the least is to be built; return the compiler's answer.

        The answer is a failure or None; it is None, too, where the build was lost.
        """
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
        """Cancel the build of a candidate, if it has not begun."""
        with self._changing:
            machine, found = self._begun.get(candidate.id, ("", None))
            if found is None or found.done():
                return
            del self._begun[candidate.id]
        self._tell(machine, "pass_over", candidate)

    def content(self, candidate: Candidate) -> bytes:
        """Return what was compiled for a candidate; empty where nothing is known."""
        return self._kept_here().of(candidate)

    def serves(self, machine: str) -> bool:
        """Return whether builds are of use on a machine."""
        return machine in self._served

    def _kept_here(self) -> BuildCache:
        assert self._kept is not None, "the builder is not open"
        return self._kept

    def _relay(self, machine: str) -> Any:
        process = self._device_processes[machine][0].process
        assert isinstance(process, Relayed)
        return process.relay

    def _offers(self) -> tuple[dict[str, tuple[str, int]], str]:
        """Return each machine's toolchain and number of workers, and why one has none."""
        import ray

        asked: dict[str, Any] = {}
        found: dict[str, tuple[str, int]] = {}
        why = "no machine answers"
        for machine, device_processes in self._device_processes.items():
            devices = [device_process.device for device_process in device_processes]
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
            found.set_result(failure)  # a caller waits

    def _leave(self, machine: str, complaint: str) -> None:
        """Let a machine compile no more."""
        with self._changing:
            self._workers.pop(machine, None)
            if not self._workers and not self.complaint:
                self.complaint = complaint
