"""Play a harness that finds every candidate four times as fast, on any machine."""

from __future__ import annotations

from typing import Any, ClassVar

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness.device.device import Device
from cudal1.harness.judgement import Judgement
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status
from tests.services.test_reviewing import VERDICT

TOO_LARGE = "too large for it: CUDA out of memory; lower its sizes"


class PlayedPool:
    """A stand-in for a `Pool`."""

    asked: ClassVar[list[str]] = []
    """The judged candidates, by id."""
    too_large: ClassVar[set[str]] = set()
    """The problems that the pool's device has no memory for, by id."""

    def __init__(self, device: Device, protocol: EvalProtocol, *, wait_s: float) -> None:
        self._device = device
        self._protocol = protocol

    def __enter__(self) -> PlayedPool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def judge(self, problem: Problem, candidate: Candidate, **_: object) -> Judgement:
        """Return the verdict of `judged`, unless the problem is too large."""
        self.asked.append(candidate.id)
        if problem.id in self.too_large:
            raise SuiteError(f"{problem.key}: {TOO_LARGE}")
        return judged(candidate, self._protocol, self._device.kind)


def toys(*names: str) -> list[Problem]:
    """Return problems for a CPU that no test runs."""
    return [
        Problem(
            suite="toy",
            level=1,
            number=number,
            name=name,
            split=Split.TRAIN,
            revision="r",
            device_class=DeviceClass.CPU,
            source=f"class Model: '{name}'\n",
        )
        for number, name in enumerate(names, start=1)
    ]


def judged(candidate: Candidate, protocol: EvalProtocol, device_kind: str) -> Judgement:
    """Return a verdict: 4x, or incorrect for a source that says `wrong`."""
    changes: dict[str, Any] = {
        "problem_id": candidate.problem_id,
        "candidate_id": candidate.id,
        "protocol_id": protocol.id,
        "device_kind": device_kind,
    }
    if "wrong" in candidate.source:
        changes |= {"status": Status.INCORRECT, "reason": "it is", "measurement": None}
    return Judgement(VERDICT.model_copy(update=changes), ())
