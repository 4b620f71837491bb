"""A harness that is only played: it finds everybody four times as fast, on whatever machine."""

from __future__ import annotations

from typing import Any, ClassVar

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness import Device
from cudal1.harness.judge import Judgement
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status
from tests.tasks.test_reviewing import VERDICT

TOO_LARGE = "too large for it: CUDA out of memory; lower its sizes"


class PlayedPool:
    """In the place of a `Pool`."""

    asked: ClassVar[list[str]] = []
    """Candidates, by id."""
    too_large: ClassVar[set[str]] = set()
    """Problems that its device has no memory for, by id."""

    def __init__(self, device: Device, protocol: EvalProtocol, *, wait_s: float) -> None:
        self._device = device
        self._protocol = protocol

    def __enter__(self) -> PlayedPool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def judge(self, problem: Problem, candidate: Candidate, **_: object) -> Judgement:
        """As `judged`, unless the problem is too large."""
        self.asked.append(candidate.id)
        if problem.id in self.too_large:
            raise SuiteError(f"{problem.key}: {TOO_LARGE}")
        return judged(candidate, self._protocol, self._device.kind)


def toys(*names: str) -> list[Problem]:
    """Problems for a CPU that nobody needs to run."""
    return [
        Problem(
            suite="toy", level=1, number=number, name=name, split=Split.TRAIN, revision="r",
            device_class=DeviceClass.CPU, source=f"class Model: '{name}'\n",
        )
        for number, name in enumerate(names, start=1)
    ]  # fmt: skip


def judged(candidate: Candidate, protocol: EvalProtocol, device_kind: str) -> Judgement:
    """Correct, 4x; a source that says `wrong` is."""
    changes: dict[str, Any] = {
        "problem_id": candidate.problem_id, "candidate_id": candidate.id,
        "protocol_id": protocol.id, "device_kind": device_kind,
    }  # fmt: skip
    if "wrong" in candidate.source:
        changes |= {"status": Status.INCORRECT, "reason": "it is", "measurement": None}
    return Judgement(VERDICT.model_copy(update=changes), ())
