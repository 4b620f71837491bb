"""Decide which claims must be made twice, and what becomes of them.

Threat: luck, for of many candidates the luckiest claims most, and unknown holes in the clock. A
claim counts when a fresh process agrees, on another device where there is one, and when no law of
physics is against it. All functions are pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudal1.harness.exchange.failure import Failure
from cudal1.harness.oracle.roofline import BELOW_FLOOR
from cudal1.harness.timing.rule import CLEAR, SOON
from cudal1.harness.timing.statistics import conservative
from cudal1.measurement import Doubt, Measurement
from cudal1.protocol import EvalProtocol, Rule
from cudal1.verdict import FlagSource, HackFlag, Status

if TYPE_CHECKING:
    from cudal1.harness.judgement import Judgement

SESSIONS = 3
"""Number of measurement sessions of one judgement; those of another device are numbered behind
them."""


def is_large(claim: Measurement, protocol: EvalProtocol, *, record: float | None) -> bool:
    """Return whether a claim is one for a second device (docs/timing.md#confirmation).

    `record` is the best certified speedup of the problem so far, where it is known.
    """
    limit = protocol.confirm_above
    if record is not None:
        limit = min(limit, protocol.confirm_above_record * max(1.0, record))
    return claim.certified > limit or (claim.certified > 1 and claim.is_at_roofline)


def is_doubtful(claim: Measurement, protocol: EvalProtocol, *, record: float | None) -> bool:
    """Return whether a claim must be made twice: a large claim, or a small gain."""
    return is_large(claim, protocol, record=record) or is_small(claim, protocol)


def is_small(claim: Measurement, protocol: EvalProtocol) -> bool:
    """Return whether two processes that run the same code may differ by as much as the gain.

    Their luck may make a gain or take one away, so a small gain may be confirmed at a second
    attempt.
    """
    return 1 < claim.certified < protocol.confirm_below


def is_far(claim: Measurement, protocol: EvalProtocol) -> bool:
    """Return whether every speedup within `SOON` below the claim is a clear gain, too."""
    return claim.certified * (1 - min(SOON, protocol.confirm_within)) > CLEAR


def is_impossible(claim: Measurement) -> bool:
    """Return whether a measurement certifies a gain and is below the floor."""
    return (
        claim.certified > 1.0
        and claim.floor_us is not None
        and claim.candidate_us < BELOW_FLOOR * claim.floor_us
    )


def lowered(
    claim: Measurement, believed: float, doubt: Doubt, protocol: EvalProtocol
) -> Measurement:
    """Return the claim as far as it is believed, with the doubt that lowers it, if one does."""
    certified = conservative(believed)
    if certified >= claim.certified:
        return claim
    if certified < protocol.dead_zone:
        certified = 1.0
    return claim.model_copy(update={"certified": certified, "doubt": doubt, "believed": believed})


def are_apart(claim: Measurement, again: Measurement, protocol: EvalProtocol) -> bool:
    """Return whether two measurements differ, beyond noise, by more than `confirm_within`.

    The paper's rule has no bounds: under it the two estimates are compared.
    """
    if protocol.rule is Rule.PAPER:
        return abs(again.speedup / claim.speedup - 1) > protocol.confirm_within
    (low, high), (low_again, high_again) = _range(claim), _range(again)
    return max(low / high_again, low_again / high) - 1 > protocol.confirm_within


def _range(claim: Measurement) -> tuple[float, float]:
    """Return the bounds of a measurement, or its extreme buckets where there were too few quads."""
    buckets = claim.bucket_medians
    return claim.lower or min(buckets), claim.upper or max(buckets)


def is_worth_another(claim: Measurement, again: Measurement, protocol: EvalProtocol) -> bool:
    """Return whether a third measurement may well confirm what the second did not.

    A small gain is a matter of two processes' luck. A larger gain is certified already; where the
    second measurement does not contradict it, noise has taken it away.
    """
    if claim.certified <= 1.0 or again.certified > 1.0:
        return False
    return is_small(claim, protocol) or not are_apart(claim, again, protocol)


def settled(
    claim: Measurement, again: Measurement, protocol: EvalProtocol, *, confirmed_on: str
) -> Measurement:
    """Return the claim after two measurements: the smaller, and no gain where they disagree.

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
            "certified": certified,
            "doubt": doubt,
            "believed": believed,
            "is_stable": claim.is_stable and again.is_stable,
            "is_confirmed": certified > 1.0,
            "confirmed_on": confirmed_on,
        }
    )


def _impossible(claim: Measurement) -> Failure:
    figures = f"{claim.candidate_us:.2f} us a call where {claim.floor_us:.2f} us is the least"
    return Failure(
        Status.INVALID,
        f"faster than this device can be: {figures}",
        (HackFlag(kind="below_floor", source=FlagSource.TIMING, evidence=figures),),
    )


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
