"""Sum up sampled stacks by kind of process and by our own function, beside how busy GPUs were.

python -m benchmarks.lent.stacks STACKS [--gpus CSV] [--rate 50] [--top 8] [--out FILE]

STACKS is what `py-spy record --subprocesses --idle --format raw` writes: a line for each stack that
was seen, with its count. A function's seconds are those in which it was the innermost one of ours
in a thread, whether it computed or waited. CSV has lines of nvidia-smi that begin with the index of
a GPU and its utilization.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.common import print_table

PROCESS = re.compile(r'process (\d+):"')
PROGRAM = re.compile(r"start\.py (\S+)(?: ([a-z][\w-]*))?")
"""The program that `start.py` runs, and its first word."""
FRAME = re.compile(r"(\S.*) \((\S+):(\d+)\)")
"""A function, its file and the line."""
FORKS = ("_never_returning", "fork_kept", "_serve")
"""Functions in which forked processes of ours begin; the next function tells a process's purpose.
"""
START = "cudal1/start.py"
OURS = ("cudal1/", "benchmarks/")
SHORT = 60
"""Most characters of a program that is not ours."""


@dataclass(frozen=True)
class Stack:
    """One stack with its count."""

    process: int
    kind: str
    """Program, and the purpose that it was forked for."""
    place: str
    """Innermost function of ours, with its line."""
    count: int


def main() -> None:
    """Print both tables; write them as JSON."""
    parser = Parser(
        prog="python -m benchmarks.lent.stacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("stacks", type=Path, help="of py-spy")
    add("--gpus", type=Path, help="of nvidia-smi")
    add("--rate", type=float, default=50.0, help="samples a second (50)")
    add("--top", type=int, default=8, help="functions of each kind (8)")
    add("--out", type=Path, help="where all of it goes, as JSON")
    given = parser.parse_args()
    with given.stacks.open(encoding="utf-8", errors="replace") as lines:
        found = summarise(read(lines), rate=given.rate)
    busy = utilization(given.gpus.read_text(encoding="utf-8")) if given.gpus else {}
    if given.out:
        content = {"rate": given.rate, "busy": busy, "kinds": found}
        given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for kind, row in found.items():
        print(f"{kind}: {row['num_processes']} processes, {row['seconds']:.1f} s of their threads")
        places = list(row["places"].items())[: given.top]
        print_table(
            ["  function", "s", "share"],
            [[f"  {name}", f"{s:.1f}", f"{s / row['seconds']:.0%}"] for name, s in places],
        )
    for index, share in busy.items():
        print(f"GPU {index}: busy {share:.0%} of the time")


def read(lines: Iterable[str]) -> Iterator[Stack]:
    """Return the stacks of a raw file; a line that is none is left out."""
    for line in lines:
        text, _, count = line.rstrip("\n").rpartition(" ")
        *_, last = [None, *PROCESS.finditer(text)]
        if last is None or not count.isdigit():
            continue
        command, _, stack = text[last.end() :].partition('"')
        frames = [match.groups() for match in map(FRAME.fullmatch, stack.split(";")) if match]
        yield Stack(int(last[1]), _kind(command, frames), _place(frames), int(count))


def summarise(stacks: Iterable[Stack], *, rate: float) -> dict[str, dict[str, Any]]:
    """Return each kind's processes, seconds and functions, the most seconds first."""
    counts: dict[str, Counter[str]] = {}
    processes: dict[str, set[int]] = {}
    for stack in stacks:
        counts.setdefault(stack.kind, Counter())[stack.place] += stack.count
        processes.setdefault(stack.kind, set()).add(stack.process)
    return {
        kind: {
            "num_processes": len(processes[kind]),
            "seconds": counts[kind].total() / rate,
            "places": {place: count / rate for place, count in counts[kind].most_common()},
        }
        for kind in sorted(counts, key=lambda kind: -counts[kind].total())
    }


def utilization(text: str) -> dict[str, float]:
    """Return each GPU's mean utilization, 0 to 1, by its index."""
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        index, _, rest = line.partition(", ")
        percent = rest.partition(", ")[0].strip()
        if percent.isdigit():
            found.setdefault(index, []).append(int(percent))
    return {index: fmean(each) / 100 for index, each in found.items()}


def _kind(command: str, frames: list[tuple[str, ...]]) -> str:
    program = PROGRAM.search(command)
    named = " ".join(filter(None, program.groups())) if program else command[:SHORT]
    duties = [
        below
        for (function, *_), (below, file, _) in pairwise(frames)
        if function in FORKS and file.startswith(OURS)
    ]
    return f"{named}, forked for {duties[-1]}" if duties else named


def _place(frames: list[tuple[str, ...]]) -> str:
    for function, file, line in reversed(frames):
        if file.startswith(OURS) and file != START:
            return f"{function} ({file}:{line})"
    return "none of ours"


if __name__ == "__main__":
    main()
