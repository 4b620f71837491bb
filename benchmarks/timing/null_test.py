"""Measure how often a reference is certified faster than itself.

python -m benchmarks.timing.null_test [--device cuda] [--verdicts 220]

Every shipped problem's reference is judged against itself, in full, equally often. None of the
verdicts may be above 1.01, and at most one in a hundred above 1.00.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.common import chosen, note, options, print_table, save, shipped
from cudal1.harness.schedule.calibration import calibrate, null_verdicts
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import Problem
from cudal1.verdict import Verdict


def main() -> None:
    """Judge, print a table, and write results/null_test_DEVICE.json."""
    parser = options("null_test", __doc__)
    parser.add_argument("--verdicts", type=int, default=220, help="at least so many in all")
    given = parser.parse_args()
    device, protocol = chosen(given)
    problems = shipped(device)
    repeat = math.ceil(given.verdicts / len(problems))
    found: list[tuple[Problem, Verdict]] = []
    with Pool(device, protocol) as pool:
        for name, problem in problems.items():
            mine = list(null_verdicts(pool, [problem], repeat=repeat))
            found += mine
            note(f"{name}: {_line([verdict for _, verdict in mine])}")
            save(
                f"null_test_{given.device}",
                given.out,
                device,
                protocol,
                calibration=calibrate([verdict for _, verdict in found]).model_dump(),
                verdicts=[_row(problem, verdict) for problem, verdict in found],
            )
    total = calibrate([verdict for _, verdict in found])
    print_table(
        ["verdicts", "not correct", "above 1.00", "above 1.01", "median", "5 %", "95 %"],
        [
            [
                str(total.num_verdicts),
                str(total.num_wrong),
                _share(total.num_above_100, found),
                _share(total.num_above_101, found),
                f"{total.median or 0:.4f}",
                f"{total.low or 0:.4f}",
                f"{total.high or 0:.4f}",
            ]
        ],
    )


def _line(verdicts: Sequence[Verdict]) -> str:
    timed = [v.measurement for v in verdicts if v.measurement is not None]
    reasons = {v.reason for v in verdicts if v.reason}
    estimates = " ".join(f"{m.speedup:.3f}" for m in timed)
    highest = max((m.certified for m in timed), default=0.0)
    return "; ".join([f"estimates {estimates}", f"highest certified {highest:.2f}", *reasons])


def _row(problem: Problem, verdict: Verdict) -> dict[str, object]:
    measurement = verdict.measurement
    return {
        "problem": problem.key,
        "status": verdict.status,
        "reason": verdict.reason,
        "judge_s": verdict.judge_s,
        "measurement": None if measurement is None else measurement.model_dump(mode="json"),
    }


def _share(count: int, found: Sequence[object]) -> str:
    return f"{count} ({count / max(1, len(found)):.1%})"


if __name__ == "__main__":
    main()
