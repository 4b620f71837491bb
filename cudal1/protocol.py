"""EvalProtocol: the rules by which candidates are judged. Its fingerprint is on every verdict.

The values live in params.yaml (section `protocol`); docs/protocol.md says what they mean. Verdicts
are compared only within one fingerprint and one kind of device.
"""

from __future__ import annotations

import functools
import json
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from cudal1.record import Record, content_id

HARNESS_VERSION = "29"
"""Part of every fingerprint; raised when a change of the code changes the meaning of a verdict."""
DECIDING = Path(__file__).with_name("deciding.json")
"""The record of the harness's constants and sources (`harness.deciding`)."""


class PrecisionClass(StrEnum):
    """The required exactness of an output; a looser class is reported apart, never mixed in."""

    STRICT = "strict"
    TF32 = "tf32"
    HALF = "half"


class Contract(StrEnum):
    """The duties of a candidate beyond right outputs.

    Under either contract, the properties that were seen of a correct candidate are facts on its
    verdict (`verdict.Properties`).
    """

    KERNELBENCH = "kernelbench"
    """KernelBench's duties. The constructor draws the reference's weights when it is given the
    reference's seed. An output is valid until the next call; inputs may be used up."""
    DROP_IN = "drop_in"
    """The duties of a replacement in any program. A candidate follows weights that are loaded by
    name at any time, gives each output memory of its own, and leaves its inputs alone."""


class Mode(StrEnum):
    """The mode of all modules: the reference, the candidate and the oracle."""

    CONSTRUCTED = "constructed"
    """The mode that constructors leave, as in KernelBench: training, unless a constructor sets
    another."""
    TRAIN = "train"
    EVAL = "eval"
    """Evaluation mode. A candidate may, for example, fold a batch norm into a convolution."""


class Rule(StrEnum):
    """The rule that ends timing and reads its result."""

    CERTIFIED = "certified"
    """Quads are timed until hardly more can be certified at `alpha`; the certified speedup is
    earned."""
    PAPER = "paper"
    """Pairs are timed for `window_s`; the median of the bucket means is earned (paper 2.4.4). It is
    an estimate: no probability of error stands behind it."""


class EvalProtocol(Record):
    """All settings that decide a verdict, apart from the device."""

    correctness_stages: tuple[int, ...] = Field(min_length=1)
    """Total numbers of inputs checked after each stage, rising. A candidate stops at its first
    failure."""
    contract: Contract
    """The candidate's duties beyond right outputs."""
    mode: Mode
    """The mode of reference and candidate."""
    precision: PrecisionClass
    """The precision class that counts as correct."""
    timing: bool
    """False: only correctness is decided (`checks_only`)."""
    rule: Rule
    """The rule that ends timing and reads its result. `paper` uses none of `min_quads`,
    `max_quads`, `alpha`, `certify_within`, `max_claim` and `dead_zone`."""
    window_s: float | None = Field(gt=0)
    """Seconds of wall time of one measurement under `paper` (paper 2.4.4: 1,200 to 1,800); else
    None."""
    burst_us: float = Field(gt=0)
    """Target duration of one timed burst of the reference, in µs."""
    max_burst_calls: int = Field(ge=1)
    """Maximum number of calls in one burst; bounds the memory of the input and output rings."""
    ring_bytes: int = Field(gt=0)
    """Maximum bytes of one ring; on a GPU, a share of its memory is another limit."""
    min_quads: int = Field(ge=7)
    """Number of ABBA quads before anything may be certified."""
    max_quads: int = Field(ge=7)
    alpha: float = Field(gt=0, lt=0.5)
    """Probability of a false certificate, per candidate."""
    give_up_alpha: float = Field(gt=0, lt=0.5)
    """Probability of giving up on a true speedup: an error costs a gain and never certifies a false
    one."""
    certify_within: float = Field(gt=0)
    """Timing goes on while the true speedup may exceed the certified one by more than this share of
    it."""
    max_claim: float = Field(gt=1)
    """Largest speedup that is certified; a single larger one would dominate every mean."""
    dead_zone: float = Field(ge=1)
    """A certified speedup below this earns what 1.00 earns."""
    num_buckets: int = Field(ge=1)
    """Time-ordered buckets of quads; the estimate is the median of their medians (paper 2.4.4:
    7)."""
    max_bucket_variance: float = Field(gt=0)
    """Above this variance a measurement is unstable (paper 2.4.4: 0.005). Under `certified` it is
    relative to the squared speedup, and no bound is lost. Under `paper` it is absolute, and an
    unstable measurement earns 1.00."""
    confirm_above: float = Field(ge=1)
    """A certified speedup above this is measured again in fresh processes (paper 2.4.4: 3)."""
    confirm_below: float = Field(ge=1)
    """A certified gain below this is measured again, too: the luck of two processes may be as
    large. A loss as small counts as none."""
    confirm_above_record: float = Field(ge=1)
    """A certified speedup above this many times the problem's record is measured again, too (paper
    2.4.4: 2)."""
    confirm_within: float = Field(gt=0, lt=1)
    """Two measurements contradict each other if their bounds lie further apart than this share.
    Under `paper` the estimates are compared (paper 2.4.4: 10 %)."""
    slow_factor: float = Field(gt=1)
    """A candidate slower than the reference by this factor is not executable (paper 2.1: 1000)."""
    start_timeout_s: float = Field(gt=0)
    """Seconds for importing and constructing a module; the first call gets as much beside its own
    limit."""
    build_timeout_s: float = Field(gt=0)
    """Seconds for importing, constructing and the first call of a source that names a compiler,
    while something compiles. Seconds without compiling count against `start_timeout_s`."""
    call_timeout_s: float = Field(gt=0)
    """Floor of the limit on any later exchange with a worker, in seconds."""
    memory_bytes: int = Field(gt=0)
    """Bytes of address space that a candidate may add to that of a fresh worker."""
    seed: int
    """Seed of the public weights, with which a reference is tried and timed. Our own choices, and
    the seeds of the weights that candidates are judged with, come from the operating system's
    entropy."""

    unsafe: bool = False
    """Judge even with fewer layers around a worker than the minimum (`harness.sandbox.layers`). It
    is the one key with a default: setting it changes verdicts and gives them their own
    fingerprint."""

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
        """The fingerprint: an id over the harness's version, its constants and this protocol."""
        return content_id(HARNESS_VERSION, _constants(), self.model_dump_json())

    def checks_only(self) -> EvalProtocol:
        """Return the protocol without timing; its successes have no measurement."""
        return self.model_copy(update={"timing": False})


@functools.cache
def _constants() -> str:
    """Return the constants outside of protocols that decide verdicts, as one text."""
    record = json.loads(DECIDING.read_text(encoding="utf-8"))
    return json.dumps(record["constants"], sort_keys=True)
