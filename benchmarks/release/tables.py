"""Write the tables of an audit, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.judging.verdict_seconds import in_words
from benchmarks.release.rows import Which
from cudal1.protocol import PrecisionClass

TITLES = {
    Which.KERNELS: "Released kernels",
    Which.CUDA_GRAPH: "Their baseline: references as CUDA graphs",
    Which.REFERENCES: "References against themselves",
}
TEXT = {
    "level",
    "speedup of at least",
    "row",
    "cudal1",
    "plain check",
    "why",
    "cause",
    "which",
    "property",
    "correct in eval mode",
}
"""Columns that hold words."""
MAX_NAMES = 12
"""Most rows that a line of causes names."""


def markdown(found: Mapping[str, Any]) -> str:
    """Return all tables of an audit's result."""
    head = [
        f"# Released kernels for {found['kind']}, judged",
        "",
        f"{found['machine']['device']}; harness {found['harness_version']}; protocol "
        f"`{found['protocol_id']}`; release `{found['revision']}`.",
    ]
    return "\n".join([*head, *sections(found)]) + "\n"


def sections(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the tables, a section for each kind of source."""
    for which, side in found["sources"].items():
        if side["levels"]:
            yield from _section(Which(which), side)


def _section(which: Which, side: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"## {TITLES[which]}", "")
    if not side["is_complete"]:
        yield from ("**Partial**: some rows have not been asked yet.", "")
    if side["without_code"]:
        without = side["without_code"]
        said = f"{len(without)} of {side['num_rows']} rows have no code ({', '.join(without)})."
        if claims := side["claims_without_code"]:
            said += f" {len(claims)} of them claim a speedup, {_times(fmean(claims.values()))} in "
            said += "the mean, which is counted nowhere below."
        yield from (said, "")
    yield from _levels(side["levels"])
    yield from _bounds(side["levels"])
    yield from _largest(side["largest_claims"])
    yield from _counted("Not correct as constructed, by kind of cause", side["causes"])
    if weak := side["weak"]:
        yield (
            f"{len(weak)} of the correct rows have a weak reference, with an output that hardly "
            f"moves with its inputs: {', '.join(weak)}. A kernel that left out work would agree, "
            "too. So their speedups, claimed and certified, are in no mean of correct ones."
        )
        yield ""
    yield from _counted("References that cannot be judged", side["refused"])
    yield from _properties(side["properties"])
    yield from _agreement(side["agreement"])
    yield from _walls(side["walls"], side["kernelbench"])


def _levels(levels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    strict, tf32, _ = (each.value for each in PrecisionClass)
    header = [
        "level",
        "with code",
        "settled",
        "correct",
        f"in {tf32}",
        f"in {strict}",
        "in eval mode only",
        "certified",
        "claimed mean",
        "of correct ones: claimed",
        "certified",
        "estimated",
        "medians: claimed",
        "certified",
    ]
    rows = [
        [
            str(level["level"]),
            str(level["num_with_code"]),
            str(level["num_settled"]),
            str(level["num_correct"]),
            *(_in_class(level, name) for name in (tf32, strict)),
            str(level["num_correct_in_eval_only"]),
            _of(level["certified_of_eval_only"], "mean"),
            _of(level["claimed"], "mean"),
            _of(level["claimed_of_correct"], "mean"),
            _of(level["certified_of_correct"], "mean"),
            _of(level["estimated_of_correct"], "mean"),
            _of(level["claimed_of_correct"], "median"),
            _of(level["certified_of_correct"], "median"),
        ]
        for level in levels
    ]
    yield from _table(header, rows)


def short(side: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one table with the main figures of one kind of source, by level."""
    strict, tf32, _ = (each.value for each in PrecisionClass)
    header = ["level", "with code", "claimed mean", "correct", f"in {tf32}", f"in {strict}"]
    header += ["in eval mode only", "certified mean of correct ones", "their claimed mean"]
    rows = [
        [
            str(level["level"]),
            str(level["num_with_code"]),
            _of(level["claimed"], "mean"),
            str(level["num_correct"]),
            *(_in_class(level, name) for name in (tf32, strict)),
            str(level["num_correct_in_eval_only"]),
            _of(level["certified_of_correct"], "mean"),
            _of(level["claimed_of_correct"], "mean"),
        ]
        for level in side["levels"]
    ]
    yield from _table(header, rows)


def _in_class(level: Mapping[str, Any], name: str) -> str:
    """Return how many are correct in a class: at least so many while some have not been asked."""
    more = "+" if level["num_of_unknown_class"] else ""
    return f"{level['num_correct_in_class'][name]}{more}"


def _bounds(levels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    whole = levels[-1]
    rows = [
        [bound, str(whole["num_claimed_at_least"][bound]), str(count)]
        for bound, count in whole["num_certified_at_least"].items()
    ]
    if whole["claimed"]:
        yield from _table(["speedup of at least", "claimed", "certified"], rows)
        yield from (f"Certified as claimed, or above: {whole['num_certified_as_claimed']}.", "")


def _largest(largest: Mapping[str, Any] | None) -> Iterator[str]:
    if largest is None:
        return
    rows = [
        [
            row["row"],
            _times(row["claim"]),
            row["called"],
            _times(row["certified"]),
            _times(row["estimate"]),
            row["check"] or "-",
            _cell(row["why"] or ""),
        ]
        for row in largest["rows"]
    ]
    yield (
        f"The {len(rows)} largest claims carry {largest['share_of_claimed']:.0%} of the claimed "
        f"mean: {_times(largest['mean_claimed'])} with them, "
        f"{_times(largest['mean_claimed_without'])} without. The largest certified speedups carry "
        f"{_percent(largest['share_of_certified'])} of the certified mean."
    )
    yield ""
    yield from _table(
        ["row", "claimed", "cudal1", "certified", "estimated", "plain check", "why"], rows
    )


def _counted(title: str, counted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if counted:
        levels = sorted({level for each in counted for level in each["by_level"]})
        rows = [
            [
                _cell(each["what"]),
                *(str(each["by_level"].get(level, 0)) for level in levels),
                str(each["count"]),
                _names(each["rows"], MAX_NAMES),
            ]
            for each in counted
        ]
        yield from (f"### {title}", "")
        yield from _table(["cause", *(f"level {level}" for level in levels), "all", "which"], rows)


def _properties(properties: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        [f"{name}{note}", *(str(counts.get(word, 0)) for word in ("yes", "no", "unknown"))]
        for note, seen in (
            ("", properties["verdicts"]),
            (" (plain check)", properties["plain_check"]),
        )
        for name, counts in seen.items()
    ]
    if rows:
        yield from ("### Properties of correct ones", "")
        yield from _table(["property", "yes", "no", "unknown"], rows)


def _agreement(agreement: Mapping[str, Any]) -> Iterator[str]:
    if not agreement["table"]:
        return
    names = list(dict.fromkeys(name for counts in agreement["table"].values() for name in counts))
    rows = [
        [outcome, str(sum(counts.values())), *(str(counts.get(name, 0)) for name in names)]
        for outcome, counts in agreement["table"].items()
    ]
    yield from ("### Beside a plain check by KernelBench's contract", "")
    yield from _table(["plain check", "rows", *names], rows)
    yield (
        f"Of {agreement['num_agree']} rows that agree, cudal1 calls "
        f"{agreement['num_agree_called_correct']} correct "
        f"({_percent(agreement['share_of_agreeing_called_correct'])}; of the judged ones "
        f"{_percent(agreement['share_of_agreeing_and_judged'])}). Of {agreement['num_disagree']} "
        f"that disagree beyond every class, {agreement['num_disagree_called_correct']}."
    )
    yield ""
    if agreement["disputed"]:
        yield from ("Rows of which the two say different things:", "")
        yield from _table(
            ["row", "cudal1", "why", "plain check", "relative L2", "why", "correct in eval mode"],
            [
                [
                    row["row"],
                    row["called"],
                    _cell(row["why"] or ""),
                    row["check"],
                    "-" if row["relative_l2"] is None else f"{row['relative_l2']:.1e}",
                    _cell(row["check_reason"] or ""),
                    _word(row["is_correct_in_eval_only"]),
                ]
                for row in agreement["disputed"]
            ],
        )


def _walls(walls: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    if not walls["num_runs"] and not theirs["num_evaluated"]:
        return
    yield from ("### Wall times", "")
    firsts = {"cold": walls["first_verdict_s"], "warm": walls["first_verdict_warm_s"]}
    known = [f"{seconds:.1f} s ({name})" for name, seconds in firsts.items() if seconds is not None]
    first = f", the first verdict after {' and '.join(known)}" if known else ""
    runs = walls["num_runs"]
    yield f"* cudal1: {walls['cudal1_s']:.1f} s in {runs} run{'s' * (runs != 1)}{first}."
    if walls["busy"] is not None:
        yield (
            f"* The GPU computed {_percent(walls['busy'])} of that time, and "
            f"{_percent(walls['busy_judging'])} of it from the first verdict."
        )
    if walls["seconds"]:
        yield f"* A verdict takes {in_words(walls['seconds'])}."
    if walls["classes_s"]:
        yield f"* Narrower classes, checks only: {walls['classes_s']:.1f} s more."
    yield f"* Plain check: {walls['check_s_of_rows']:.0f} s, summed over rows."
    if theirs["num_evaluated"]:
        ratio = walls["times_faster_at_least"]
        bound = "" if walls["times_faster"] is not None else "at least "
        # a bound is not rounded up
        times = "" if ratio is None else f"; {bound}{math.floor(10 * ratio) / 10:.1f} times ours"
        if walls["times_faster"] is None and walls["times_faster_estimated"] is not None:
            times += f" (estimated for all rows: {walls['times_faster_estimated']:.1f} "
            times += f"± {walls['times_faster_off_by']:.1f}, 95 %)"
        yield (
            f"* KernelBench's evaluator: {walls['kernelbench_s']:.1f} s for "
            f"{theirs['num_evaluated']} rows, {theirs['num_left']} left{times}. Correct for both: "
            f"{theirs['both_correct']}, for cudal1 only: {theirs['only_cudal1']}, for KernelBench "
            f"only: {theirs['only_kernelbench']}, for neither: {theirs['neither']}."
        )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    lines = ["---" if name in TEXT else "--:" for name in header]
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join(lines)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _of(spread: Mapping[str, float] | None, name: str) -> str:
    return _times(spread[name] if spread else None)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(share: float | None) -> str:
    # a share is not rounded up to all
    return "-" if share is None else f"{math.floor(1000 * share) / 10:.1f} %"


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _names(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f", {more} more" if more > 0 else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
