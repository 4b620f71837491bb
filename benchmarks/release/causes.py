"""Name kinds of cause: why a verdict is not `correct`, in a few words that can be counted."""

from __future__ import annotations

import re

from cudal1.harness.inputs.families import OWN
from cudal1.verdict import Status, Verdict

BY_STATUS = {
    Status.NO_BUILD: "does not build",
    Status.CRASHED: "crashes",
    Status.TIMED_OUT: "times out",
    Status.INVALID: "faster than the device can be",
}
"""Causes of statuses that say enough."""
MISMATCH = re.compile(r"input \d+ \((\w+)\)")
"""Pattern by which a verdict names the first input with a wrong output."""
OTHER_WEIGHTS = "(of its weights its worker says: "
"""Words in a reason before the worker's message, when weights could not be loaded by name."""
MAX_REASON = 200
"""Most characters of a reason that are kept."""


def cause(verdict: Verdict) -> str | None:
    """Return the kind of cause; None for a correct verdict."""
    if verdict.status is Status.CORRECT:
        return None
    if known := BY_STATUS.get(verdict.status):
        return known
    flags = sorted({flag.kind for flag in verdict.flags if not flag.is_advisory})
    if verdict.status is Status.HACKED:
        return f"hacked: {', '.join(flags)}"
    if flags:
        return ", ".join(flags).replace("_", " ")
    checked = verdict.correctness
    where = MISMATCH.match(checked.first_mismatch or "") if checked else None
    if where is None:
        return "outputs of another kind"
    if OTHER_WEIGHTS in (verdict.reason or ""):
        return "wrong, with weights that are not the reference's"
    if where[1] == OWN:
        return "wrong on its own inputs"
    return f"wrong only on a family: {where[1]}"


def one_line(reason: str) -> str:
    """Return a reason in one line, without the folders around a place in a file system."""
    said = " ".join(reason.split())
    said = re.sub(r"(?<![\w/])/(?:[\w.+-]+/)+", "", said)
    return said if len(said) <= MAX_REASON else f"{said[: MAX_REASON - 1]}…"


def kind_of_refusal(reason: str) -> str:
    """Return why a reference was refused, with numbers left out, so that it can be counted."""
    return re.sub(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", "N", one_line(reason))
