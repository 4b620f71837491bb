"""Tables of the policies by stage, and of the null test.

The paper's table 4 is in `speedups` and `baselines`, table 5 in `methods`, table 6 in `devices`.
Counting is `cudal1.selection.metrics`; tables without a model in the paper are in `tallies`.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from statistics import fmean, median

import polars as pl

from cudal1.problem import Split
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent, share, times
from cudal1.report.tables.cells import null_note
from cudal1.report.tables.table import Row, RowKind, Table
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP, summarize
from cudal1.verdict import Status


def null_table(given: ReportInput) -> Table:
    """Return the A/A test: what the harness says about two copies of the same code."""
    null = facts.null_speedups(given)
    certified = [value for value in null if value is not None]
    estimates = given.null_test["speedup"].drop_nulls().to_list()
    stable: list[bool] = given.null_test["is_stable"].drop_nulls().to_list()
    rows: list[Row] = []
    if null:
        above = sum(value > MEANINGFUL_SPEEDUP for value in certified)
        rows.append(
            Row(
                kind=RowKind.NULL_TEST,
                cells=(
                    "reference as candidate",
                    f"{len(null):,}",
                    share(len(certified), len(null)),
                    times(max(certified, default=None)),
                    f"{above:,}" if above else "none",
                    *(f"{of(estimates):.3f}×" if estimates else "–" for of in (min, median, max)),
                    share(stable.count(False), len(stable)),
                ),
            )
        )
    return Table(
        title="Null test",
        caption=(
            "Each reference is judged as if it were a candidate, so every true speedup is 1. "
            f"What is certified above {MEANINGFUL_SPEEDUP:g}× here is the harness's own error; "
            "estimates show its noise before the bound is taken. Unstable: by the paper's rule "
            "(2.4.4), which the table of reliability explains."
        ),
        columns=(
            "Judged",
            "Count",
            "Correct",
            "Max certified",
            f"> {MEANINGFUL_SPEEDUP:g}×",
            "Min estimate",
            "Median estimate",
            "Max estimate",
            "Unstable",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: the null test has not been run.",
    )


def policy_table(given: ReportInput) -> Table:
    """Return the results of the policy's answers, stage by stage."""
    answers = facts.answers(given).filter(pl.col("provider") == facts.POLICY)
    rows: list[Row] = []
    for stage in facts.stages(answers):
        of_stage = answers.filter(pl.col("stage") == stage)
        rows.append(_policy_row(facts.policy_label(stage), of_stage))
    if rows and not given.null_test.is_empty():
        rows.append(_policy_row("Null test", _null_answers(given), RowKind.NULL_TEST))
    return Table(
        title="Policies, stage by stage",
        caption=(
            "Answers sampled from the policy and judged. Held out: the policy that the stage "
            "leaves, on problems never trained on; success with its 95 % interval (Wilson); "
            "reward is the certified speedup, 0 for a failure; best of k takes each problem's "
            "best answer, a problem without success as 0× (the convention of the paper's table "
            "5) or as 1× (that of its tables 4 and 6), as the column says. Training "
            "problems: the answers that the stage learned from, so of the policy "
            "that a self-supervised round started with, and of the moving policy, shown "
            "exemplars, in reinforcement learning: they tell how training went and are not "
            "comparable between stages; self-supervised rounds ignore speed, so there is no "
            f"reward. {null_note(given)}"
        ),
        columns=(
            "Policy",
            "Held-out answers",
            "Held-out success",
            "Held-out reward",
            "Best of k, mean, 0×",
            "Best of k, mean, 1×",
            f"Problems > {MEANINGFUL_SPEEDUP:g}×",
            "Training answers",
            "Training success",
            "Training reward",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no answer was sampled from a policy.",
    )


def _policy_row(label: str, answers: pl.DataFrame, kind: RowKind = RowKind.PLAIN) -> Row:
    held_out = answers.filter(pl.col("split") == Split.HELDOUT.value)
    trained = answers.filter(pl.col("split") == Split.TRAIN.value)
    return Row(
        cells=(
            label,
            *_answer_cells(held_out),
            *_best_of(held_out),
            *_answer_cells(trained, interval=False),
        ),
        kind=kind,
    )


def _null_answers(given: ReportInput) -> pl.DataFrame:
    """Return references that were judged as candidates, as if they were a policy's answers."""
    splits = given.problems.select("problem_id", "split").unique("problem_id", keep="first")
    is_correct = pl.col("status") == Status.CORRECT.value
    return given.null_test.join(splits, on="problem_id").with_columns(
        outcome="status", reward=pl.when(is_correct).then("certified").otherwise(0.0)
    )


def _answer_cells(answers: pl.DataFrame, *, interval: bool = True) -> tuple[str, str, str]:
    count = answers.height
    if not count:
        return "–", "–", "–"
    hits = answers.filter(pl.col("outcome") == Status.CORRECT.value).height
    low, high = facts.wilson(hits, count)
    shown = percent(hits / count)
    if interval:
        shown += f" [{low * 100:.0f}–{high * 100:.0f}]"
    rewards = answers["reward"]
    # where some successes were not timed, a mean over the others would mislead
    return f"{count:,}", shown, "–" if rewards.null_count() else f"{fmean(rewards.to_list()):.3f}"


def _best_of(answers: pl.DataFrame) -> tuple[str, str, str]:
    tops = answers.group_by("problem_id").agg(pl.col("reward").max())["reward"].drop_nulls()
    if tops.is_empty():
        return "–", "–", "–"
    speedups = [value if value > 0 else None for value in tops.to_list()]
    as_zero, as_one = (summarize(speedups, failed_as=failed_as) for failed_as in (0.0, 1.0))
    return (
        times(as_zero.mean),
        times(as_one.mean),
        share(as_zero.num_meaningful, as_zero.num_problems),
    )
