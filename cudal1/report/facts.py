"""Facts that tables and figures share: answers with their outcome, the best of each problem.

This module decides, once, what a number means. `tables`, `figures` and the exhibits of `gallery`
and `problems` decide how it looks. What every table asks for is cached for one input.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from cudal1.baseline import Baseline
from cudal1.protocol import EvalProtocol, Rule
from cudal1.report.inputs import ReportInput
from cudal1.verdict import Properties, Status

NO_SOURCE = "no_source"
"""Outcome of an answer in which no candidate was found."""
NOT_JUDGED = "not_judged"
"""Outcome of a candidate that has no verdict of this protocol and device, timed or not."""
OUTCOMES = (*(status.value for status in reversed(Status)), NO_SOURCE, NOT_JUDGED)
"""Outcomes that an answer may have, best first."""
POLICY = "policy"
"""The provider of our own policies' answers."""

SEARCH = "search@"
"""Prefix of the stages that ask frozen weights by some method."""

_STAGES = ("policy", "generate", "filter", "sft", "selfsup", "rl", "ablation", "search")


@lru_cache(maxsize=1)
def verdicts(given: ReportInput) -> pl.DataFrame:
    """Return the verdicts under the report's protocol, on its device."""
    where = given.provenance
    return given.verdicts.filter(
        pl.col("protocol_id") == where.protocol.id, pl.col("device_kind") == where.device_kind
    ).sort("problem_id", "candidate_id")


@lru_cache(maxsize=1)
def answers(given: ReportInput) -> pl.DataFrame:
    """Return every answer with its problem, author, outcome and reward, in the stages' order.

    `reward` is the certified speedup of a successful candidate, 0 for everything else (paper
    2.4.4), and null for a success that was never timed.
    """
    judged = timed_or_checked(given).select("candidate_id", "status", "certified")
    about = given.problems.select("problem_id", "suite", "level", "split").unique(
        "problem_id", keep="first", maintain_order=True
    )  # two problems of a suite that are the same to the letter are one
    joined = given.completions.join(judged, on="candidate_id", how="left").join(
        about, on="problem_id", how="inner"
    )
    outcome = (
        pl.when(pl.col("candidate_id").is_null())
        .then(pl.lit(NO_SOURCE))
        .otherwise(pl.col("status").fill_null(NOT_JUDGED))
    )
    is_ours = (pl.col("provider") == POLICY) | pl.col("stage").str.starts_with(SEARCH)
    author = pl.when(is_ours).then(pl.col("label")).otherwise(pl.col("provider"))
    reward = pl.when(outcome == Status.CORRECT.value).then(pl.col("certified")).otherwise(0.0)
    return (
        joined.join(_labels(joined["stage"]), on="stage", how="left")
        .with_columns(outcome=outcome, author=author, reward=reward)
        .drop("label")
        .sort("stage_rank", "stage", "author", "problem_id", "completion_id")
    )


def _labels(stages: pl.Series) -> pl.DataFrame:
    """Return the label of each stage's policy, and the stage's rank in the run."""
    names: list[str] = stages.unique().to_list()
    return pl.DataFrame(
        {
            "stage": names,
            "label": [policy_label(name) for name in names],
            "stage_rank": [_stage_rank(name) for name in names],
        },
        schema={"stage": pl.String, "label": pl.String, "stage_rank": pl.Int64},
    )


@lru_cache(maxsize=1)
def authors(given: ReportInput) -> pl.DataFrame:
    """Return the authors of the answers that held each candidate, in the stages' order.

    The columns are `candidate_id` and `authors`.
    """
    return (
        answers(given)
        .filter(pl.col("candidate_id").is_not_null())
        .group_by("candidate_id")
        .agg(pl.col("author").unique(maintain_order=True).alias("authors"))
    )


def timed_or_checked(given: ReportInput) -> pl.DataFrame:
    """Return each candidate's verdict; after the checks alone, its speedup is null."""
    timed, where = verdicts(given), given.provenance
    checked = given.verdicts.filter(
        pl.col("protocol_id") == where.protocol.checks_only().id,
        pl.col("device_kind") == where.device_kind,
    ).join(timed, on="candidate_id", how="anti")
    return pl.concat([timed, checked])


@lru_cache(maxsize=1)
def best(given: ReportInput) -> pl.DataFrame:
    """Return each admitted problem with its best certified speedup and candidate, or nulls.

    Successes that were never timed do not count. Equal speedups go to the smaller candidate id.
    """
    winners = (
        verdicts(given)
        .filter(pl.col("status") == Status.CORRECT.value, pl.col("certified").is_not_null())
        .sort(["problem_id", "certified", "candidate_id"], descending=[False, True, False])
        .unique("problem_id", keep="first", maintain_order=True)
        .drop("device_kind", "protocol_id", "status", "judge_s", "compiling_s")
    )
    return (
        given.problems.filter(pl.col("admitted"))
        .drop("admitted", "rejection")
        .join(winners, on="problem_id", how="left")
        .join(authors(given), on="candidate_id", how="left")
        .sort("suite", "level", "number", "problem_id")
    )


def measured_again(given: ReportInput) -> pl.DataFrame:
    """Return rows of `best` with the second measurement of that candidate on the report's device.

    The best of many measurements is partly luck, which a second one leaves behind. `is_again` says
    whether there is a second one. `again` is what it certified, and null where it found the
    candidate incorrect.
    """
    is_here = pl.col("device_kind") == given.provenance.device_kind
    is_correct = pl.col("status") == Status.CORRECT.value
    seconds = (
        given.transferred.filter(is_here, ~pl.col("is_null_test"))
        .unique("candidate_id", keep="first", maintain_order=True)
        .select("candidate_id", is_again=True, again=pl.when(is_correct).then("certified"))
    )
    return (
        best(given)
        .join(seconds, on="candidate_id", how="left", maintain_order="left")
        .with_columns(pl.col("is_again").fill_null(value=False))
    )


def best_over(given: ReportInput, baseline: Baseline) -> pl.DataFrame:
    """Return rows of `best` that the baseline can run, with `over`: the best speedup over it."""
    runs = given.baselines.filter(
        pl.col("baseline") == baseline.value,
        pl.col("status") == Status.CORRECT.value,
        pl.col("at_most").is_not_null(),
    )
    is_this = pl.element().struct.field("baseline") == baseline.value
    over = pl.element().filter(is_this).struct.field("certified_over")
    return (
        best(given)
        .filter(pl.col("problem_id").is_in(runs["problem_id"].implode()))
        .with_columns(over=pl.col("over_baselines").list.eval(over).list.first())
    )


def seen(row: Mapping[str, Any]) -> Properties:
    """Return the properties of a candidate, from a row with their columns."""
    return Properties.model_validate({name: row[name] for name in Properties.model_fields})


def spread(protocol: EvalProtocol) -> pl.Expr:
    """Return the spread of a measurement's buckets, on the scale of the protocol's gate.

    The spread is their standard deviation: divided by the speedup under `certified`, undivided
    under `paper`.
    """
    deviation = pl.col("bucket_variance").sqrt()
    return deviation if protocol.rule is Rule.PAPER else deviation / pl.col("speedup")


def null_speedups(
    given: ReportInput, problems: Collection[str] | None = None
) -> list[float | None]:
    """Return what the null test certified for each reference; None for one that was incorrect.

    Args:
        given: holds the null test.
        problems: ids of the problems that count; all by default.
    """
    null = given.null_test.sort("problem_id")
    if problems is not None:
        null = null.filter(pl.col("problem_id").is_in(list(problems)))
    return [
        row["certified"] if row["status"] == Status.CORRECT.value else None
        for row in null.to_dicts()
    ]


def policy_label(stage: str) -> str:
    """Return the label of the policy that a stage leaves: `base`, `sft`, `selfsup r1`, `rl`.

    A method that trains no policy is called after its stage, too: `search evolve-bucket`.
    """
    return "base" if stage == "policy" else stage.replace("@", " ")


def stages(frame: pl.DataFrame) -> list[str]:
    """Return the stages in a frame, in the order in which they run."""
    return sorted(frame["stage"].unique().to_list(), key=lambda name: (_stage_rank(name), name))


def problem_key(row: dict[str, object]) -> str:
    """Return `suite/L2/07_name`, for people, from a row with those columns."""
    number = row["number"]
    assert isinstance(number, int)
    return f"{row['suite']}/L{row['level']}/{number:02d}_{row['name']}"


def wilson(num_hits: int, num_tries: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson's score interval); 0 to 1 without any try."""
    if num_tries == 0:
        return 0.0, 1.0
    z = 1.96
    share, spread = num_hits / num_tries, z * z / num_tries
    middle = (share + spread / 2) / (1 + spread)
    half = (
        z
        / (1 + spread)
        * math.sqrt(share * (1 - share) / num_tries + z * z / (4 * num_tries * num_tries))
    )
    return max(0.0, middle - half), min(1.0, middle + half)


def _stage_rank(stage: str) -> int:
    name = stage.split("@")[0]
    return _STAGES.index(name) if name in _STAGES else len(_STAGES)
