"""Verdicts and judgements of made-up speedups, for what reads them."""

from __future__ import annotations

from collections.abc import Sequence

from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.harness.judgement import Judgement
from cudal1.measurement import Measurement, Role, TimingSample
from cudal1.protocol import PrecisionClass
from cudal1.verdict import Correctness, Properties, Status, Verdict

REFERENCE_US = 1000.0


def verdict_of(
    candidate: Candidate,
    *,
    speedup: float = 1.5,
    status: Status = Status.CORRECT,
    properties: Properties | None = None,
) -> Verdict:
    is_correct = status is Status.CORRECT
    measurement = Measurement(
        baseline=Baseline.EAGER,
        speedup=speedup,
        certified=round(speedup - 0.05, 2),
        alpha=0.01,
        lower=speedup * 0.98,
        upper=speedup * 1.02,
        num_quads=21,
        bucket_medians=(speedup,),
        bucket_variance=0.0,
        is_stable=True,
        is_confirmed=True,
        reference_us=REFERENCE_US,
        candidate_us=REFERENCE_US / speedup,
    )
    return Verdict(
        problem_id=candidate.problem_id,
        candidate_id=candidate.id,
        protocol_id="protocol",
        device_kind="cpu",
        device_id="device",
        status=status,
        reason=None if is_correct else "an output differs",
        correctness=Correctness(num_inputs=5, stage=3, precision=PrecisionClass.STRICT)
        if is_correct
        else None,
        measurement=measurement if is_correct else None,
        properties=(properties or Properties()) if is_correct else None,
        judged_at="2026-11-30T00:00:00+00:00",
        judge_s=1.0,
    )


def judgement_of(verdict: Verdict, speedups: Sequence[float]) -> Judgement:
    """Return a judgement with a measurement of two quads for each speedup."""
    samples = tuple(
        TimingSample(
            session=session,
            quad=quad,
            position=position,
            role=role,
            num_calls=1,
            burst_us=us,
            net_us=us,
        )
        for session, speedup in enumerate(speedups)
        for quad in range(2)
        for position, role, us in (
            (0, Role.REFERENCE, REFERENCE_US),
            (1, Role.CANDIDATE, REFERENCE_US / speedup),
            (2, Role.CANDIDATE, 9 * REFERENCE_US),  # interference adds time to one of two
            (3, Role.REFERENCE, REFERENCE_US),
        )
    )
    return Judgement(verdict, samples)
