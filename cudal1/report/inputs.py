"""ReportInput: everything the report is made of, as frames and one record of where they come from.

`tasks.report` fills it from the ledger; nothing here knows that there is one. Each frame's columns
are written down below; further columns are dropped, and a frame without rows is always welcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import polars as pl
from pydantic import BeforeValidator, ConfigDict, Field

from cudal1.protocol import EvalProtocol
from cudal1.record import Record
from cudal1.verdict import Properties

_PROPERTIES = dict.fromkeys(Properties.model_fields, pl.Boolean)

PROBLEMS = pl.Schema({
    "problem_id": pl.String, "suite": pl.String, "level": pl.Int64, "number": pl.Int64,
    "name": pl.String, "split": pl.String, "source": pl.String, "admitted": pl.Boolean,
    "rejection": pl.String, "invariants": pl.List(pl.String),
})  # fmt: skip
COMPLETIONS = pl.Schema({
    "completion_id": pl.String, "stage": pl.String, "provider": pl.String,
    "problem_id": pl.String, "attempt": pl.Int64, "candidate_id": pl.String,
    "no_candidate_reason": pl.String,
    "num_prompt_tokens": pl.Int64, "num_completion_tokens": pl.Int64, "cost_usd": pl.Float64,
})  # fmt: skip
CANDIDATES = pl.Schema({
    "candidate_id": pl.String, "problem_id": pl.String, "source": pl.String,
})  # fmt: skip
VERDICTS = pl.Schema({
    "candidate_id": pl.String, "problem_id": pl.String, "device_kind": pl.String,
    "protocol_id": pl.String, "status": pl.String, "precision": pl.String,
    "speedup": pl.Float64, "certified": pl.Float64, "num_quads": pl.Int64,
    "bucket_variance": pl.Float64, "is_stable": pl.Boolean, "is_confirmed": pl.Boolean,
    "reference_us": pl.Float64, "candidate_us": pl.Float64, "judge_s": pl.Float64,
    "compiling_s": pl.Float64,
    "over_baselines": pl.List(pl.Struct({"baseline": pl.String, "certified_over": pl.Float64})),
    **_PROPERTIES,
})  # fmt: skip
FLAGS = pl.Schema({
    "candidate_id": pl.String, "device_kind": pl.String, "protocol_id": pl.String,
    "kind": pl.String, "source": pl.String, "evidence": pl.String,
})  # fmt: skip
NULL_TEST = pl.Schema({
    "problem_id": pl.String, "status": pl.String, "precision": pl.String, "speedup": pl.Float64,
    "certified": pl.Float64, "num_quads": pl.Int64, "bucket_variance": pl.Float64,
    "is_stable": pl.Boolean, "is_confirmed": pl.Boolean, **_PROPERTIES,
})  # fmt: skip
BASELINES = pl.Schema({
    "problem_id": pl.String, "baseline": pl.String, "status": pl.String, "reason": pl.String,
    "speedup": pl.Float64, "at_most": pl.Float64,
})  # fmt: skip
TRANSFERRED = pl.Schema({
    "problem_id": pl.String, "candidate_id": pl.String, "device_kind": pl.String,
    "status": pl.String, "speedup": pl.Float64, "certified": pl.Float64,
    "is_null_test": pl.Boolean,
})  # fmt: skip
SEARCHED = pl.Schema({
    "stage": pl.String, "method": pl.String, "sampling": pl.String, "problem_id": pl.String,
    "num_asked": pl.Int64,
})  # fmt: skip
BILLS = pl.Schema({
    "provider": pl.String, "num_answers": pl.Int64, "num_tries": pl.Int64, "cost_usd": pl.Float64,
    "num_in_doubt": pl.Int64, "in_doubt_usd": pl.Float64,
})  # fmt: skip
SECOND_OPINIONS = pl.Schema({
    "candidate_id": pl.String, "trigger": pl.String, "is_cheat": pl.Boolean, "kind": pl.String,
    "ruling": pl.Boolean,
})  # fmt: skip
DETAILS = pl.Schema({
    "candidate_id": pl.String, "lower": pl.Float64, "upper": pl.Float64, "alpha": pl.Float64,
    "doubt": pl.String, "bucket_medians": pl.List(pl.Float64), "floor_us": pl.Float64,
    "num_inputs": pl.Int64, "max_relative_l2": pl.Float64, "second_opinion": pl.String,
    "judged_at": pl.String,
})  # fmt: skip
ANCESTORS = pl.Schema({
    "descendant_id": pl.String, "candidate_id": pl.String, "generation": pl.Int64,
    "certified": pl.Float64,
})  # fmt: skip
SAMPLES = pl.Schema({
    "candidate_id": pl.String, "session": pl.Int64, "quad": pl.Int64, "position": pl.Int64,
    "role": pl.String, "num_calls": pl.Int64, "burst_us": pl.Float64, "net_us": pl.Float64,
})  # fmt: skip
STEPS = pl.Schema({
    "stage": pl.String, "step": pl.Int64, "name": pl.String, "value": pl.Float64,
})  # fmt: skip
RISES = pl.Schema({
    "stage": pl.String, "problem_id": pl.String, "step": pl.Int64, "best_speedup": pl.Float64,
})  # fmt: skip


def _conforms(schema: pl.Schema) -> BeforeValidator:
    """A frame with exactly these columns and types; the message names the first that is missing."""

    def conform(frame: pl.DataFrame) -> pl.DataFrame:
        missing = [name for name in schema.names() if name not in frame.columns]
        if missing:
            raise ValueError(f"no column {missing[0]} (it has {', '.join(frame.columns)})")
        # a query without rows types its columns freely
        return frame.select(schema.names()).cast(dict(schema.items()))

    checked: Callable[[pl.DataFrame], pl.DataFrame] = conform
    return BeforeValidator(checked)


class Provenance(Record):
    """Where the numbers come from."""

    title: str
    generated_at: str
    """UTC, ISO 8601; passed in, so that equal input makes equal bytes."""
    git_revision: str
    device_kind: str
    """The device that verdicts were made on; those of others are left to `transferred`."""
    device: Mapping[str, str] = {}
    """What is known about it, such as its name, driver and memory."""
    protocol: EvalProtocol
    """Whose verdicts are counted; others in the frame are ignored."""
    judge: str = "off"
    """The adversarial judge; `off`: there is none."""
    versions: Mapping[str, str] = {}
    """Of Python and the libraries that matter."""
    params: Mapping[str, str] = {}
    """params.yaml, flattened to dotted paths."""
    fast_p: tuple[float, ...] = Field(default=(1.0,), min_length=1)
    """Thresholds p of fast_p."""


class ReportInput(Record):
    """What `publish` needs. Texts in frames may be hostile; numbers are believed.

    An input equals itself alone, so that what is worked out from it can be kept.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    provenance: Provenance
    problems: Annotated[pl.DataFrame, _conforms(PROBLEMS)]
    """The suite, with the rejected ones (`admitted` false, `rejection` says why), and what holds of
    each one's inputs in every draw (null: nobody has looked)."""
    completions: Annotated[pl.DataFrame, _conforms(COMPLETIONS)]
    """Every answer of the stages' latest runs, without its text; not the `exhausted` ones. Answers
    of our own policies have the provider `policy`, and their stage says which one."""
    candidates: Annotated[pl.DataFrame, _conforms(CANDIDATES)]
    """Sources of those that are shown (`cudal1.report.shown`)."""
    verdicts: Annotated[pl.DataFrame, _conforms(VERDICTS)]
    """One for each candidate, device kind and protocol; of a success, also what it has over each
    baseline that was judged so (the ledger's view `over_baselines`), and its properties."""
    flags: Annotated[pl.DataFrame, _conforms(FLAGS)]
    """Hack flags; `source` is `screen` for the advisory ones."""
    null_test: Annotated[pl.DataFrame, _conforms(NULL_TEST)]
    """Each reference judged as if it were a candidate (A/A)."""
    baselines: Annotated[pl.DataFrame, _conforms(BASELINES)]
    """Ways of running each reference, judged as candidates, on the report's device."""
    transferred: Annotated[pl.DataFrame, _conforms(TRANSFERRED)]
    """Winners judged anew, on this device or another, and the references of their problems."""
    searched: Annotated[pl.DataFrame, _conforms(SEARCHED)] = Field(
        default_factory=SEARCHED.to_frame
    )
    """Problems that each method of table 5 was given, and how many answers it might ask for."""
    bills: Annotated[pl.DataFrame, _conforms(BILLS)] = Field(default_factory=BILLS.to_frame)
    """What each provider that charges has charged, all runs together; how many answers, of one that
    wrote no candidates, such as the adversarial judge."""
    second_opinions: Annotated[pl.DataFrame, _conforms(SECOND_OPINIONS)] = Field(
        default_factory=SECOND_OPINIONS.to_frame
    )
    """What the adversarial judge said of whom (null: nothing usable), and a person after it; where
    there is no trigger, it could not be asked."""
    samples: Annotated[pl.DataFrame, _conforms(SAMPLES)]
    """Timing samples of those that are shown, of the report's protocol and device."""
    details: Annotated[pl.DataFrame, _conforms(DETAILS)] = Field(default_factory=DETAILS.to_frame)
    """What the verdicts on those that are shown say further, of the same protocol and device."""
    ancestors: Annotated[pl.DataFrame, _conforms(ANCESTORS)] = Field(
        default_factory=ANCESTORS.to_frame
    )
    """Exemplars that the prompts of those that are shown held (generation 1), those that the
    exemplars' own prompts held (2), and so on; each candidate once a descendant."""
    steps: Annotated[pl.DataFrame, _conforms(STEPS)]
    """Numbers of each training step, in long form."""
    rises: Annotated[pl.DataFrame, _conforms(RISES)] = Field(default_factory=RISES.to_frame)
    """Steps that raised the best certified speedup of a problem, and to what."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)
