"""Which claims must be made twice, and what becomes of them.

Threat: luck (of many candidates the luckiest claims most) and whatever hole in the clock nobody has
found yet: a claim counts when a fresh process agrees, on another device where there is one, and
when no law of physics is against it. Pure functions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudal1.harness.progress import Failure
from cudal1.harness.roofline import BELOW_FLOOR
from cudal1.harness.rule import CLEAR, SOON
from cudal1.measurement import Measurement
from cudal1.protocol import EvalProtocol
from cudal1.verdict import FlagSource, HackFlag, Status

if TYPE_CHECKING:
    from cudal1.harness.judge import Judgement

SESSIONS = 3
"""Measurement sessions of one judgement; those of another device are numbered behind them."""


def is_large(claim: Measurement, protocol: EvalProtocol, *, record: float | None) -> bool:
    """Whether a claim is one for a second device: paper 2.4.4, and harness.md 7.4 at the floor.

    `record` is the best certified speedup of the problem so far, where it is known.
    """
    limit = protocol.confirm_above
    if record is not None:
        limit = min(limit, protocol.confirm_above_record * max(1.0, record))
    return claim.certified > limit or (claim.certified > 1 and claim.is_at_roofline)


def is_doubtful(claim: Measurement, protocol: EvalProtocol, *, record: float | None) -> bool:
    """Whether a claim must be made twice: a large one, and a small gain."""
    return is_large(claim, protocol, record=record) or is_small(claim, protocol)


def is_small(claim: Measurement, protocol: EvalProtocol) -> bool:
    """Whether two processes that run the same code may differ by as much as the gain.

    Their luck may make one or take one away, so such a claim may be confirmed at a second attempt.
    """
    return 1 < claim.certified < protocol.confirm_below


def is_far(claim: Measurement, protocol: EvalProtocol) -> bool:
    """Whether whatever soon bears out the claim is a clear gain, too."""
    return claim.certified * (1 - min(SOON, protocol.confirm_within)) > CLEAR


def is_impossible(claim: Measurement) -> bool:
    """Whether a measurement to rely on is below the floor."""
    return (
        claim.is_stable
        and claim.floor_us is not None
        and claim.candidate_us < BELOW_FLOOR * claim.floor_us
    )


def settled(
    claim: Measurement, again: Measurement, protocol: EvalProtocol, *, confirmed_on: str
) -> Measurement:
    """The claim with what became of it: the smaller counts, and no gain where they disagree.

    Where the second was unsteady, which is why it counts for nothing, so is the whole.

    Raises:
        Failure: both are below the floor.
    """
    if is_impossible(claim) and is_impossible(again):
        raise _impossible(max(claim, again, key=lambda each: each.candidate_us))
    agree = (
        abs(again.speedup / claim.speedup - 1) <= protocol.confirm_within
        and not is_impossible(claim)
        and not is_impossible(again)
    )
    less = min(claim, again, key=lambda each: each.certified)
    return claim.model_copy(
        update={
            "certified": less.certified if agree else min(1.0, again.certified),
            "doubt": (less.doubt or claim.doubt) if agree else None,
            "is_stable": claim.is_stable and (again.is_stable or not agree),
            "is_confirmed": agree, "confirmed_on": confirmed_on,
        }
    )  # fmt: skip


def _impossible(claim: Measurement) -> Failure:
    figures = f"{claim.candidate_us:.2f} us a call where {claim.floor_us:.2f} us is the least"
    return Failure(
        Status.INVALID, f"faster than this device can be: {figures}",
        (HackFlag(kind="below_floor", source=FlagSource.TIMING, evidence=figures),),
    )  # fmt: skip


def confirmed(first: Judgement, second: Judgement, protocol: EvalProtocol) -> Judgement:
    """Return the first judgement with what became of its claim elsewhere; the smaller counts."""
    claim, again = first.verdict.measurement, second.verdict.measurement
    assert claim is not None
    if again is None:
        return second  # there it failed
    try:
        both = settled(claim, again, protocol, confirmed_on=second.verdict.device_id)
    except Failure:
        return second
    behind = [
        sample.model_copy(update={"session": sample.session + SESSIONS})
        for sample in second.samples
    ]
    verdict = first.verdict.model_copy(update={"measurement": both})
    samples = (*first.samples, *behind)
    return replace(first, verdict=verdict, samples=samples, is_to_confirm=False, compiled=b"")
