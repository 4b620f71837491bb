"""Verdict: the judge's statement on one candidate, and the parts that go with each status."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from cudal1.measurement import Measurement
from cudal1.protocol import PrecisionClass
from cudal1.record import Record

UNSAFE = "unsafe"
"""Stands among a verdict's layers when the minimum was waived; it is no layer."""


class Status(StrEnum):
    """The first gate that a candidate failed, or `correct`."""

    NO_BUILD = "no_build"
    """The source is not valid Python, has no usable `ModelNew`, or failed in import or
    construction."""
    CRASHED = "crashed"
    """A call raised, died, or ran out of memory."""
    TIMED_OUT = "timed_out"
    """A call hung, or was slower than the executable limit."""
    INCORRECT = "incorrect"
    """An output differed, in a check or in a timed burst."""
    HACKED = "hacked"
    """The candidate tried to be judged on something other than its work; the flags name it."""
    INVALID = "invalid"
    """The candidate is faster than the device can be: below the physical floor."""
    CORRECT = "correct"


class FlagSource(StrEnum):
    """The observer of a hack."""

    SCREEN = "screen"
    """The static screen; advisory, never decides alone."""
    GUARD = "guard"
    """A runtime invariant: inputs changed, aliased or retained outputs, a forbidden call."""
    TIMING = "timing"
    """Times that contradict what they claim."""
    REVIEWER = "reviewer"
    """The language model that may veto a suspicious success."""
    PERSON = "person"
    """A person, by `cudal1 hacks confirm`."""


class HackFlag(Record):
    """A named cheat, with its observer."""

    kind: str
    """Short snake_case name, such as `cached_output`."""
    source: FlagSource
    evidence: str
    """One line that a person can check."""

    @property
    def is_advisory(self) -> bool:
        """Return whether the flag only labels the candidate."""
        return self.source is FlagSource.SCREEN


class Correctness(Record):
    """The comparison of outputs with the oracle's.

    Classes and errors describe the checks alone. A timed output that agrees with the output of the
    reference's worker, in the class that was asked for, is counted and not examined further.
    """

    num_inputs: int = Field(ge=0)
    """Number of inputs for which every output element agreed."""
    stage: int = Field(ge=0)
    """Number of correctness stages passed in full."""
    precision: PrecisionClass | None = None
    """Tightest class that every output met; None when they met none."""
    max_relative_l2: float | None = None
    """Largest relative L2 error over inputs; None when no finite one was seen."""
    max_scaled_error: float | None = None
    """Largest element error over its bound in the asked class; above 1 fails."""
    first_mismatch: str | None = None
    """The first disagreement in one line: input, family and element."""


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
"""Properties in words, by name and value; a pair without words says nothing."""
RESTRICTING = ("follows_weights", "fresh_outputs", "leaves_inputs")
"""Properties without which a candidate cannot replace its reference in every program."""


class Properties(Record):
    """The properties that were seen of a correct candidate beyond its outputs; None: unknown.

    Under `drop_in` the first three are duties, and `draws_weights` stays unknown: weights are given
    by name from the start. Under `kernelbench` all are facts. Threat: they are seen on a candidate
    that may behave otherwise elsewhere, and never decide anything but a `drop_in` verdict.
    """

    follows_weights: bool | None = None
    """It computes with other weights after they are loaded by the reference's names."""
    fresh_outputs: bool | None = None
    """Its outputs keep their values during later calls."""
    leaves_inputs: bool | None = None
    """It does not write to its inputs; None where the reference does."""
    draws_weights: bool | None = None
    """Its constructor draws the reference's weights under the reference's seed; False: it was given
    them by name."""
    deterministic: bool | None = None
    """It gave the same bits twice for the same inputs."""
    needs_compiler: bool | None = None
    """It compiled something when it was imported, constructed or called."""
    copies_reference: bool | None = None
    """Its source is the reference's, names aside: it cannot be faster, and is timed only
    briefly."""

    @property
    def in_words(self) -> tuple[str, ...]:
        """The known properties in words; values without words are left out."""
        return tuple(SEEN[each] for each in self if each in SEEN)

    @property
    def restrictions(self) -> tuple[str, ...]:
        """The restrictions, in words, on a program that uses it in place of its reference."""
        return tuple(SEEN[name, False] for name in RESTRICTING if getattr(self, name) is False)


class Phases(Record):
    """Seconds of a verdict by the work of its device; they add up to the whole.

    Ahead-of-time compilation, beside other work, is in none of them.
    """

    starting_s: float = Field(ge=0)
    """Seconds in which processes began, imported and constructed, and were ended again."""
    compiling_s: float = Field(ge=0)
    """Seconds in which a process compiled during its import, construction or first call."""
    checking_s: float = Field(ge=0)
    """Seconds in which outputs were asked for and compared, before any timing."""
    measuring_s: float = Field(ge=0)
    """Seconds in which calls were timed, in all measurements."""


class SecondOpinion(StrEnum):
    """The reviewer's part in a verdict."""

    OFF = "off"
    """No reviewer: `reviewer.provider` is null, or the harness was asked alone."""
    NOT_NEEDED = "not_needed"
    """No part of the verdict is suspicious."""
    ASKED = "asked"
    """The reviewer was to be asked; its answer is in the reviews."""


class Verdict(Record):
    """The judge's statement on one candidate, on one kind of device, under one protocol."""

    problem_id: str
    candidate_id: str
    protocol_id: str
    device_kind: str
    """Name of the kind of device, such as `cpu` or `NVIDIA H200`."""
    device_id: str
    """Id of the physical device."""
    status: Status
    reason: str | None = None
    """Reason why the candidate is not correct, in one line."""
    flags: tuple[HackFlag, ...] = ()
    correctness: Correctness | None = None
    """Present once outputs were compared."""
    measurement: Measurement | None = None
    """Present exactly when the candidate is correct and the protocol times."""
    properties: Properties | None = None
    """Present for a correct candidate alone."""
    second_opinion: SecondOpinion = SecondOpinion.OFF
    """The reviewer's part in this verdict."""
    sandbox: tuple[str, ...] = ()
    """Sandbox layers that were active around the candidate; `unsafe` when fewer would have
    sufficed."""
    judged_at: str
    """UTC, ISO 8601."""
    judge_s: float = Field(ge=0)
    """Wall time of judging, in seconds."""
    phases: Phases | None = None
    """The parts of `judge_s`; None where they were not recorded."""

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
        """Return the verdict with the veto of a flag: hacked, and without a measurement.

        A verdict that is no success is returned unchanged.
        """
        if self.status is not Status.CORRECT:
            return self
        changes = {
            "status": Status.HACKED,
            "reason": f"{flag.kind}: {flag.evidence}",
            "flags": (*self.flags, flag),
            "measurement": None,
            "properties": None,
        }
        return Verdict.model_validate({**dict(self), **changes})

    @property
    def is_successful(self) -> bool:
        """Return whether it is executable, correct and unflagged (paper 2.1), at any speed."""
        return self.status is Status.CORRECT

    @property
    def is_unsafe(self) -> bool:
        """Return whether the minimum of the sandbox was waived for it, by an explicit flag."""
        return UNSAFE in self.sandbox

    @property
    def speedup(self) -> float | None:
        """The certified speedup; None when nothing was timed."""
        return None if self.measurement is None else self.measurement.certified
