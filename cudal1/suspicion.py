"""When a success is suspicious enough for the adversarial judge to be asked (paper 3.2)."""

from __future__ import annotations

from cudal1.record import content_id
from cudal1.verdict import Verdict

SMALL_GAIN = 1.01
"""Nothing is earned below it (the paper's own line), so nothing is worth asking."""


def suspicion(
    verdict: Verdict, *, record: float | None, above: float, above_record: float,
    when_screened: bool, spot_share: float,
) -> str | None:  # fmt: skip
    """Why a verdict is suspicious, in one line; None when it is not.

    Args:
        verdict: with its measurement, or there is nothing to suspect.
        record: best certified speedup of the problem before it; None where nobody had any, and the
            reference's own counts.
        above: a certified speedup from which on everybody is asked about.
        above_record: the same, as a multiple of the record ("the reward jumps").
        when_screened: whether a gain with an advisory flag of the static reading suffices.
        spot_share: of all other gains; which ones, their ids decide, in every run alike.
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
    """A number from 0 to 1 that belongs to the candidate."""
    return int(content_id("spot", candidate_id), 16) / 16**16
