"""Defines ReportInput: everything the report is made of, as frames and a record of their origin.

`tasks.report` fills it from the ledger; nothing here knows that there is one. Each frame's columns
are written down below. Further columns are dropped, and a frame without rows is always welcome.
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

PROBLEMS = pl.Schema(
    {
        "problem_id": pl.String,
        "suite": pl.String,
        "level": pl.Int64,
        "number": pl.Int64,
        "name": pl.String,
        "split": pl.String,
        "source": pl.String,
        "admitted": pl.Boolean,
        "rejection": pl.String,
        "invariants": pl.List(pl.String),
    }
)
COMPLETIONS = pl.Schema(
    {
        "completion_id": pl.String,
        "stage": pl.String,
        "provider": pl.String,
        "problem_id": pl.String,
        "attempt": pl.Int64,
        "candidate_id": pl.String,
        "no_candidate_reason": pl.String,
        "num_prompt_tokens": pl.Int64,
        "num_completion_tokens": pl.Int64,
        "cost_usd": pl.Float64,
        "best_shown": pl.Float64,
        "is_copy": pl.Boolean,
    }
)
CANDIDATES = pl.Schema({"candidate_id": pl.String, "problem_id": pl.String, "source": pl.String})
VERDICTS = pl.Schema(
    {
        "candidate_id": pl.String,
        "problem_id": pl.String,
        "device_kind": pl.String,
        "protocol_id": pl.String,
        "status": pl.String,
        "precision": pl.String,
        "speedup": pl.Float64,
        "certified": pl.Float64,
        "num_quads": pl.Int64,
        "bucket_variance": pl.Float64,
        "is_stable": pl.Boolean,
        "is_confirmed": pl.Boolean,
        "reference_us": pl.Float64,
        "candidate_us": pl.Float64,
        "judge_s": pl.Float64,
        "compiling_s": pl.Float64,
        "over_baselines": pl.List(pl.Struct({"baseline": pl.String, "certified_over": pl.Float64})),
        **_PROPERTIES,
    }
)
FLAGS = pl.Schema(
    {
        "candidate_id": pl.String,
        "device_kind": pl.String,
        "protocol_id": pl.String,
        "kind": pl.String,
        "source": pl.String,
        "evidence": pl.String,
    }
)
NULL_TEST = pl.Schema(
    {
        "problem_id": pl.String,
        "status": pl.String,
        "precision": pl.String,
        "speedup": pl.Float64,
        "certified": pl.Float64,
        "num_quads": pl.Int64,
        "bucket_variance": pl.Float64,
        "is_stable": pl.Boolean,
        "is_confirmed": pl.Boolean,
        **_PROPERTIES,
    }
)
BASELINES = pl.Schema(
    {
        "problem_id": pl.String,
        "baseline": pl.String,
        "status": pl.String,
        "reason": pl.String,
        "speedup": pl.Float64,
        "at_most": pl.Float64,
    }
)
TRANSFERRED = pl.Schema(
    {
        "problem_id": pl.String,
        "candidate_id": pl.String,
        "device_kind": pl.String,
        "status": pl.String,
        "speedup": pl.Float64,
        "certified": pl.Float64,
        "is_null_test": pl.Boolean,
    }
)
SEARCHED = pl.Schema(
    {
        "stage": pl.String,
        "method": pl.String,
        "sampling": pl.String,
        "problem_id": pl.String,
        "num_asked": pl.Int64,
    }
)
BILLS = pl.Schema(
    {
        "provider": pl.String,
        "num_answers": pl.Int64,
        "num_tries": pl.Int64,
        "cost_usd": pl.Float64,
        "num_in_doubt": pl.Int64,
        "in_doubt_usd": pl.Float64,
    }
)
SECOND_OPINIONS = pl.Schema(
    {
        "candidate_id": pl.String,
        "trigger": pl.String,
        "is_cheat": pl.Boolean,
        "kind": pl.String,
        "ruling": pl.Boolean,
    }
)
DETAILS = pl.Schema(
    {
        "candidate_id": pl.String,
        "lower": pl.Float64,
        "upper": pl.Float64,
        "alpha": pl.Float64,
        "doubt": pl.String,
        "bucket_medians": pl.List(pl.Float64),
        "floor_us": pl.Float64,
        "num_inputs": pl.Int64,
        "max_relative_l2": pl.Float64,
        "second_opinion": pl.String,
        "judged_at": pl.String,
    }
)
ANCESTORS = pl.Schema(
    {
        "descendant_id": pl.String,
        "candidate_id": pl.String,
        "generation": pl.Int64,
        "certified": pl.Float64,
    }
)
TECHNIQUES = pl.Schema({"candidate_id": pl.String, "technique": pl.String})
SAMPLES = pl.Schema(
    {
        "candidate_id": pl.String,
        "session": pl.Int64,
        "quad": pl.Int64,
        "position": pl.Int64,
        "role": pl.String,
        "num_calls": pl.Int64,
        "burst_us": pl.Float64,
        "net_us": pl.Float64,
    }
)
STEPS = pl.Schema({"stage": pl.String, "step": pl.Int64, "name": pl.String, "value": pl.Float64})
RISES = pl.Schema(
    {"stage": pl.String, "problem_id": pl.String, "step": pl.Int64, "best_speedup": pl.Float64}
)


def _conforms(schema: pl.Schema) -> BeforeValidator:
    """Return a validator that gives a frame exactly these columns and types.

    Its error names the first missing column.
    """

    def conform(frame: pl.DataFrame) -> pl.DataFrame:
        missing = [name for name in schema.names() if name not in frame.columns]
        if missing:
            raise ValueError(f"no column {missing[0]} (it has {', '.join(frame.columns)})")
        # a query without rows types its columns freely
        return frame.select(schema.names()).cast(dict(schema.items()))

    checked: Callable[[pl.DataFrame], pl.DataFrame] = conform
    return BeforeValidator(checked)


class Provenance(Record):
    """The origin of the report's numbers."""

    title: str
    generated_at: str
    """UTC, ISO 8601; passed in, so that equal input makes equal bytes."""
    git_revision: str
    device_kind: str
    """The device that verdicts were made on; verdicts of other devices are in `transferred`."""
    device: Mapping[str, str] = {}
    """Known facts about the device, such as its name, driver and memory."""
    protocol: EvalProtocol
    """The protocol of the verdicts that are counted; other verdicts in the frame are ignored."""
    reviewer: str = "off"
    """The reviewer; `off`: there is none."""
    versions: Mapping[str, str] = {}
    """Versions of Python and the libraries that matter."""
    params: Mapping[str, str] = {}
    """params.yaml, flattened to dotted paths."""
    fast_p: tuple[float, ...] = Field(default=(1.0,), min_length=1)
    """Thresholds p of fast_p."""


class ReportInput(Record):
    """The input of `publish`. Texts in frames may be hostile; numbers are believed.

    An input equals itself alone, so that what is worked out from it can be cached.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    provenance: Provenance
    problems: Annotated[pl.DataFrame, _conforms(PROBLEMS)]
    """The problems of the suite, the rejected ones too (`admitted` false, `rejection` says why).
    `invariants` are the facts that hold for a problem's inputs in every draw (null: not
    examined)."""
    completions: Annotated[pl.DataFrame, _conforms(COMPLETIONS)]
    """Every answer of the stages' latest runs, without its text; not the `exhausted` ones. Answers
    of our own policies have the provider `policy`; their stage says which policy it was. Where the
    prompt showed exemplars: the score of the best one, and whether the answer copies one."""
    candidates: Annotated[pl.DataFrame, _conforms(CANDIDATES)]
    """Sources of the candidates that are shown (`cudal1.report.shown`)."""
    verdicts: Annotated[pl.DataFrame, _conforms(VERDICTS)]
    """One verdict for each candidate, device kind and protocol. A success also has its properties,
    and its speedup over each baseline that was judged so (the ledger's view `over_baselines`)."""
    flags: Annotated[pl.DataFrame, _conforms(FLAGS)]
    """Hack flags; `source` is `screen` for the advisory ones."""
    null_test: Annotated[pl.DataFrame, _conforms(NULL_TEST)]
    """Verdicts on references that were judged as if they were candidates (A/A)."""
    baselines: Annotated[pl.DataFrame, _conforms(BASELINES)]
    """Ways of running each reference, judged as candidates, on the report's device."""
    transferred: Annotated[pl.DataFrame, _conforms(TRANSFERRED)]
    """Winners judged anew, on this device or another, and the references of their problems."""
    searched: Annotated[pl.DataFrame, _conforms(SEARCHED)] = Field(
        default_factory=SEARCHED.to_frame
    )
    """Problems that each method of table 5 was given, and the most answers that it might ask
    for."""
    bills: Annotated[pl.DataFrame, _conforms(BILLS)] = Field(default_factory=BILLS.to_frame)
    """Charges of each provider that charges, all runs together. The number of answers counts for a
    provider that wrote no candidates, such as the reviewer."""
    second_opinions: Annotated[pl.DataFrame, _conforms(SECOND_OPINIONS)] = Field(
        default_factory=SECOND_OPINIONS.to_frame
    )
    """The reviewer's opinion on each candidate (null: nothing usable), and a person's later ruling.
    Without a trigger, the reviewer could not be asked."""
    samples: Annotated[pl.DataFrame, _conforms(SAMPLES)]
    """Timing samples of the candidates that are shown, of the report's protocol and device."""
    techniques: Annotated[pl.DataFrame, _conforms(TECHNIQUES)] = Field(
        default_factory=TECHNIQUES.to_frame
    )
    """Techniques of timed successes (`cudal1.program.technique`), a row for each technique."""
    details: Annotated[pl.DataFrame, _conforms(DETAILS)] = Field(default_factory=DETAILS.to_frame)
    """Further parts of the verdicts on the candidates that are shown, of the same protocol and
    device."""
    ancestors: Annotated[pl.DataFrame, _conforms(ANCESTORS)] = Field(
        default_factory=ANCESTORS.to_frame
    )
    """Exemplars in the prompts of the candidates that are shown. Generation 1 are their own
    prompts' exemplars, generation 2 those of the exemplars' prompts, and so on. A candidate stands
    once for each descendant."""
    steps: Annotated[pl.DataFrame, _conforms(STEPS)]
    """Numbers of each training step, in long form."""
    rises: Annotated[pl.DataFrame, _conforms(RISES)] = Field(default_factory=RISES.to_frame)
    """Steps that raised the best certified speedup of a problem, and the new speedup."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)
