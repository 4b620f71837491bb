"""How many more verdicts a minute several devices give, and how busy they are.

python -m benchmarks.devices --device cuda [--each 8] [--problems 6] [--counts 1 2]

The same queue, of candidates as a policy writes them (`benchmarks.throughput`, mixed), goes through
a fleet of one device and through fleets of more, each time under names of its own. The clock runs
from the first candidate to the last verdict, preparing problems included; opening the fleet is not.
A device is busy while a candidate is judged on it.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import chosen, note, options, print_table, save, shipped
from benchmarks.throughput import KINDS
from cudal1.candidate import Candidate
from cudal1.harness.device import find_devices
from cudal1.harness.fleet import Fleet
from cudal1.harness.judge import Judgement
from cudal1.harness.seats import Seat, seats_here
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol


def main() -> None:
    """Measure, print a table, leave results/devices_DEVICE.json."""
    parser = options("devices", __doc__)
    parser.add_argument("--each", type=int, default=8, help="candidates of a problem")
    parser.add_argument("--problems", type=int, default=6, help="problems, at most")
    parser.add_argument("--counts", type=int, nargs="+", help="of devices; default: one, and all")
    given = parser.parse_args()
    device, protocol = chosen(given)
    devices = find_devices(device.device_class)
    counts = given.counts or sorted({1, len(devices)})
    if max(counts) > len(devices):
        parser.error(f"--counts {max(counts)}: there are {len(devices)}")
    problems = shipped(device)
    sources = list(KINDS["mixed"](problems, given.each).items())[: given.problems]
    found: list[dict[str, Any]] = []
    for count in counts:
        work = [
            (problems[name], _named(problems[name], source, count))
            for name, variants in sources
            for source in variants
        ]
        with seats_here(devices[:count]) as seats:
            found.append(_judged(seats, protocol, work))
        note(f"{count} devices: {found[-1]['per_minute']:.1f} verdicts a minute")
        save(f"devices_{given.device}", given.out, device, protocol, fleets=found)
    print_table(
        ["devices", "verdicts", "wall s", "a minute", "against the first", "busy"],
        [[
            str(row["num_devices"]), str(row["num_verdicts"]), f"{row['wall_s']:.1f}",
            f"{row['per_minute']:.1f}", f"{row['per_minute'] / found[0]['per_minute']:.2f}",
            f"{row['busy']:.0%}",
        ] for row in found],
    )  # fmt: skip


def _named(problem: Problem, source: str, count: int) -> Candidate:
    """Of its own in each fleet: nothing is known of it."""
    return Candidate(problem_id=problem.id, source=f"{source}# of {count}\n")


def _judged(
    seats: list[Seat], protocol: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> dict[str, Any]:
    with Fleet(seats, protocol) as fleet:
        started = time.monotonic()
        judged = list(fleet.judge_all(work))
        wall_s = time.monotonic() - started
    verdicts = [each.verdict for each in judged if isinstance(each, Judgement)]
    return {
        "num_devices": len(seats), "num_verdicts": len(verdicts), "wall_s": wall_s,
        "per_minute": 60 * len(verdicts) / wall_s,
        "busy": sum(verdict.judge_s for verdict in verdicts) / (wall_s * len(seats)),
        "verdicts": [
            {"status": v.status, "judge_s": v.judge_s, "device": v.device_id} for v in verdicts
        ],
        "refused": [each.reason for each in judged if not isinstance(each, Judgement)],
    }  # fmt: skip


if __name__ == "__main__":
    main()
