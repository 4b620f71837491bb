"""Judging many candidates: one device, one candidate at a time, each pair once.

Holds the device's lock, the zygote and, for the problem at hand, its prepared judge. Several
devices and machines are the next step; the interface stays.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from cudal1.candidate import Candidate
from cudal1.harness.device import Device
from cudal1.harness.judge import Judgement, ProblemJudge
from cudal1.harness.quiet import undisturbed, unreadable
from cudal1.harness.sandbox import Zygote
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

NUM_PREPARED = 8
"""Problems whose oracle and rings are kept."""

__all__ = ["Judgement", "Pool"]


class Pool:
    """Judges on a device that it holds alone while it is open."""

    def __init__(self, device: Device, protocol: EvalProtocol, *, wait_s: float = 0.0) -> None:
        self.device = device
        self._wait_s = wait_s
        self.protocol = protocol
        self._stack = ExitStack()
        self._zygote: Zygote | None = None
        self._prepared: OrderedDict[str, ProblemJudge] = OrderedDict()

    def __enter__(self) -> Self:
        """Lock the device and start what forks workers.

        Raises:
            DeviceError: another process is judging on the device.
        """
        with ExitStack() as opening:
            opening.enter_context(self.device.locked(wait_s=self._wait_s))
            opening.enter_context(unreadable())
            self._zygote = Zygote(self.device)
            opening.callback(self._zygote.close)
            opening.callback(self._forget_all)
            self._stack = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def judge(self, problem: Problem, candidate: Candidate, *, timing: bool = True) -> Judgement:
        """The verdict on one candidate; without `timing`, on its correctness only."""
        with undisturbed(self.device):
            return self._prepare(problem).judge(candidate, timing=timing)

    def reference_us(self, problem: Problem) -> float:
        """About how long one call of the reference takes, harness included."""
        with undisturbed(self.device):
            return self._prepare(problem).reference_us

    def _prepare(self, problem: Problem) -> ProblemJudge:
        assert self._zygote is not None, "the pool is not open"
        prepared = self._prepared.pop(problem.id, None)
        if prepared is None:
            while len(self._prepared) >= NUM_PREPARED:
                self._prepared.popitem(last=False)[1].close()
            prepared = ProblemJudge(
                problem, device=self.device, protocol=self.protocol, zygote=self._zygote
            )
        self._prepared[problem.id] = prepared
        return prepared

    def _forget_all(self) -> None:
        for prepared in self._prepared.values():
            prepared.close()
        self._prepared.clear()
