"""Measure how often a small true gain is certified.

python -m benchmarks.timing.small_gain [--device cuda] [--tries 20] [--gains 0.01 0.02 0.05]

The reference is a module plus a wait of some cycles (CUDA) or loop turns (CPU); the candidate is
the module without it. The wait is sized by plain timing on this device, so that it costs the given
share of a call. The gain that plain timing then measures is printed beside it. A true gain of 2 %
must be certified at 1.01 or better in nine of ten tries on a quiet GPU. On a CPU the default
protocol takes nothing below 1.05 for a gain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.common import chosen, note, options, own, print_table, save
from benchmarks.timing.plain import Plain, plain
from cudal1.candidate import Candidate
from cudal1.harness.device.device import Device
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.timing import statistics
from cudal1.measurement import Role, TimingSample

WORK = {
    "matmul": ("torch.matmul(x, x)", {"cpu": (320, 320), "cuda": (2560, 2560)}),
    "softmax": ("torch.softmax(x, dim=-1)", {"cpu": (512, 512), "cuda": (16384, 4096)}),
    "silu": ("torch.nn.functional.silu(x)", {"cpu": (512, 512), "cuda": (8192, 8192)}),
}
"""Expression, and the shape of its tensors by device: 0.2 to 1 ms a call."""
WAITS = {"cpu": "for _ in range({turns}):\n            pass", "cuda": "torch.cuda._sleep({turns})"}
TRIAL_TURNS = {"cpu": (2_000, 12_000), "cuda": (50_000, 250_000)}
"""Turns of two waits, of some tens of microseconds; their costs show the cost of one turn."""
SOURCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        {wait}
        return {work}


def get_inputs():
    return [torch.randn{shape}]


def get_init_inputs():
    return []
"""
WANTED = 1.01
ROUNDS = 41
"""Rounds of plain timing: a gain of 1 % must be sized to a small part of itself."""


def main() -> None:
    """Measure, print a table, and write results/small_gain_DEVICE.json."""
    parser = options("small_gain", __doc__)
    parser.add_argument("--tries", type=int, default=20, help="verdicts on each case")
    parser.add_argument("--gains", type=float, nargs="+", default=[0.01, 0.02, 0.05])
    given = parser.parse_args()
    device, protocol = chosen(given)
    cases: list[dict[str, Any]] = []
    with Pool(device, protocol) as pool:
        for name in WORK:
            wait = Wait.measured(device, name)
            for gain in given.gains:
                turns = wait.turns(gain)
                cases.append(_case(pool, device, name, gain, turns=turns, tries=given.tries))
                note(f"{name}, {gain:.0%}: certified {cases[-1]['certified']}")
                save(f"small_gain_{given.device}", given.out, device, protocol, cases=cases)
    print_table(
        ["module", "true gain", "plain timing", "estimates, median", f"certified >= {WANTED}"],
        [
            [
                case["module"],
                f"{case['gain']:.1%}",
                f"{case['plain_speedup']:.4f}",
                f"{median(case['estimates']):.4f}" if case["estimates"] else "none",
                f"{sum(c >= WANTED for c in case['certified'])} of {given.tries}",
            ]
            for case in cases
        ],
    )


@dataclass(frozen=True)
class Wait:
    """The cost of waiting beside a module: a line through two trials."""

    call_us: float
    """Time of the module without a wait, in µs."""
    start_us: float
    """Time of a wait of no length, in µs."""
    turn_us: float

    @classmethod
    def measured(cls, device: Device, name: str) -> Wait:
        """Measure by plain timing on the device."""
        few, many = TRIAL_TURNS[device.device_class]
        seen = [_plain(device, name, turns) for turns in (few, many)]
        extra_us = [(trial.speedup - 1) * trial.candidate_us for trial in seen]
        turn_us = (extra_us[1] - extra_us[0]) / (many - few)
        return cls(
            call_us=median(trial.candidate_us for trial in seen),
            start_us=extra_us[0] - few * turn_us,
            turn_us=turn_us,
        )

    def turns(self, gain: float) -> int:
        """Return the number of turns that cost this share of a call."""
        return max(1, round((gain * self.call_us - self.start_us) / self.turn_us))


def _case(
    pool: Pool, device: Device, name: str, gain: float, *, turns: int, tries: int
) -> dict[str, Any]:
    seen = _plain(device, name, turns)
    problem = own(f"{name}_{turns}", _source(device, name, turns), device)
    candidate = Candidate(problem_id=problem.id, source=_faster(device, name))
    judgements = [pool.judge(problem, candidate) for _ in range(tries)]
    verdicts = [judgement.verdict for judgement in judgements]
    timed = [v.measurement for v in verdicts if v.measurement is not None]
    return {
        "module": name,
        "gain": gain,
        "turns": turns,
        "plain_speedup": seen.speedup,
        "plain_us": seen.candidate_us,
        "statuses": [v.status for v in verdicts],
        "estimates": [m.speedup for m in timed],
        "certified": [m.certified for m in timed],
        "doubts": [m.doubt for m in timed],
        "num_quads": [m.num_quads for m in timed],
        "judge_s": [v.judge_s for v in verdicts],
        "ratios": [_ratios(judgement.samples) for judgement in judgements],
    }


def _ratios(samples: Sequence[TimingSample]) -> list[str]:
    """Return the speedups of all quads, one line a measurement."""
    quads: dict[tuple[int, int], dict[Role, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        quads[sample.session, sample.quad][sample.role].append(sample.net_us)
    lines: dict[int, list[str]] = defaultdict(list)
    for (session, _), times in quads.items():
        ratio = statistics.log_ratio(times[Role.REFERENCE], times[Role.CANDIDATE])
        lines[session].append(f"{math.exp(ratio):.4f}")
    return [" ".join(line) for line in lines.values()]


def _plain(device: Device, name: str, turns: int) -> Plain:
    reference = _source(device, name, turns)
    return plain(reference, _faster(device, name), device=device.device_class, rounds=ROUNDS)


def _source(device: Device, name: str, turns: int) -> str:
    work, shapes = WORK[name]
    wait = WAITS[device.device_class].format(turns=turns)
    return SOURCE.format(work=work, wait=wait, shape=shapes[device.device_class])


def _faster(device: Device, name: str) -> str:
    work, shapes = WORK[name]
    shape = shapes[device.device_class]
    return SOURCE.format(work=work, wait="pass", shape=shape).replace("Model(", "ModelNew(")


if __name__ == "__main__":
    main()
