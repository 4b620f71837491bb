"""List the problems of KernelBench that load and are admitted, and the reasons of the others.

python -m benchmarks.kernelbench.admission --checkout DIR [--device cuda] [--levels 1 2 3 4]
    [--sizes FILE]

Every problem of a checkout of https://github.com/ScalingIntelligence/KernelBench, of which nothing
is copied, is loaded and tried as stage `problems` and `cudal1 judge` try it, without the wrong
candidates that both make afterwards.

On a GPU problems have their own sizes, which fill a GPU. On a CPU numbers above 16 are halved
(`benchmarks.kernelbench.sizes`). A problem that is rejected is tried again with the bounds 64 and
256, since shapes that do not fit together say nothing of a problem. One that is too slow, or lacks
a package or a file, is not tried in larger sizes. The last try counts; the reasons of all are kept.
A sizes file takes the place of all that.

Level 4 needs configurations from a hub: HF_HUB_OFFLINE=1 saves the wait for a hub out of reach.
Tries are kept beside the result until all are done; a run that was stopped goes on there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.ablation.memory import Lines
from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, machine, note, print_table
from benchmarks.kernelbench.sizes import sizes_of
from cudal1.errors import CudaL1Error, SuiteError
from cudal1.harness.admission.admission import probe_all
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass, Problem
from cudal1.suite import kernelbench

BOUNDS = (16, 64, 256)
"""Bounds of numbers in a problem's sizes on a CPU, in the order in which they are tried."""
MAX_REFERENCE_MS = 1000.0
"""Most milliseconds of a reference: the bound of `cudal1 judge` without a params.yaml."""
TIME_LIMIT_S = 60.0
WHATEVER_ITS_SIZES = (
    "too slow",
    "does not end",
    "raises OSError",
    "raises ModuleNotFoundError",
    "not ",
    "cannot be",
)
"""Beginnings of reasons that larger sizes do not change: time, the machine, a file that is no text.
"""
Try = dict[str, Any]


def main() -> None:
    """Try, print the tables, and write results/kernelbench_admission_DEVICE.json."""
    parser = Parser(
        prog="python -m benchmarks.kernelbench.admission",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkout", type=Path, required=True, help="of KernelBench")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--sizes", type=Path, help="a sizes file, instead of the rule")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    device_class = DeviceClass(given.device)
    file: Path = given.out / f"kernelbench_admission_{given.device}.json"
    try:
        device = find_device(device_class)
        in_sizes = loaded(given.checkout, device_class, given.sizes, given.levels)
        tries = Lines(file.with_suffix(".tries.jsonl"))
        seen = try_all(list(in_sizes.values()), tries)
    except CudaL1Error as error:
        sys.exit(str(error))
    rows = [
        verdict(dict(zip(in_sizes, several, strict=True)), seen)
        for several in zip(*in_sizes.values(), strict=True)
    ]
    levels = [summary(level, rows) for level in sorted({row["level"] for row in rows})]
    found = {
        "benchmark": file.stem,
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(device),
        "load_average": round(os.getloadavg()[1], 1),
        "revision": next(iter(in_sizes.values()))[0].revision,
        "max_reference_ms": MAX_REFERENCE_MS,
        "time_limit_s": TIME_LIMIT_S,
        "bounds": list(in_sizes),
        "sizes": given.sizes.name if given.sizes else None,
        "levels": levels,
        "problems": rows,
    }
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    tries.path.unlink()
    show(levels)


def loaded(
    checkout: Path, device_class: DeviceClass, sizes: Path | None, levels: Sequence[int]
) -> dict[int | None, list[Problem]]:
    """Return the same problems in each of the sizes to be tried, by the bound of their numbers.

    Raises:
        SuiteError: there are none, or the sizes file is malformed.
    """

    def load(sizes: Path | None) -> list[Problem]:
        found = kernelbench.load(checkout, revision=None, sizes=sizes, device_class=device_class)
        if chosen := [problem for problem in found if problem.level in levels]:
            return chosen
        raise SuiteError(f"{checkout}: has none of levels {' '.join(map(str, levels))}")

    if sizes is not None or device_class is DeviceClass.CUDA:
        return {None: load(sizes)}
    found: dict[int | None, list[Problem]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for bound in BOUNDS:
            file = Path(folder, f"at_most_{bound}.yaml")
            file.write_text(yaml.safe_dump({"cpu": sizes_of(checkout, bound)}), encoding="utf-8")
            found[bound] = load(file)
    return found


def try_all(rounds: Sequence[Sequence[Problem]], tries: Lines) -> dict[str, Try]:
    """Try each problem in those of its sizes that are needed; return what was seen by both ids.

    Args:
        rounds: the same problems in one size after the other.
        tries: what was seen already; each try is added.
    """
    seen: dict[str, Try] = {line["problem_id"]: line for line in tries}
    todo = range(len(rounds[0]))
    for problems in rounds:
        new = {problems[i].id: problems[i] for i in todo if problems[i].id not in seen}
        for problem, probe in probe_all(
            list(new.values()), max_reference_ms=MAX_REFERENCE_MS, time_limit_s=TIME_LIMIT_S
        ):
            reason = probe.admission.reason  # a weak reference is none to learn from
            seen[problem.id] = probe.model_dump(mode="json") | {"reason": reason}
            tries.add(seen[problem.id])
            note(f"{problem.key}: {reason or 'admitted'}")
        todo = [i for i in todo if not is_decided(seen[problems[i].id])]
    return seen


def is_decided(seen: Try) -> bool:
    """Return whether larger sizes would not change the result."""
    return seen["reason"] is None or seen["reason"].startswith(WHATEVER_ITS_SIZES)


def verdict(in_sizes: Mapping[int | None, Problem], seen: Mapping[str, Try]) -> dict[str, Any]:
    """Return a problem's row: admitted in the first sizes that allow it, or the last reason.

    Args:
        in_sizes: the problem in each of its sizes, by the bound of their numbers.
        seen: what `try_all` saw.
    """
    tries = [(bound, seen[each.id]) for bound, each in in_sizes.items() if each.id in seen]
    end = next((i for i, (_, each) in enumerate(tries) if is_decided(each)), len(tries) - 1)
    bound, last = tries[end]
    first = next(iter(in_sizes.values()))
    return {
        "problem": first.key,
        "level": first.level,
        "number": first.number,
        "largest": bound,
        "admitted": last["reason"] is None,
        **last,
        "before": {smaller: each["reason"] for smaller, each in tries[:end]},
    }


def class_of(reason: str) -> str:
    """Return a reason without what differs by problem: numbers, and the text of an error."""
    return re.sub(r"(?<!\S)\d\S*", "N", re.split(r": | \(", reason)[0])


def summary(level: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of a level."""
    mine = [row for row in rows if row["level"] == level]
    reasons = Counter(class_of(row["reason"]) for row in mine if not row["admitted"])
    return {
        "level": level,
        "num_loaded": len(mine),
        "num_admitted": sum(row["admitted"] for row in mine),
        "rejected": dict(reasons.most_common()),
    }


def show(levels: Sequence[dict[str, Any]]) -> None:
    """Print the tables."""
    print_table(
        ["level", "loaded", "admitted", "rejected"],
        [
            [
                str(each["level"]),
                str(each["num_loaded"]),
                str(each["num_admitted"]),
                str(sum(each["rejected"].values())),
            ]
            for each in levels
        ],
    )
    print()
    reasons = dict.fromkeys(reason for each in levels for reason in each["rejected"])
    print_table(
        ["rejected because it", *(f"level {each['level']}" for each in levels)],
        [
            [reason, *(str(each["rejected"].get(reason, 0)) for each in levels)]
            for reason in reasons
        ],
    )


if __name__ == "__main__":
    main()
