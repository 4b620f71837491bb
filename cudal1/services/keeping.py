"""Make the proofs of kept versions from what the harness judges."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from cudal1.harness.device.device import Device
from cudal1.harness.judgement import Judgement
from cudal1.harness.timing.statistics import bucket_medians, log_ratio
from cudal1.kept import Proof
from cudal1.measurement import Role, TimingSample
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Verdict

LEAST_US = 0.05
"""Least net time of a call in µs; a shorter one is taken as this, so that a ratio stays finite."""


def proof_of(
    problem: Problem,
    path: str,
    verdict: Verdict,
    *,
    device: Device,
    protocol: EvalProtocol,
    inputs: Sequence[str],
    sessions: Sequence[float] = (),
    invariants: Sequence[str] = (),
) -> Proof:
    """Return the proof that a successful verdict makes.

    Args:
        problem: the problem that was judged.
        path: the problem's file, relative to the record's folder.
        verdict: correct, with a certified gain.
        device: the device that it was judged on.
        protocol: the protocol that it was judged under.
        inputs: the arguments of a call, as `kept.in_words` has them.
        sessions: speedups of fresh processes, from `session_speedups` of several judgements.
        invariants: what holds of the problem's inputs in every draw.

    Raises:
        ValueError: the verdict is no success on this problem, or certifies no gain.
    """
    if not verdict.is_successful or (verdict.speedup or 0.0) <= 1.0:
        raise ValueError(f"{verdict.candidate_id}: a verdict without a certified gain is no proof")
    if verdict.problem_id != problem.id:
        raise ValueError(f"{verdict.candidate_id}: the verdict is on another problem")
    return Proof(
        problem=path,
        problem_id=problem.id,
        device_class=problem.device_class,
        inputs=tuple(inputs),
        protocol=protocol,
        verdict=verdict,
        versions=versions_of(device),
        sessions=tuple(sessions),
        invariants=tuple(invariants),
    )


def session_speedups(judgement: Judgement) -> tuple[float, ...]:
    """Return the speedup of each measurement of a judgement, each in processes of its own."""
    sessions: dict[int, dict[int, list[TimingSample]]] = defaultdict(lambda: defaultdict(list))
    for sample in judgement.samples:
        sessions[sample.session][sample.quad].append(sample)
    found: list[float] = []
    for _, quads in sorted(sessions.items()):
        ratios: list[float] = []
        for _, samples in sorted(quads.items()):
            reference_us, candidate_us = (
                [max(each.net_us, LEAST_US) for each in samples if each.role is role]
                for role in (Role.REFERENCE, Role.CANDIDATE)
            )
            if reference_us and candidate_us:
                ratios.append(log_ratio(reference_us, candidate_us))
        if ratios:
            found += bucket_medians(ratios, num_buckets=1)
    return tuple(found)


def versions_of(device: Device) -> dict[str, str]:
    """Return the versions of what a verdict on this device depends on, by name."""
    import torch

    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "driver": device.driver or "none",
        "python": platform.python_version(),
        "processor": processor_name(),
    }


def processor_name() -> str:
    """Return the name of the processor's model; the architecture's, where the kernel has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
