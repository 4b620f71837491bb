"""The rule that makes a success suspicious enough to ask the reviewer (paper 3.2)."""

from __future__ import annotations

from cudal1.record import content_id
from cudal1.verdict import Verdict

SMALL_GAIN = 1.01
"""Certified speedup below which nothing is earned (the paper's own line), so nothing is asked."""


def suspicion(
    verdict: Verdict,
    *,
    record: float | None,
    above: float,
    above_record: float,
    when_screened: bool,
    spot_share: float,
) -> str | None:
    """Return why a verdict is suspicious, in one line; None when it is not.

    Args:
        verdict: with its measurement, or there is nothing to suspect.
        record: best certified speedup of the problem before it; None without one, and the
            reference's own counts.
        above: certified speedup from which on every success is asked about.
        above_record: the same, as a multiple of the record ("the reward jumps").
        when_screened: whether a gain with an advisory flag of the screen suffices.
        spot_share: share of all other gains; their ids decide which ones, in every run alike.
    """
    certified = verdict.speedup
    if certified is None or certified <= SMALL_GAIN:
        return None
    if certified >= above:
        return f"certified {certified:.2f}x, at or above {above:g}x"
    best = 1.0 if record is None else max(record, 1.0)
    if certified >= above_record * best:
        return f"certified {certified:.2f}x, {certified / best:.1f} times the record"
    flags = [flag for flag in verdict.flags if flag.is_advisory]
    if when_screened and flags:
        return f"the source shows {', '.join(flag.kind for flag in flags)}"
    if _draw(verdict.candidate_id) < spot_share:
        return "drawn at random among the gains"
    return None


def _draw(candidate_id: str) -> float:
    """Return a number from 0 to 1 that belongs to the candidate."""
    return int(content_id("spot", candidate_id), 16) / 16**16
