"""A pool in a process of its own for each problem: what a reference does costs that problem.

The device's process holds the lock and what forks workers, and runs no problem's code. It forks a
process for each problem, which keeps the oracle and asks for workers as any pool does. Threat: none
new; a problem is trusted by its user's word, but what it raises, prints, changes, or how it ends
must not reach another problem's verdicts.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from cudal1.errors import DeviceLostError, SuiteError, WorkerError
from cudal1.harness.ceilings import Ceilings, Peaks
from cudal1.harness.device import Device
from cudal1.harness.forked import Ended, Forked
from cudal1.harness.judge import Judgement
from cudal1.harness.known_references import KnownReferences
from cudal1.harness.launch import Lent, Source, Start, launch
from cudal1.harness.pool import NUM_PREPARED, Pool
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol


class Pools:
    """Judges on a device that it holds alone while it is open, each problem in its own process.

    Args:
        device: what it judges on.
        protocol: how.
        wait_s: for how long to wait for a device that another judge holds.
        start: starts what forks workers.
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
        self._start = start
        self._known = known
        self._source: Source | Lent | None = None
        self._peaks: Peaks | None = None
        self._forked: OrderedDict[str, Forked] = OrderedDict()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Lock the device and start what forks workers.

        Raises:
            DeviceError: another process is judging on the device.
            WorkerError: what forks workers does not start.
        """
        with ExitStack() as opening:
            opening.enter_context(self.device.locked(wait_s=self._wait_s))
            opening.callback(self._end_source)
            opening.callback(self._forget_all)
            self._source = self._start(self.device)
            import_once().set_num_threads(1)  # a fork must find no others
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def judge(self, problem: Problem, *arguments: Any, **named: Any) -> Judgement:
        """Return what the problem's pool says of a candidate: `Pool.judge`.

        Raises:
            SuiteError: the problem cannot be judged.
            DeviceLostError: the device computes no more, in a fresh process either.
            WorkerError: our own machinery failed.
        """
        return self._ask(problem, "judge", *arguments, **named)

    def confirm(self, problem: Problem, *arguments: Any, **named: Any) -> Judgement:
        """Return what the problem's pool says of a claim: `Pool.confirm`; raises as `judge`."""
        return self._ask(problem, "confirm", *arguments, **named)

    def _ask(self, problem: Problem, name: str, *arguments: Any, **named: Any) -> Judgement:
        try:
            forked = self._of(problem)
            return forked.ask(name, problem, *arguments, **named)
        except Ended as error:
            self._forget(problem)
            raise SuiteError(f"{problem.key}: its reference {error}") from error
        except DeviceLostError as error:
            self._forget(problem)
            require_working(self.device)
            raise SuiteError(f"{problem.key}: loses the device for its process: {error}") from error
        except MemoryError as error:
            self._forget(problem)
            raise SuiteError(f"{problem.key}: too large for the memory here: {error}") from error
        except WorkerError:
            self._forget(problem)
            self._renew()
            raise

    def _of(self, problem: Problem) -> Forked:
        forked = self._forked.pop(problem.id, None)
        if forked is None:
            while len(self._forked) >= NUM_PREPARED[self.device.device_class]:
                self._forked.popitem(last=False)[1].close()
            self._peaks = self._peaks or self._measured()
            assert isinstance(self._source, Source)
            forked = Forked(self._make, keeps=[self._source.channel.fileno()])
        self._forked[problem.id] = forked
        return forked

    def _measured(self) -> Peaks:
        """Measure the device's ceilings, once for all problems, where no context stays behind."""
        forked = Forked(self._ceilings)
        try:
            return forked.ask("peaks")
        finally:
            forked.close()

    def _ceilings(self) -> Ceilings:
        return Ceilings(self.device.torch_name, core=self.device.worker_core, known=self._peaks)

    def _make(self) -> Pool:
        """In the problem's process: a pool that holds no lock, and forks workers with ours."""
        assert isinstance(self._source, Source)
        source = Lent(self._source)
        pool = Pool(
            self.device,
            self.protocol,
            start=lambda _: source,
            holds=True,
            ceilings=self._ceilings(),
            known=self._known,
        )
        return pool.__enter__()

    def _renew(self) -> None:
        """Start another process that forks workers where the last one has ended."""
        if self._source is not None and not self._source.is_running():
            self._forget_all()
            self._end_source()
            self._source = self._start(self.device)

    def _forget(self, problem: Problem) -> None:
        forked = self._forked.pop(problem.id, None)
        if forked is not None:
            forked.kill()

    def _forget_all(self) -> None:
        while self._forked:
            self._forked.popitem()[1].close()

    def _end_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()


def import_once() -> Any:
    """Import PyTorch for all processes that are forked, and what intercepts its operators."""
    importlib.import_module("torch._dynamo")
    return importlib.import_module("torch")


def require_working(device: Device) -> None:
    """Have a fresh process compute one sum on a device.

    A context of this one's would not survive the next fork.

    Raises:
        DeviceLostError: the device computes no more.
    """
    try:
        Forked(device.require_working).close()
    except Ended as error:
        raise DeviceLostError(f"device {device.kind} {device.id}: its process {error}") from error
