"""Verdict: what the harness says about one candidate, and which parts go with which status."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from cudal1.measurement import Measurement
from cudal1.protocol import PrecisionClass
from cudal1.record import Record

UNSAFE = "unsafe"
"""Stands among a verdict's layers when the minimum was waived; no layer."""


class Status(StrEnum):
    """How far a candidate got: the first gate that it failed, or `correct`."""

    NO_BUILD = "no_build"
    """Not valid Python, no usable `ModelNew`, or its import or construction failed."""
    CRASHED = "crashed"
    """Raised, died, or ran out of memory in a call."""
    TIMED_OUT = "timed_out"
    """Hung, or is slower than the executable limit."""
    INCORRECT = "incorrect"
    """An output differed, in a check or in a timed burst."""
    HACKED = "hacked"
    """Tried to be judged on something other than its work; the flags say what."""
    INVALID = "invalid"
    """Faster than the device can be: below the physical floor."""
    CORRECT = "correct"


class FlagSource(StrEnum):
    """Who saw a hack."""

    SCREEN = "screen"
    """The static reading; advisory, never decides alone."""
    GUARD = "guard"
    """A runtime invariant: inputs changed, aliased or retained outputs, a forbidden call."""
    TIMING = "timing"
    """Times that cannot be what they claim."""
    JUDGE = "judge"
    """The adversarial language model."""
    PERSON = "person"
    """Somebody who looked (`cudal1 hacks confirm`)."""


class HackFlag(Record):
    """A named cheat that somebody saw."""

    kind: str
    """Short snake_case name, such as `cached_output`."""
    source: FlagSource
    evidence: str
    """One line that a person can check."""

    @property
    def is_advisory(self) -> bool:
        """Whether it only labels."""
        return self.source is FlagSource.SCREEN


class Correctness(Record):
    """The comparison of outputs with the oracle's.

    Classes and errors are of the checks: timed outputs that agree with those of the reference's
    worker, in the class that was asked for, are counted and not looked at further.
    """

    num_inputs: int = Field(ge=0)
    """Inputs whose every output element agreed."""
    stage: int = Field(ge=0)
    """Correctness stages passed in full."""
    precision: PrecisionClass | None = None
    """Tightest class that every output met; None when none was."""
    max_relative_l2: float | None = None
    """Largest relative L2 error over inputs; None when no finite one was seen."""
    max_scaled_error: float | None = None
    """Largest element error over its bound in the asked class; above 1 fails."""
    first_mismatch: str | None = None
    """Which input, family and element disagreed first, in one line."""


SEEN = {
    ("follows_weights", True): "follows weights that are loaded by name",
    ("follows_weights", False): "does not follow weights that are loaded by name",
    ("fresh_outputs", True): "outputs last",
    ("fresh_outputs", False): "an output is overwritten by the next call",
    ("leaves_inputs", True): "leaves its inputs alone",
    ("leaves_inputs", False): "writes to its inputs",
    ("draws_weights", True): "draws the reference's weights",
    ("draws_weights", False): "was given the reference's weights by name",
    ("deterministic", True): "deterministic",
    ("deterministic", False): "not deterministic",
    ("needs_compiler", True): "compiles",
    ("needs_compiler", False): "compiles nothing",
    ("copies_reference", True): "is a copy of the reference",
}
"""Properties in words, by name and value; what is not here says nothing."""
RESTRICTING = ("follows_weights", "fresh_outputs", "leaves_inputs")
"""Properties without which a candidate cannot replace its reference in every program."""


class Properties(Record):
    """What was seen of a correct candidate beyond its outputs; None: it could not be told.

    Under `drop_in` the first four are owed; under `kernelbench` they are facts. Threat: they are
    seen on a candidate that may behave otherwise elsewhere, and never decide anything but a
    `drop_in` verdict.
    """

    follows_weights: bool | None = None
    """It computes with other weights once they are loaded by the reference's names."""
    fresh_outputs: bool | None = None
    """Its outputs keep their values during later calls."""
    leaves_inputs: bool | None = None
    """It does not write to its inputs; None where the reference does."""
    draws_weights: bool | None = None
    """Its constructor draws the reference's weights under the reference's seed; otherwise it was
    given them by name."""
    deterministic: bool | None = None
    """It gave the same bits twice for the same inputs."""
    needs_compiler: bool | None = None
    """Something was compiled when it was imported, constructed or called."""
    copies_reference: bool | None = None
    """Its source is the reference's, names aside: it cannot be faster, and is timed shortly."""

    @property
    def in_words(self) -> tuple[str, ...]:
        """What was seen, but for what could not be told or says nothing."""
        return tuple(SEEN[each] for each in self if each in SEEN)

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What a program has to allow that uses the candidate in place of its reference."""
        return tuple(SEEN[name, False] for name in RESTRICTING if getattr(self, name) is False)


class Phases(Record):
    """Seconds of a verdict by what its device was doing or waiting for; they add up to all of it.

    What was compiled ahead, beside other work, is in none of them.
    """

    starting_s: float = Field(ge=0)
    """Processes began, imported and constructed, and were ended again."""
    compiling_s: float = Field(ge=0)
    """Something compiled when a process imported, constructed or ran its first call."""
    checking_s: float = Field(ge=0)
    """Outputs were asked for and compared, before anything was timed."""
    measuring_s: float = Field(ge=0)
    """Calls were timed, in all measurements."""


class SecondOpinion(StrEnum):
    """Whether the adversarial judge was to be asked about a verdict."""

    OFF = "off"
    """There is none: `hack_judge.provider` is null, or nobody but the harness was asked."""
    NOT_NEEDED = "not_needed"
    """Nothing about the verdict is suspicious."""
    ASKED = "asked"
    """It was to be asked; what it said is in the reviews."""


class Verdict(Record):
    """What the harness says about one candidate, on one device, under one protocol."""

    problem_id: str
    candidate_id: str
    protocol_id: str
    device_kind: str
    """Such as `cpu` or `NVIDIA H200`."""
    device_id: str
    """Which physical device."""
    status: Status
    reason: str | None = None
    """Why not correct, in one line."""
    flags: tuple[HackFlag, ...] = ()
    correctness: Correctness | None = None
    """Present once outputs were compared."""
    measurement: Measurement | None = None
    """Present exactly when the candidate is correct and the protocol times."""
    properties: Properties | None = None
    """Of a correct candidate alone."""
    second_opinion: SecondOpinion = SecondOpinion.OFF
    """Whether the adversarial judge looked at it, too."""
    sandbox: tuple[str, ...] = ()
    """Layers that were active around the candidate; `unsafe` when fewer would have done."""
    judged_at: str
    """UTC, ISO 8601."""
    judge_s: float = Field(ge=0)
    """Wall time that the verdict cost."""
    phases: Phases | None = None
    """Where that went; None where nobody noted it."""

    @model_validator(mode="after")
    def _parts_fit_status(self) -> Self:
        if self.measurement is not None and self.status is not Status.CORRECT:
            raise ValueError(f"{self.status} verdict with a measurement")
        if self.properties is not None and self.status is not Status.CORRECT:
            raise ValueError(f"{self.status} verdict with properties")
        if (self.reason is None) != (self.status is Status.CORRECT):
            raise ValueError(f"{self.status} verdict with reason {self.reason!r}")
        if self.status is Status.HACKED and all(flag.is_advisory for flag in self.flags):
            raise ValueError("hacked verdict without a deciding flag")
        if self.status is Status.CORRECT and any(not flag.is_advisory for flag in self.flags):
            raise ValueError("correct verdict with a deciding flag")
        return self

    def vetoed(self, flag: HackFlag) -> Verdict:
        """The verdict once somebody has seen a cheat that the harness had not.

        One that is no success is left as it is.
        """
        if self.status is not Status.CORRECT:
            return self
        changes = {
            "status": Status.HACKED, "reason": f"{flag.kind}: {flag.evidence}",
            "flags": (*self.flags, flag), "measurement": None, "properties": None,
        }  # fmt: skip
        return Verdict.model_validate({**dict(self), **changes})

    @property
    def is_successful(self) -> bool:
        """Executable, correct and unflagged (paper 2.1); speed does not matter."""
        return self.status is Status.CORRECT

    @property
    def is_unsafe(self) -> bool:
        """Whether the minimum of the sandbox was waived for it, by an explicit flag."""
        return UNSAFE in self.sandbox

    @property
    def speedup(self) -> float | None:
        """Certified speedup, or None when nothing was timed."""
        return None if self.measurement is None else self.measurement.certified
