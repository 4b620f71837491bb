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
from cudal1.harness.statistics import conservative
from cudal1.measurement import Doubt, Measurement
from cudal1.protocol import EvalProtocol, Rule
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
    """Whether a measurement that certifies a gain is below the floor."""
    return (
        claim.certified > 1.0
        and claim.floor_us is not None
        and claim.candidate_us < BELOW_FLOOR * claim.floor_us
    )


def lowered(
    claim: Measurement, believed: float, doubt: Doubt, protocol: EvalProtocol
) -> Measurement:
    """The claim as far as it is believed, with the doubt that lowers it, if one does."""
    certified = conservative(believed)
    if certified >= claim.certified:
        return claim
    if certified < protocol.dead_zone:
        certified = 1.0
    return claim.model_copy(update={"certified": certified, "doubt": doubt, "believed": believed})


def are_apart(claim: Measurement, again: Measurement, protocol: EvalProtocol) -> bool:
    """Whether two measurements differ by more than `confirm_within`, and than noise explains.

    Under the paper's rule, which has no bounds, their estimates.
    """
    if protocol.rule is Rule.PAPER:
        return abs(again.speedup / claim.speedup - 1) > protocol.confirm_within
    (low, high), (low_again, high_again) = _range(claim), _range(again)
    return max(low / high_again, low_again / high) - 1 > protocol.confirm_within


def _range(claim: Measurement) -> tuple[float, float]:
    """The bounds of a measurement, or what its buckets say where there were too few quads."""
    buckets = claim.bucket_medians
    return claim.lower or min(buckets), claim.upper or max(buckets)


def is_worth_another(claim: Measurement, again: Measurement, protocol: EvalProtocol) -> bool:
    """Whether a third measurement may well confirm what the second did not.

    A small gain is a matter of two processes' luck. A larger one is certified already; where the
    second does not contradict it, noise has taken it away.
    """
    if claim.certified <= 1.0 or again.certified > 1.0:
        return False
    return is_small(claim, protocol) or not are_apart(claim, again, protocol)


def settled(
    claim: Measurement, again: Measurement, protocol: EvalProtocol, *, confirmed_on: str
) -> Measurement:
    """The claim with what became of it: the smaller counts, and no gain where they disagree.

    Raises:
        Failure: both are below the floor.
    """
    if is_impossible(claim) and is_impossible(again):
        raise _impossible(max(claim, again, key=lambda each: each.candidate_us))
    apart, once = are_apart(claim, again, protocol), is_impossible(claim) or is_impossible(again)
    certified = min(claim.certified, max(1.0, again.certified))
    doubt, believed = claim.doubt, claim.believed
    if apart or once:
        certified = 1.0
        doubt, believed = (Doubt.APART, again.speedup) if apart else (None, None)
    elif certified < claim.certified:
        doubt, believed = again.doubt or Doubt.AGAIN, again.believed or certified
    return claim.model_copy(
        update={
            "certified": certified, "doubt": doubt, "believed": believed,
            "is_stable": claim.is_stable and again.is_stable,
            "is_confirmed": certified > 1.0, "confirmed_on": confirmed_on,
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
