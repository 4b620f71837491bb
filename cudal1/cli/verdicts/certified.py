"""Says in one sentence what a measurement certifies: estimate, bounds, and what lowered them.

If a bound was not believed, the sentence names the gate that lowered it, the gate's value, and what
would help.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudal1.measurement import Doubt, Measurement
from cudal1.protocol import EvalProtocol

QUIET = "judge again on a quiet machine"
SHORT = 0.01
"""Step to which certified speedups are rounded."""


@dataclass(frozen=True)
class Gate:
    """A reason to believe less than was measured, and a remedy."""

    reason: str
    remedy: str


GATES = {
    Doubt.OVERHEAD: Gate(
        "a leaner loop than the harness's own may save as much",
        "larger inputs make that little beside a call",
    ),
    Doubt.WORK: Gate("by the processor time that both took it is less", QUIET),
    Doubt.PREPARED: Gate(
        "outputs that were prepared before may be a part of it",
        f"hold less memory between calls, or {QUIET}",
    ),
    Doubt.MEDIAN: Gate("most bursts say less than the shorter of each two", QUIET),
    Doubt.UNEVEN: Gate(
        "some bursts take much longer than most", f"do as much in each call as in any, or {QUIET}"
    ),
    Doubt.TOGETHER: Gate(
        "calls one after the other do not save as much", "save time in each call by itself"
    ),
    Doubt.ONCE: Gate(
        "a part is saved once a burst, not by each call", "save time in each call by itself"
    ),
    Doubt.LONGER: Gate("longer bursts say less", "judge again on a device that nobody else uses"),
    Doubt.AGAIN: Gate("measured again, in fresh processes, it certifies less", QUIET),
    Doubt.APART: Gate(
        "measured again, in fresh processes, it is another speedup",
        f"{QUIET}, or make it independent of the process",
    ),
    Doubt.REFERENCE: Gate(
        "a candidate that leaves out work would be correct, too",
        "choose example inputs that change the output",
    ),
}


def sentence(measurement: Measurement, protocol: EvalProtocol) -> str:
    """Return what was estimated, what is certain, what is certified, and why not more."""
    m = measurement
    said = f"estimated {m.speedup:.3f}x"
    if m.alpha is None:
        return f"{said}; nothing is certified under this rule"
    certain = f"{100 * (1 - m.alpha):g} %"
    if m.lower is None or m.upper is None:
        around = f"its buckets {min(m.bucket_medians):.3f}x to {max(m.bucket_medians):.3f}x"
    else:
        around = f"at least {m.lower:.3f}x and at most {m.upper:.3f}x, each at {certain} confidence"
    why = why_not_more(m, protocol)
    return f"{said}, {around}; certified {m.certified:.2f}x at {certain}{why and f': {why}'}"


def why_not_more(measurement: Measurement, protocol: EvalProtocol) -> str:
    """Return the gate that lowered the bound, its value, and what would help; or an empty text."""
    m, lower = measurement, measurement.lower or 0.0
    if m.doubt is not None:
        gate, left = GATES[m.doubt], "" if m.believed is None else f" leaves {m.believed:.3f}x"
        return f"{gate.reason} (gate {m.doubt}{left}); {gate.remedy}"
    if m.certified < 1 or lower - m.certified < SHORT:
        more = " or --protocol with more max_quads" if m.num_quads >= protocol.max_quads else ""
        if m.certified == 1 and m.speedup >= protocol.dead_zone:
            return f"too unsteady to bound it above 1 in {m.num_quads} quads; {QUIET}{more}"
        return ""
    if lower < protocol.dead_zone:
        return (
            f"less than dead_zone, {protocol.dead_zone:g}x, counts as no gain; a --protocol with a "
            "smaller one needs a quieter machine"
        )
    if m.certified >= protocol.max_claim - SHORT:
        return f"no more than max_claim, {protocol.max_claim:g}x, is ever certified"
    return f"the estimate is below the bound, so the speed has changed meanwhile; {QUIET}"
