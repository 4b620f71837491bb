"""The few numbers that come first: on the page, in the summary, and for `dvc metrics show`."""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from cudal1.problem import Split
from cudal1.record import Record
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent, times
from cudal1.report.policies import Policy, best_policy, examined
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP, fast_p, summarize
from cudal1.verdict import Status


class Headline(Record):
    """One number with its name."""

    label: str
    value: str
    note: str


def numbers(given: ReportInput) -> dict[str, float | int]:
    """Return the headline numbers by name; a number that does not exist yet is absent."""
    speedups = facts.best(given)["certified"].to_list()
    found: dict[str, float | int] = {"num_problems": len(speedups)}
    if speedups:
        row = summarize(speedups, failed_as=1.0)
        found |= {
            "num_successful": row.num_successful,
            "num_meaningful": row.num_meaningful,
            "mean_speedup_failed_as_1": row.mean,
            "max_speedup": row.maximum,
            "median_speedup_failed_as_1": row.median,
            "mean_speedup_failed_as_0": summarize(speedups, failed_as=0.0).mean,
            "geometric_mean_speedup": row.geometric_mean,
            "fast_1": fast_p(speedups, 1.0),
        }
        found |= _again_numbers(given)
    null = facts.null_speedups(given)
    certified = [value for value in null if value is not None]
    found["num_null_tests"] = len(null)
    if certified:
        found["max_null_certified"] = max(certified)
        found["num_null_above_meaningful"] = sum(v > MEANINGFUL_SPEEDUP for v in certified)
        found["num_null_not_correct"] = len(null) - len(certified)
    judged = facts.verdicts(given)
    found["num_verdicts"] = judged.height
    found["num_hacked"] = judged.filter(pl.col("status") == Status.HACKED.value).height
    return found | _policy_numbers(given)


def _again_numbers(given: ReportInput) -> dict[str, float | int]:
    """Return the second measurements' numbers; a problem without one counts as failed."""
    second = facts.measured_again(given)
    count = int(second["is_again"].sum())
    if not count:
        return {"num_again": 0}
    certified = second["again"].to_list()
    row = summarize(certified, failed_as=1.0)
    return {
        "num_again": count,
        "num_successful_again": row.num_successful,
        "num_meaningful_again": row.num_meaningful,
        "mean_again_failed_as_1": row.mean,
        "mean_again_failed_as_0": summarize(certified, failed_as=0.0).mean,
    }


def _policy_numbers(given: ReportInput) -> dict[str, float]:
    answers = facts.answers(given).filter(
        pl.col("provider") == facts.POLICY, pl.col("split") == Split.HELDOUT.value
    )
    found: dict[str, float] = {}
    for stage in facts.stages(answers):
        part = answers.filter(pl.col("stage") == stage)
        hits = part.filter(pl.col("outcome") == Status.CORRECT.value).height
        name = facts.policy_label(stage).replace(" ", "_")
        found[f"heldout_success_{name}"] = hits / part.height
        rewards = part["reward"].drop_nulls().to_list()
        if rewards:
            found[f"heldout_reward_{name}"] = math.fsum(rewards) / len(rewards)
    return found


def headlines(given: ReportInput) -> list[Headline]:
    """Return the numbers that a reader wants first."""
    found = numbers(given)
    tiles: list[Headline] = []
    if found["num_problems"]:
        tiles += _speedup_headlines(found, given.provenance.device_kind)
    tiles.append(_null_headline(found))
    tiles.append(
        Headline(
            label="Verdicts",
            value=f"{found['num_verdicts']:,}",
            note="on candidates, of which "
            f"{found['num_hacked'] or 'none'} cheated, as far as is known",
        )
    )
    policies, best = examined(given), best_policy(given)
    if best is not None:
        tiles.append(_policy_headline(policies, best))
    return tiles


def _speedup_headlines(found: dict[str, float | int], device: str) -> list[Headline]:
    """Return the mean and the number of gains, from second measurements alone."""
    mean, faster = "Mean speedup", f"Faster than {MEANINGFUL_SPEEDUP:g}×"
    count, winners, again = found["num_problems"], found["num_successful"], found["num_again"]
    if not winners:
        nothing = "no problem has a correct candidate"
        return [Headline(label=label, value="–", note=nothing) for label in (mean, faster)]
    had = times(found["mean_speedup_failed_as_1"])
    were = f"{found['num_meaningful']:,} of {count:,}"
    if not again:
        none = f"stage transfer measured none of {winners:,} winners again on {device}"
        first = _chosen(by_luck=True)
        return [
            Headline(label=mean, value="–", note=f"{none}; {first}: {had}"),
            Headline(label=faster, value="–", note=f"{none}; {first}: {were}"),
        ]
    lost = found["mean_speedup_failed_as_1"] - found["mean_again_failed_as_1"]
    return [
        Headline(
            label=mean,
            value=times(found["mean_again_failed_as_1"]),
            note=f"{again:,} of {winners:,} winners measured again, the rest of {count:,} "
            f"problems as 1×; as 0×: {times(found['mean_again_failed_as_0'])}; "
            f"{_chosen(by_luck=lost > 0)}: {had}",
        ),
        Headline(
            label=faster,
            value=f"{found['num_meaningful_again']:,} of {count:,}",
            note=f"problems, measured again; {winners:,} have a correct candidate; "
            f"{_chosen(by_luck=found['num_meaningful'] > found['num_meaningful_again'])}: {were}",
        ),
    ]


def _chosen(*, by_luck: bool) -> str:
    """Return the words before a number of the choice, which luck may have raised."""
    return f"when chosen{', partly by luck' if by_luck else ''}"


def _null_headline(found: dict[str, float | int]) -> Headline:
    label = "Null test"
    if not found["num_null_tests"]:
        return Headline(label=label, value="–", note="nothing yet: it has not been run")
    if "max_null_certified" not in found:
        return Headline(label=label, value="failed", note="no reference was judged correct")
    above, wrong = found["num_null_above_meaningful"], found["num_null_not_correct"]
    note = (
        f"highest certified of {found['num_null_tests']:,} references judged as candidates; "
        f"{above or 'none'} above {MEANINGFUL_SPEEDUP:g}×"
    )
    if wrong:
        note += f"; {wrong} not correct"
    return Headline(label=label, value=times(found["max_null_certified"]), note=note)


def _policy_headline(policies: Sequence[Policy], best: Policy) -> Headline:
    """Return the success of the first policy and of the best by reward, not of the last."""
    first, last = policies[0], policies[-1]
    if len(policies) == 1:
        value, origin = percent(first.success), f"{first.label}, the only policy so far"
    else:
        value = f"{percent(first.success)} → {percent(best.success)}"
        origin = f"from {first.label} to {best.label}, the best by mean reward"
        if best.label != last.label:
            origin += f"; {last.label}, the last: {percent(last.success)}"
    return Headline(
        label="Held-out success", value=value, note=f"of the policy's sampled answers; {origin}"
    )
