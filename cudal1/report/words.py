"""Puts a verdict, and the ancestors of a candidate, into sentences of plain text."""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from functools import lru_cache
from typing import Any

import polars as pl

from cudal1.measurement import Doubt
from cudal1.protocol import EvalProtocol, Rule
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent, times
from cudal1.verdict import Properties, SecondOpinion

DOUBTS = {
    Doubt.OVERHEAD: "part of the gain may be what a leaner loop than the harness's leaves out",
    Doubt.WORK: "the kernel's own account of the work done by both shows less of a gain",
    Doubt.PREPARED: "outputs that were prepared before may have been left, or no longer are",
    Doubt.MEDIAN: "most bursts say less than quads, which take the shorter of two",
    Doubt.UNEVEN: "some bursts take much longer than most",
    Doubt.TOGETHER: "calls save it only where all inputs are published together",
    Doubt.ONCE: "it is saved once a burst, however many calls that has",
    Doubt.LONGER: "the last and longest bursts say less",
    Doubt.AGAIN: "fresh processes were certified at less",
    Doubt.APART: "fresh processes had another speedup",
    Doubt.REFERENCE: "a candidate that leaves out work would be correct, too",
}
"""Meaning of each doubt, to finish “lowered, for …”."""


def terms(protocol: EvalProtocol) -> str:
    """Return the contract and the mode that a protocol names, for a sentence."""
    return f"contract {protocol.contract}, mode {protocol.mode}"


def restricted(seen: Properties) -> str:
    """Return the restrictions of a correct candidate's use as a sentence; empty without any."""
    return f"Restricted in use: {'; '.join(seen.restrictions)}." if seen.restrictions else ""


def in_words(best: dict[str, Any], given: ReportInput) -> list[str]:
    """Return sentences about a timed success.

    Args:
        best: its row of `facts.best`.
        given: may hold its details; what they do not say is left out.
    """
    found = given.details.filter(pl.col("candidate_id") == best["candidate_id"]).to_dicts()
    details = found[0] if found else dict.fromkeys(given.details.columns)
    return [
        line
        for line in (
            _correct(best, details),
            _speedup(best, details),
            _lowered(details),
            _steady(best, given),
            restricted(facts.seen(best)),
            _rest(best, details),
        )
        if line
    ]


def _correct(best: dict[str, Any], details: dict[str, Any]) -> str:
    inputs, error = details["num_inputs"], details["max_relative_l2"]
    line = "Correct"
    if inputs is not None:
        line += f": every output element agreed on {inputs:,} inputs"
    if best["precision"] is not None:
        line += f", in class {best['precision']}"
    if error is not None:
        line += f" (largest relative error {error:.1e})"
    return f"{line}."


def _speedup(best: dict[str, Any], details: dict[str, Any]) -> str:
    line = f"Estimated at {times(best['speedup'])}"
    if best["num_quads"]:
        line += f" over {best['num_quads']:,} quads"
    if best["reference_us"] is not None and best["candidate_us"] is not None:
        line += f" (one call {best['reference_us']:,.1f} µs → {best['candidate_us']:,.1f} µs)"
    line += f", certified at {times(best['certified'])}"
    if details["alpha"] is not None and best["certified"] > 1:
        line += f": a claim that is false with probability {details['alpha']:g} at most"
    if details["lower"] is not None and details["upper"] is not None:
        line += f"; the median lies within {times(details['lower'])} and {times(details['upper'])}"
    return f"{line}."


def _lowered(details: dict[str, Any]) -> str:
    if details["doubt"] is None:
        return ""
    known = DOUBTS.get(details["doubt"])
    return f"Certified less than timing alone would, for {known or details['doubt']}."


def _steady(best: dict[str, Any], given: ReportInput) -> str:
    parts: list[str] = []
    if best["bucket_variance"] is not None:
        shown = pl.DataFrame([best]).select(facts.spread(given.provenance.protocol)).item()
        steady = "steady" if best["is_stable"] else "not steady"
        if not best["is_stable"] and given.provenance.protocol.rule is Rule.PAPER:
            steady += ", so nothing above 1× counts"
        parts.append(f"Its buckets are {steady} (spread {shown:.3f})")
    if best["is_confirmed"] is not None:
        parts.append(
            "fresh processes confirmed the claim"
            if best["is_confirmed"]
            else "fresh processes did not confirm the claim"
        )
    return f"{'; '.join(parts)}." if parts else ""


def _rest(best: dict[str, Any], details: dict[str, Any]) -> str:
    parts: list[str] = []
    if details["floor_us"] is not None and best["candidate_us"]:
        near = percent(min(1.0, details["floor_us"] / best["candidate_us"]))
        parts.append(
            f"No call can take less than {details['floor_us']:,.1f} µs ({near} of its time)"
        )
    if details["second_opinion"] == SecondOpinion.ASKED.value:
        parts.append("The reviewer was to be asked and has not vetoed it")
    if details["judged_at"] is not None:
        parts.append(f"Judged {details['judged_at']}")
    return f"{'. '.join(parts)}." if parts else ""


def lineage(candidate_id: str, given: ReportInput, *, at_most: int) -> list[str]:
    """Return sentences about a candidate's ancestors: its prompts' exemplars, and how far back."""
    mine = _ancestors(given).filter(pl.col("descendant_id") == candidate_id)
    parents = mine.filter(pl.col("generation") == 1).sort(
        "certified", "candidate_id", descending=[True, False], nulls_last=True
    )
    if parents.is_empty():
        return []
    named = [
        f"{row['candidate_id']} ({times(row['certified'])}"
        + (f", by {row['authors'][0]}" if row["authors"] else "")
        + ")"
        for row in parents.head(at_most).to_dicts()
    ]
    more = parents.height - len(named)
    lines = [
        f"Exemplars that its prompts showed: {', '.join(named)}"
        + (f" and {more:,} more." if more else ".")
    ]
    older = mine.height - parents.height
    if older:
        last = mine["generation"].max()
        lines.append(f"Behind those stand {older:,} earlier ones, in {last} generations.")
    return lines


@lru_cache(maxsize=1)
def _ancestors(given: ReportInput) -> pl.DataFrame:
    """Return all ancestors, with their authors."""
    return given.ancestors.join(facts.authors(given), on="candidate_id", how="left")
