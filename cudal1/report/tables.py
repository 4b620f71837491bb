"""The paper's tables from our facts: policies by stage, devices (6), and the null test.

Its table 4 is in `speedups`, table 5 in `methods`. Counting is `cudal1.metrics`; tables without a
model in the paper are in `tallies`.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

import polars as pl

from cudal1.metrics import MEANINGFUL_SPEEDUP, SpeedupSummary, summarize
from cudal1.problem import Split
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.table import Row, RowKind, Table, percent, share, times
from cudal1.verdict import Status


def null_table(given: ReportInput) -> Table:
    """The A/A test: what the harness says about two copies of the same code."""
    null = facts.null_speedups(given)
    certified = [value for value in null if value is not None]
    estimates = given.null_test["speedup"].drop_nulls().to_list()
    rows: list[Row] = []
    if null:
        above = sum(value > MEANINGFUL_SPEEDUP for value in certified)
        rows.append(Row(kind=RowKind.NULL_TEST, cells=(
            "reference as candidate", f"{len(null):,}", share(len(certified), len(null)),
            times(max(certified, default=None)), f"{above:,}" if above else "none",
            *(f"{of(estimates):.3f}×" if estimates else "–" for of in (min, median, max)),
        )))  # fmt: skip
    return Table(
        title="Null test",
        caption=(
            "Each reference is judged as if it were a candidate, so every true speedup is 1. "
            f"What is certified above {MEANINGFUL_SPEEDUP:g}× here is the harness's own error; "
            "estimates show its noise before the bound is taken."
        ),
        columns=(
            "Judged", "Count", "Correct", "Max certified", f"> {MEANINGFUL_SPEEDUP:g}×",
            "Min estimate", "Median estimate", "Max estimate",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: the null test has not been run.",
    )  # fmt: skip


def policy_table(given: ReportInput) -> Table:
    """How answers of the policy fare, stage by stage."""
    answers = facts.answers(given).filter(pl.col("provider") == facts.POLICY)
    rows: list[Row] = []
    for stage in facts.stages(answers):
        of_stage = answers.filter(pl.col("stage") == stage)
        held_out = of_stage.filter(pl.col("split") == Split.HELDOUT.value)
        trained = of_stage.filter(pl.col("split") == Split.TRAIN.value)
        rows.append(Row(cells=(
            facts.policy_label(stage), *_answer_cells(held_out), *_best_of(held_out),
            *_answer_cells(trained, interval=False),
        )))  # fmt: skip
    return Table(
        title="Policies, stage by stage",
        caption=(
            "Answers sampled from the policy and judged. Held out: the policy that the stage "
            "leaves, on problems never trained on; success with its 95 % interval (Wilson); "
            "reward is the certified speedup, 0 for a failure; best of k takes each problem's "
            "best answer, a problem without success as 0×, the convention of the paper's table "
            "5. Training problems: the answers that the stage learned from, so of the policy "
            "that a self-supervised round started with, and of the moving policy, shown "
            "exemplars, in reinforcement learning: they tell how training went and are not "
            "comparable between stages; self-supervised rounds ignore speed, so there is no reward."
        ),
        columns=(
            "Policy", "Held-out answers", "Held-out success", "Held-out reward", "Best of k, mean",
            f"Problems > {MEANINGFUL_SPEEDUP:g}×", "Training answers", "Training success",
            "Training reward",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no answer was sampled from a policy.",
    )  # fmt: skip


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


def _best_of(answers: pl.DataFrame) -> tuple[str, str]:
    tops = answers.group_by("problem_id").agg(pl.col("reward").max())["reward"].drop_nulls()
    if tops.is_empty():
        return "–", "–"
    speedups = [value if value > 0 else None for value in tops.to_list()]
    row = summarize(speedups, failed_as=0.0)
    return times(row.mean), share(row.num_meaningful, row.num_problems)


def device_table(given: ReportInput) -> Table:
    """Like table 6: each problem's winner, measured anew on every device there was."""
    chosen = facts.verdicts(given).filter(pl.col("status") == Status.CORRECT.value)
    first = chosen.select("candidate_id", first="certified").drop_nulls()
    # the winner of the first measurement, not of the second: the best of several is lucky again
    again = (
        given.transferred.join(first, on="candidate_id", how="inner")
        .sort("first", "candidate_id", descending=[True, False])
        .unique(["device_kind", "problem_id"], keep="first", maintain_order=True)
    )
    rows: list[Row] = []
    for (device,), part in sorted(again.partition_by("device_kind", as_dict=True).items()):
        speedups = [
            row["certified"] if row["status"] == Status.CORRECT.value else None
            for row in part.to_dicts()
        ]
        row = summarize(speedups, failed_as=1.0)
        rows.append(Row(cells=(
            str(device), f"{row.num_problems:,}", times(fmean(part["first"].to_list())),
            times(row.mean), times(row.maximum), times(row.percentile_75), times(row.median),
            times(row.percentile_25), share(row.num_successful, row.num_problems),
            share(row.num_meaningful, row.num_problems),
        )))  # fmt: skip
    only = " One device so far, so this row is a repetition." if len(rows) == 1 else ""
    return Table(
        title="Winners measured again, by device (as table 6)",
        caption=(
            f"The best candidate of each problem on {given.provenance.device_kind}, judged anew "
            "there and elsewhere; a winner that fails counts as 1×, as in the paper's table 6. "
            "The column “First mean” is what the same winners had when they were chosen: the "
            f"difference on the same device is the luck of winning.{only}"
        ),
        columns=(
            "Device", "Winners", "First mean", "Mean", "Max", "75 %", "Median", "25 %", "Success",
            f"> {MEANINGFUL_SPEEDUP:g}×",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no winner was measured again.",
    )  # fmt: skip


def across_devices(by_device: Mapping[str, Sequence[float | None]], num_candidates: int) -> Table:
    """Like table 6: a column a device, of the same candidates for the same problems.

    Args:
        by_device: of each, the best certified speedup of each problem, None where no candidate
            succeeded.
        num_candidates: that were judged on all of them.
    """
    count = max((len(speedups) for speedups in by_device.values()), default=0)
    summaries = [summarize(speedups, failed_as=1.0) for speedups in by_device.values() if speedups]
    named: dict[str, Callable[[SpeedupSummary], str]] = {
        "Mean": lambda row: times(row.mean), "Max": lambda row: times(row.maximum),
        "75 %": lambda row: times(row.percentile_75), "Median": lambda row: times(row.median),
        "25 %": lambda row: times(row.percentile_25),
        "Success": lambda row: share(row.num_successful, row.num_problems),
        f"> {MEANINGFUL_SPEEDUP:g}×": lambda row: share(row.num_meaningful, row.num_problems),
    }  # fmt: skip
    return Table(
        title="Speedup by device (as table 6)",
        caption=(
            f"Best certified speedup of each of {count:,} problems, over the {num_candidates:,} "
            "candidates that have a verdict on every device; a problem without success counts as "
            "1×, as in the paper's table 6."
        ),
        columns=("Speedup", *by_device),
        rows=tuple(
            Row(cells=(name, *map(cell, summaries))) for name, cell in named.items() if summaries
        ),
        nothing_yet="Nothing yet: no candidate has a verdict on every device.",
    )  # fmt: skip
