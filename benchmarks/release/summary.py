"""Summarise all rows of an audit: counts, comparisons, and what is left."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.judging.verdict_seconds import seconds
from benchmarks.release.causes import cause, kind_of_refusal
from benchmarks.release.checking import Outcome
from benchmarks.release.findings import NARROWER, Finding, claims, properties_of, wants_eval
from cudal1.protocol import Mode, PrecisionClass
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP

FEW = 5
"""Number of the largest claims that are looked at by themselves."""
MIN_SAMPLE = 10
"""Rows from which a time for all of them is estimated."""
AT_LEAST = (1.05, 1.2, 2.0)
"""Speedups above which rows are counted."""


def summarise(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return all numbers over the rows that have code."""
    coded = [finding for finding in findings if finding.entry.source]
    levels = sorted({finding.entry.place[0] for finding in findings})
    return {
        "num_rows": len(findings),
        "without_code": [f.entry.name for f in findings if not f.entry.source],
        "claims_without_code": {
            f.entry.name: f.entry.claim
            for f in findings
            if not f.entry.source and f.entry.claim is not None
        },
        "levels": [
            {"level": level, **_level([f for f in findings if f.entry.place[0] == level])}
            for level in levels
        ]
        + [{"level": "all", **_level(findings)}],
        "causes": causes(coded),
        "weak": [finding.entry.name for finding in coded if finding.is_weak],
        "refused": _named(coded, lambda f: f.refusal and kind_of_refusal(f.refusal)),
        "properties": properties(coded),
        "largest_claims": largest_claims(coded),
        "agreement": agreement(coded),
        "kernelbench": evaluations(coded),
        "is_complete": all(
            f.is_settled
            and f.outcome is not None
            and not (f.is_correct and f.precision is None)
            and not (wants_eval(f) and f.eval_verdict is None)
            for f in coded
        ),
    }


def _level(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return claims beside certified speedups, of one level."""
    coded = [finding for finding in findings if finding.entry.source]
    correct = [finding for finding in coded if finding.is_correct]
    told = [finding for finding in correct if not finding.is_weak]
    certified = [f.certified for f in correct if f.certified is not None]
    in_eval = [f for f in coded if f.is_correct_in_eval_only]
    told_in_eval = [f for f in in_eval if not f.is_weak]
    certified_in_eval = [f.eval_verdict.speedup for f in told_in_eval if f.eval_verdict]
    return {
        "num_rows": len(findings),
        "num_with_code": len(coded),
        "num_settled": sum(finding.is_settled for finding in coded),
        "num_refused": sum(finding.refusal is not None for finding in coded),
        "num_correct": len(correct),
        "num_correct_in_class": in_classes(correct),
        "num_of_unknown_class": sum(f.precision is None for f in correct),
        "num_correct_in_eval_only": len(in_eval),
        "claimed_of_eval_only": _spread(claims(told_in_eval)),
        "certified_of_eval_only": _spread(c for c in certified_in_eval if c is not None),
        "claimed": _spread(claims(coded)),
        "claimed_of_correct": _spread(claims(told)),
        "certified_of_correct": _spread(certified),
        "estimated_of_correct": _spread(f.estimate for f in told if f.estimate is not None),
        "num_claimed_at_least": _above(claims(coded)),
        "num_certified_at_least": _above(certified),
        "num_certified_as_claimed": sum(
            f.certified is not None and f.entry.claim is not None and f.certified >= f.entry.claim
            for f in correct
        ),
    }


def in_classes(correct: Sequence[Finding]) -> dict[str, int]:
    """Return how many correct rows are correct in each class; wider classes include narrower."""
    classes = Counter(finding.precision for finding in correct)
    nested = {
        each.value: sum(classes[narrower] for narrower in NARROWER[: place + 1])
        for place, each in enumerate(NARROWER)
    }
    return {**nested, PrecisionClass.HALF.value: len(correct)}


def _spread(values: Iterable[float]) -> dict[str, float] | None:
    known = list(values)
    if not known:
        return None
    return {"mean": fmean(known), "median": median(known), "max": max(known)}


def _above(values: Sequence[float]) -> dict[str, int]:
    return {
        str(bound): sum(v >= bound for v in values) for bound in (MEANINGFUL_SPEEDUP, *AT_LEAST)
    }


def causes(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return how many rows are not correct by kind of cause, most first, with their names."""

    def said(finding: Finding) -> str | None:
        if finding.is_correct_in_eval_only:
            return "right in evaluation mode only"
        return None if finding.verdict is None else cause(finding.verdict)

    return _named(findings, said)


def properties(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return how many correct rows have each property, and the plain check's results on two."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    plain: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for finding in findings:
        if not finding.is_correct or finding.verdict is None:
            continue
        for name, value in properties_of(finding.verdict).items():
            seen[name][_word(value)] += 1
        checked = finding.checks.get(Mode.CONSTRUCTED)
        if checked is not None:
            plain["leaves_inputs"][_word(checked.leaves_inputs)] += 1
            plain["fresh_outputs"][_word(checked.fresh_outputs)] += 1
    return {
        "verdicts": {name: dict(counts) for name, counts in seen.items()},
        "plain_check": {name: dict(counts) for name, counts in plain.items()},
    }


def _word(value: object) -> str:
    words = {True: "yes", False: "no", None: "unknown"}
    return words[value] if isinstance(value, bool | None) else str(value)


def largest_claims(findings: Sequence[Finding]) -> dict[str, Any] | None:
    """Return the largest claims, their verdicts, and their share of the claimed mean."""
    claimed = sorted(
        ((f.entry.claim, f) for f in findings if f.entry.claim is not None),
        key=lambda pair: -pair[0],
    )
    if len(claimed) <= FEW:
        return None
    amounts = [amount for amount, _ in claimed]
    certified = sorted((f.certified for f in findings if f.certified is not None), reverse=True)
    return {
        "share_of_claimed": sum(amounts[:FEW]) / sum(amounts),
        "mean_claimed": fmean(amounts),
        "mean_claimed_without": fmean(amounts[FEW:]),
        "share_of_certified": sum(certified[:FEW]) / sum(certified) if certified else None,
        "rows": [
            {
                "row": f.entry.name,
                "claim": amount,
                "called": f.called,
                "certified": f.certified,
                "estimate": f.estimate,
                "check": None if f.outcome is None else f.outcome.value,
                "why": f.why,
            }
            for amount, f in claimed[:FEW]
        ],
    }


def agreement(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return cudal1's words for the rows of each result of the plain check."""
    table: dict[str, dict[str, int]] = {}
    for outcome in Outcome:
        mine = [f for f in findings if f.outcome is outcome and f.is_settled]
        if mine:
            table[outcome.value] = dict(Counter(f.called for f in mine).most_common())
    agree = [f for f in findings if f.outcome is Outcome.AGREES and f.is_settled]
    judged = [f for f in agree if f.verdict is not None]
    beyond = [f for f in findings if f.outcome is Outcome.DISAGREES and f.is_settled]
    return {
        "table": table,
        "num_agree": len(agree),
        "num_agree_called_correct": sum(f.is_correct for f in agree),
        "num_agree_refused": len(agree) - len(judged),
        "share_of_agreeing_called_correct": _share(sum(f.is_correct for f in agree), len(agree)),
        "share_of_agreeing_and_judged": _share(sum(f.is_correct for f in judged), len(judged)),
        "num_disagree": len(beyond),
        "num_disagree_called_correct": sum(f.is_correct for f in beyond),
        "disputed": [
            {
                "row": f.entry.name,
                "called": f.called,
                "why": f.why,
                "check": f.outcome.value,
                "relative_l2": f.checks[Mode.CONSTRUCTED].relative_l2,
                "check_reason": f.checks[Mode.CONSTRUCTED].reason,
                "is_correct_in_eval_only": f.is_correct_in_eval_only,
            }
            for f in findings
            if f.is_disputed and f.outcome is not None
        ],
    }


def evaluations(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return how KernelBench's evaluator and cudal1 differ, and its wall time."""
    both = [f for f in findings if f.evaluation is not None]
    settled = [f for f in both if f.is_settled]
    pairs = Counter((f.is_correct, bool(f.evaluation and f.evaluation["correct"])) for f in settled)
    return {
        "num_evaluated": len(both),
        "num_left": len(findings) - len(both),
        "wall_s": sum(f.evaluation["wall_s"] for f in both if f.evaluation),
        "num_correct": sum(bool(f.evaluation and f.evaluation["correct"]) for f in both),
        "both_correct": pairs[True, True],
        "only_cudal1": pairs[True, False],
        "only_kernelbench": pairs[False, True],
        "neither": pairs[False, False],
    }


def walls(
    runs: Sequence[dict[str, Any]],
    warm: Sequence[dict[str, Any]],
    findings: Sequence[Finding],
    check_lines: Iterable[dict[str, Any]],
    class_runs: Iterable[dict[str, Any]],
) -> dict[str, Any]:
    """Return wall times of each side; KernelBench's over ours, a bound while it has rows left.

    Args:
        runs: of our command in the loosest class, those that were cut off included.
        warm: runs with warm caches, up to the first verdict.
        findings: all rows.
        check_lines: of the plain check.
        class_runs: of our command, in narrower classes.
    """
    coded = [finding for finding in findings if finding.entry.source]
    ours_s = sum(run["wall_s"] for run in runs)
    theirs = evaluations(coded)
    is_whole = bool(coded) and all(finding.is_settled for finding in coded)
    evaluated = [f.evaluation["wall_s"] for f in coded if f.evaluation is not None]
    is_compared = is_whole and bool(ours_s) and bool(evaluated)
    ratio = theirs["wall_s"] / ours_s if is_compared else None
    estimate_s, off_s = whole_s(evaluated, len(coded)) if is_compared else (None, None)
    first = runs[0] if runs and runs[0].get("is_cold") else {}
    return {
        "cudal1_s": ours_s,
        "num_runs": len(runs),
        "first_verdict_s": first.get("first_verdict_s"),
        "first_verdict_warm_s": warm[-1]["first_verdict_s"] if warm else None,
        "busy": _weighted(runs, "busy"),
        "busy_judging": _weighted(runs, "busy_judging"),
        "is_whole": is_whole,
        "seconds": seconds([f.verdict for f in coded if f.verdict is not None]),
        "classes_s": sum(run["wall_s"] for run in class_runs),
        "check_s_of_rows": sum(line["wall_s"] for line in check_lines),
        "kernelbench_s": theirs["wall_s"],
        "times_faster_at_least": ratio,
        "times_faster": ratio if theirs["num_left"] == 0 else None,
        "times_faster_estimated": estimate_s and estimate_s / ours_s,
        "times_faster_off_by": off_s and off_s / ours_s,
    }


def whole_s(sample_s: Sequence[float], num_rows: int) -> tuple[float | None, float | None]:
    """Estimate the sum over all rows from a sample of them.

    Returns:
        The sum, and half the width of its 95 % interval, by the normal approximation with the
        correction for a finite population; None for both where fewer than `MIN_SAMPLE` are known.
    """
    size = len(sample_s)
    if size < min(MIN_SAMPLE, num_rows):
        return None, None
    if size == num_rows:
        return sum(sample_s), 0.0
    left = (num_rows - size) / (num_rows - 1)
    return fmean(sample_s) * num_rows, 1.96 * stdev(sample_s) * num_rows * math.sqrt(left / size)


def _weighted(runs: Sequence[dict[str, Any]], name: str) -> float | None:
    timed = [(run[name], run["wall_s"]) for run in runs if run.get(name) is not None]
    total = sum(wall_s for _, wall_s in timed)
    return sum(value * wall_s for value, wall_s in timed) / total if total else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _named(
    findings: Sequence[Finding], say: Callable[[Finding], str | None]
) -> list[dict[str, Any]]:
    """Return rows by what `say` returns of them, most first."""
    rows: defaultdict[str, list[str]] = defaultdict(list)
    for finding in findings:
        if said := say(finding):
            rows[said].append(finding.entry.name)
    ordered = sorted(rows.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "what": what,
            "count": len(names),
            "by_level": dict(Counter(name.partition(":")[0] for name in names)),
            "rows": names,
        }
        for what, names in ordered
    ]
