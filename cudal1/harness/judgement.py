"""Define what a judge returns: a verdict, the bursts behind it, and where its seconds went."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1.harness.admission.admission import Found
from cudal1.measurement import TimingSample
from cudal1.verdict import Verdict


@dataclass(frozen=True)
class Judgement:
    """A verdict and the bursts behind it."""

    verdict: Verdict
    samples: tuple[TimingSample, ...]
    build_s: float = 0.0
    """Seconds of `verdict.judge_s` in which the device waited for the candidate to start and be
    built."""
    waited_s: float = 0.0
    """Seconds of waiting for other judges of the device, beside `verdict.judge_s`."""
    timed_s: float = 0.0
    """Seconds of `verdict.judge_s` in which the judge had the device alone."""
    prepare_s: float = 0.0
    """Seconds that preparing the problem took before the judgement, if it was not prepared."""
    is_to_confirm: bool = False
    """True if the claim counts only if another device agrees."""
    found: Found | None = None
    """The result of the problem's trial, if that came before."""
    trial_s: float = 0.0
    """Seconds of the problem's trial, if that came before."""
    invariants: tuple[str, ...] = ()
    """Properties of the problem's inputs in every draw, if a trial has looked."""
    note: str | None = None
    """A note on what the problem's check would let through, if a trial has looked."""
    compiled: bytes = b""
    """Code that the candidate's process compiled, for the one that is to confirm the claim on
    another device."""
