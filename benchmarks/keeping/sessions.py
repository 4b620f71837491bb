"""Collect speedups of fresh processes, and try the test for a slowdown on draws of them.

python -m benchmarks.keeping.sessions [--device cuda] [--verdicts 15] [--draws 5000]

A real check takes minutes where it finds a slowdown, so few can be run (`slowdowns`). Here each of
two operations has some verdicts on the version that was proven, and some on the one that needs 1.05
times its time. A draw takes five verdicts of the first at random as a record's ten sessions. It
then checks with the others, or with those of the second. Draws share verdicts, so they are not
independent: they show whether real noise is of a kind that the test's error allows for.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

from benchmarks.common import chosen, note, options, own, print_table, save
from benchmarks.keeping.slowdowns import LIMITS, MODULE, OPERATIONS, PROVEN, REFERENCE, SLOWER
from cudal1.candidate import Candidate
from cudal1.services import keeping
from cudal1.services.checking import slowdown
from cudal1.services.checking.here import Here

NAMES = ("matmul", "tanh")
SEED = 1
Sessions = list[list[float]]
"""Speedups of the measurements of each verdict."""


def main() -> None:
    """Collect, draw, print a table, and write results/check_sessions_DEVICE.json."""
    parser = options("keeping.sessions", __doc__)
    parser.add_argument("--verdicts", type=int, default=15, help="on each version")
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--wait", type=float, default=3600.0, help="seconds for a busy device")
    given = parser.parse_args()
    device, protocol = chosen(given)
    found: dict[str, dict[str, Sessions]] = {name: {"proven": [], "slower": []} for name in NAMES}
    with Here(device.device_class, wait_s=given.wait, **LIMITS) as here:
        for _ in range(given.verdicts):
            for name in NAMES:
                arguments, call, inputs, *sizes = OPERATIONS[name]
                parts = {"arguments": arguments, "call": call}
                parts["inputs"] = inputs.format(n=sizes[device.device_class == "cuda"])
                reference = MODULE.format(name="Model", times=REFERENCE, **parts)
                problem = own(name, reference, device)
                for kind, times in (("proven", PROVEN), ("slower", SLOWER)):
                    source = MODULE.format(name="ModelNew", times=times, **parts)
                    candidate = Candidate(problem_id=problem.id, source=source)
                    said = keeping.session_speedups(here.judge(problem, candidate, protocol))
                    found[name][kind].append([round(each, 4) for each in said])
                    note(f"{name} {kind}: {said}")
    rows = [row_of(name, found[name], given.draws) for name in NAMES]
    save(
        f"check_sessions_{given.device}",
        given.out,
        device,
        protocol,
        load=os.getloadavg()[0],
        draws=given.draws,
        summary=rows,
        sessions=found,
    )
    print_table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])


def row_of(name: str, found: dict[str, Sessions], draws: int) -> dict[str, Any]:
    """Return the shares of draws that raise an alarm."""
    rng = random.Random(SEED)
    alarms = hits = 0
    for _ in range(draws):
        fast, slow = list(found["proven"]), list(found["slower"])
        rng.shuffle(fast)
        rng.shuffle(slow)
        proven = [each for verdict in fast[:5] for each in verdict][: slowdown.BASELINE]
        alarms += is_slower(proven, fast[5:])
        hits += is_slower(proven, slow)
    return {
        "operation": name,
        "verdicts": len(found["proven"]),
        "false alarms": alarms / draws,
        "found": hits / draws,
    }


def is_slower(proven: Sequence[float], verdicts: Sequence[Sequence[float]]) -> bool:
    """Return whether a check with these verdicts says slower, as `services.checking` decides."""
    left = iter(verdicts)
    for _ in range(2):
        series = list(next(left))
        while slowdown.seems_slower(series, proven) and len(series) < slowdown.SERIES:
            series += next(left)
        is_lower = slowdown.seems_slower(series, proven)
        if not is_lower or slowdown.p_value(series[: slowdown.SERIES], proven) > slowdown.ALPHA:
            return False
    return True


if __name__ == "__main__":
    main()
