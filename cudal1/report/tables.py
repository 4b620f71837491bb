"""The paper's tables from our facts: speedups (4), policies by stage (5), devices (6), null test.

Counting is `cudal1.metrics`; tables without a model in the paper are in `tallies`.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

import polars as pl

from cudal1.metrics import MEANINGFUL_SPEEDUP, SpeedupSummary, excess_share, fast_p, summarize
from cudal1.problem import Split
from cudal1.protocol import EvalProtocol, Rule
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.table import Row, RowKind, Table, percent, share, times
from cudal1.verdict import Status

PAPER_ALL = ("250", "3.12×", "120×", "2.25×", "1.42×", "1.17×", "249 (99.6 %)", "226 (90 %)")
"""The paper's table 4, default baseline, all levels."""
LARGEST = 5
"""Problems that alone may carry a mean."""


def speedup_table(given: ReportInput) -> Table:
    """Like table 4: best certified speedup of each problem, by split and level."""
    thresholds = given.provenance.fast_p
    rows = [
        Row(cells=_speedup_cells(label, frame["certified"].to_list(), thresholds), kind=kind)
        for label, frame, kind in _groups(facts.best(given))
    ]
    null = facts.null_speedups(given)
    if rows and null:
        rows.append(Row(
            cells=_speedup_cells("Null test", null, thresholds), kind=RowKind.NULL_TEST
        ))  # fmt: skip
    if rows:
        blanks = ("–",) * (4 + len(thresholds))
        rows.append(Row(cells=("Paper", *PAPER_ALL, *blanks), kind=RowKind.PAPER))
    return Table(
        title="Speedup over the reference (as table 4)",
        caption=(
            "Best certified speedup of each problem, against the eager reference on "
            f"{given.provenance.device_kind}: {_meaning(given.provenance.protocol)}. A problem "
            "without success counts as 1× in mean, maximum and percentiles, as in the paper's "
            "tables 4 and 6; the last two columns count it as 0×, as in its table 5. The "
            "geometric mean is over successful problems only; a success and fast_p need a "
            f"correct candidate under either convention. Top {LARGEST}: the share of all that "
            "lies above 1× that so many problems carry; where it is large, the mean says little "
            "about the others. Null test: each reference judged as if "
            "it were a candidate. Paper: 250 KernelBench problems on an A100, whose times carry "
            "no bound; other problems and another device, so for orientation only."
        ),
        columns=(
            "Problems", "Count", "Mean", "Max", "75 %", "Median", "25 %", "Success",
            f"> {MEANINGFUL_SPEEDUP:g}×", "Geo. mean", *(f"fast_{p:g}" for p in thresholds),
            f"Top {LARGEST}", "Mean, 0×", "Median, 0×",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no problem was admitted.",
    )  # fmt: skip


def _meaning(protocol: EvalProtocol) -> str:
    if protocol.rule is Rule.PAPER:
        return "what the paper's rule reads, which certifies nothing"
    return (
        f"the largest claim whose lower confidence bound (alpha {protocol.alpha:g}) the "
        "measurement supports"
    )


def _groups(best: pl.DataFrame) -> list[tuple[str, pl.DataFrame, RowKind]]:
    """All problems, then each split, level, split and level, and suite; only what divides them."""
    if best.is_empty():
        return []
    groups = [("All", best, RowKind.TOTAL)]
    for keys in (["split"], ["level"], ["split", "level"], ["suite"]):
        if any(best[key].n_unique() == 1 for key in keys):
            continue
        parts = best.partition_by(keys, as_dict=True)
        # train before held-out
        for values in sorted(parts, key=lambda v: tuple(_order(value) for value in v)):
            label = ", ".join(_label(key, value) for key, value in zip(keys, values, strict=True))
            groups.append((label, parts[values], RowKind.PLAIN))
    return groups


def _order(value: object) -> tuple[bool, str]:
    return value == Split.HELDOUT.value, str(value)


def _label(key: str, value: object) -> str:
    match key:
        case "level":
            return f"level {value}"
        case "split":
            return "held out" if value == Split.HELDOUT.value else str(value)
        case _:
            return f"suite {value}"


def _speedup_cells(
    label: str, speedups: Sequence[float | None], thresholds: Sequence[float]
) -> tuple[str, ...]:
    as_one, as_zero = (summarize(speedups, failed_as=failed_as) for failed_as in (1.0, 0.0))
    count = as_one.num_problems
    is_telling = sum(value is not None and value > 1 for value in speedups) > LARGEST
    carried = excess_share(speedups, LARGEST) if is_telling else None
    return (
        label, f"{count:,}", times(as_one.mean), times(as_one.maximum),
        times(as_one.percentile_75), times(as_one.median), times(as_one.percentile_25),
        share(as_one.num_successful, count), share(as_one.num_meaningful, count),
        times(as_one.geometric_mean if as_one.num_successful else None),
        *(percent(fast_p(speedups, p)) for p in thresholds),
        "–" if carried is None else percent(carried), times(as_zero.mean), times(as_zero.median),
    )  # fmt: skip


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
    """Like table 5: how answers of the policy fare, stage by stage."""
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
        title="Policies, stage by stage (as table 5)",
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
    first = facts.verdicts(given).select("candidate_id", first="certified").drop_nulls()
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
