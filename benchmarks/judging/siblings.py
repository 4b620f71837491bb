"""Find the cores that slow each other down, whatever a machine says of its topology.

python -m benchmarks.judging.siblings [--core N] [--seconds 0.15]

A virtual machine may hide that two of its cores are threads of one. A loop runs on one core, by
default the last, which a device's workers have, and a second loop on each other core in turn. The
table shows the first loop's work as a share of its work alone. Nothing is saved.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.arguments import Parser
from benchmarks.common import print_table

TRIES = 3
"""Tries, of which the best counts: other programs may be at work."""


def main() -> None:
    """Measure, print a table; the slowest first."""
    parser = Parser(
        prog="python -m benchmarks.judging.siblings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--core", type=int, choices=cores, default=cores[-1])
    parser.add_argument("--seconds", type=float, default=0.15, help="of each loop")
    given = parser.parse_args()
    os.sched_setaffinity(0, {given.core})
    _count(given.seconds)  # raises the processor's clock
    alone = max(_count(given.seconds) for _ in range(TRIES))
    shares = {
        other: max(_beside(other, given.seconds) for _ in range(TRIES)) / alone
        for other in cores
        if other != given.core
    }
    topology = Path(f"/sys/devices/system/cpu/cpu{given.core}/topology/thread_siblings_list")
    said = topology.read_text().strip() if topology.exists() else "nothing"
    print(f"core {given.core}; of its siblings the machine says {said}")
    print_table(
        ["beside core", "of what it does alone"],
        [
            [str(other), f"{share:.2f}"]
            for other, share in sorted(shares.items(), key=lambda item: item[1])
        ],
    )


def _beside(other: int, seconds: float) -> int:
    """Return the iterations of a loop here while another loop runs there."""
    begun, ended = multiprocessing.Event(), multiprocessing.Event()
    neighbour = multiprocessing.Process(target=_spin, args=(other, begun, ended))
    neighbour.start()
    if not begun.wait(10):
        raise SystemExit(f"no process began on core {other}")
    count = _count(seconds)
    ended.set()
    neighbour.join()
    return count


def _spin(core: int, begun: Event, ended: Event) -> None:
    os.sched_setaffinity(0, {core})
    begun.set()
    while not ended.is_set():
        _count(0.01)


def _count(seconds: float) -> int:
    deadline, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < deadline:
        count += 1
    return count


if __name__ == "__main__":
    main()
