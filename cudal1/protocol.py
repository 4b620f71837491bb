"""EvalProtocol: how candidates are judged. Its fingerprint is on every verdict.

The values live in params.yaml (section `protocol`); what they mean is in docs/protocol.md.
Verdicts are compared only within one fingerprint and one kind of device.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from cudal1.record import Record, content_id

HARNESS_VERSION = "21"
"""Part of every fingerprint: raised when a change in code changes what a verdict means."""


class PrecisionClass(StrEnum):
    """How exact an output must be; a looser class is reported apart, never mixed in."""

    STRICT = "strict"
    TF32 = "tf32"
    HALF = "half"


class Contract(StrEnum):
    """What a candidate owes beyond right outputs.

    What was seen of the rest is a fact on a correct verdict (`verdict.Properties`), whichever
    contract was asked for.
    """

    KERNELBENCH = "kernelbench"
    """What KernelBench asks for: its constructor draws the reference's weights when it is given the
    reference's seed; an output is valid until the next call; inputs may be used up."""
    DROP_IN = "drop_in"
    """What whoever replaces a module needs as well: it follows weights that are loaded by name at
    any time, gives each output memory of its own, and leaves its inputs alone."""


class Mode(StrEnum):
    """In which mode modules run: the reference, the candidate, and the oracle alike."""

    CONSTRUCTED = "constructed"
    """As their constructors leave them, as KernelBench runs them: training, if nothing else is
    said."""
    TRAIN = "train"
    EVAL = "eval"
    """A candidate may, for example, fold a batch norm into a convolution."""


class Rule(StrEnum):
    """Who says when timing ends and what it earned."""

    CERTIFIED = "certified"
    """Quads until hardly more can be certified at `alpha` than was; that is earned."""
    PAPER = "paper"
    """Pairs for `window_s`; the median of the bucket means is earned (paper 2.4.4). It is an
    estimate: no probability of error stands behind it."""


class EvalProtocol(Record):
    """Everything that decides a verdict, apart from the device."""

    correctness_stages: tuple[int, ...] = Field(min_length=1)
    """Inputs checked in all after each stage, rising; a candidate stops at its first failure."""
    contract: Contract
    """What a candidate owes beyond right outputs."""
    mode: Mode
    """In which mode reference and candidate run."""
    precision: PrecisionClass
    """The class that counts as correct."""
    timing: bool
    """False: only correctness is decided (`checks_only`)."""
    rule: Rule
    """How timing ends and is read. `paper` knows neither `min_quads`, `max_quads`, `alpha`,
    `certify_within`, `max_claim` nor `dead_zone`."""
    window_s: float | None = Field(gt=0)
    """Wall time of one measurement under `paper` (paper 2.4.4: 1,200 to 1,800); else None."""
    burst_us: float = Field(gt=0)
    """Target duration of one timed burst of the reference."""
    max_burst_calls: int = Field(ge=1)
    """Calls in one burst, at most; bounds the memory of the input and output rings."""
    ring_bytes: int = Field(gt=0)
    """Memory of one ring, at most; on a GPU, a share of its memory is another limit."""
    min_quads: int = Field(ge=7)
    """ABBA quads before anything may be certified."""
    max_quads: int = Field(ge=7)
    alpha: float = Field(gt=0, lt=0.5)
    """Probability of a false certificate, per candidate."""
    give_up_alpha: float = Field(gt=0, lt=0.5)
    """Probability of giving up on a speedup that is true: costs a gain, never a false one."""
    certify_within: float = Field(gt=0)
    """Timing goes on while so much more than what is certified, as a share of it, may be true."""
    max_claim: float = Field(gt=1)
    """No speedup above this is certified: a single one would carry every mean."""
    dead_zone: float = Field(ge=1)
    """A certified speedup below this earns what 1.00 earns."""
    num_buckets: int = Field(ge=1)
    """Time-ordered buckets of quads whose medians make the estimate (paper 2.4.4: 7)."""
    max_bucket_variance: float = Field(gt=0)
    """Above it a measurement is unstable (paper 2.4.4: 0.005). Under `certified` relative to the
    squared speedup, and no bound is lost; under `paper` absolute, and it earns 1.00."""
    confirm_above: float = Field(ge=1)
    """A certified speedup above this is measured again in fresh processes (paper 2.4.4: 3)."""
    confirm_below: float = Field(ge=1)
    """So is a gain below this: as small a one may be the luck of two processes. A loss as small is
    none."""
    confirm_above_record: float = Field(ge=1)
    """So is one above this many times the problem's record (paper 2.4.4: 2)."""
    confirm_within: float = Field(gt=0, lt=1)
    """Two measurements whose bounds lie further apart than this share contradict each other; under
    `paper`, whose estimates do (paper 2.4.4: 10 %)."""
    slow_factor: float = Field(gt=1)
    """Slower than the reference by this factor is not executable (paper 2.1: 1000)."""
    start_timeout_s: float = Field(gt=0)
    """To import and construct a module, and again, beside its limit, for its first call."""
    build_timeout_s: float = Field(gt=0)
    """Instead, of a source that names a compiler: to import, construct and run its first call, as
    long as something compiles. Seconds in which nothing does count against `start_timeout_s`."""
    call_timeout_s: float = Field(gt=0)
    """Floor of the limit on any later exchange with a worker."""
    memory_bytes: int = Field(gt=0)
    """Address space that a candidate may add to that of a fresh worker."""
    seed: int
    """Entropy of our own choices is drawn from the operating system, and so are the seeds of the
    weights that candidates are judged with; this one seeds the public weights, with which a
    reference is tried and timed."""

    unsafe: bool = False
    """Judge even where less stands around a worker than the minimum (`harness.layers`). The one key
    with a default: whoever sets it asks for other verdicts, of a fingerprint of their own."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        stages = self.correctness_stages
        if list(stages) != sorted(set(stages)):
            raise ValueError(f"correctness_stages must rise: {stages}")
        if self.max_claim < self.dead_zone:
            raise ValueError(f"max_claim {self.max_claim} is below dead_zone {self.dead_zone}")
        if self.max_quads < self.min_quads:
            raise ValueError(f"max_quads {self.max_quads} is below min_quads {self.min_quads}")
        if self.build_timeout_s < self.start_timeout_s:
            raise ValueError(
                f"build_timeout_s {self.build_timeout_s} is below start_timeout_s "
                f"{self.start_timeout_s}"
            )
        if (self.window_s is None) != (self.rule is Rule.CERTIFIED):
            raise ValueError(f"rule {self.rule} with window_s {self.window_s}")
        return self

    @property
    def id(self) -> str:
        """The fingerprint."""
        return content_id(HARNESS_VERSION, self.model_dump_json())

    def checks_only(self) -> EvalProtocol:
        """The same protocol without timing: of a success that nobody has timed."""
        return self.model_copy(update={"timing": False})
