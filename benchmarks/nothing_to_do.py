"""Time commands where nothing has changed: `dvc repro` of the whole graph, `cudal1 --help`.

python -m benchmarks.nothing_to_do [--repeat 7] [--out FOLDER]

Run it in a checkout with up-to-date stages, after `make run`. The best of several runs counts,
since other programs use the machine too. The processor time of that run stands beside it, since
other programs change it less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions

RESULTS = Path(__file__).parent / "results"
COMMANDS = {
    "python": ["-c", "pass"],
    "cudal1 --help": ["-m", "cudal1.cli", "--help"],
    "dvc version": ["-m", "dvc", "--version"],
    "dvc status": ["-m", "dvc", "status"],
    "dvc repro": ["-m", "dvc", "repro"],
}
NOTHING = "Data and pipelines are up to date."


def main() -> None:
    """Measure, print a table, save the raw numbers."""
    parser = Parser(
        prog="python -m benchmarks.nothing_to_do",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    said = subprocess.run(
        [sys.executable, "-m", "dvc", "repro", "--dry"], capture_output=True, text=True, check=False
    ).stdout
    if NOTHING not in said:
        sys.exit("something is out of date here: `dvc repro` first, then measure")
    rows = {
        name: sorted(_seconds(arguments) for _ in range(given.repeat))
        for name, arguments in COMMANDS.items()
    }
    found = {
        "benchmark": "nothing_to_do",
        "measured": time.strftime("%Y-%m-%d"),
        "machine": {
            "cpu": cpu_name(),
            "load": round(os.getloadavg()[0], 1),
            "versions": versions("dvc"),
        },
        "num_stages": said.count("didn't change"),
        "wall_s_and_cpu_s": {name: [list(pair) for pair in pairs] for name, pairs in rows.items()},
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "nothing_to_do.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['num_stages']} stages, best of {given.repeat}")
    for name, pairs in rows.items():
        wall_s, cpu_s = pairs[0]
        print(f"{name:<14} {wall_s:6.2f} s, of which {cpu_s:.2f} s on a processor")


def _seconds(arguments: list[str]) -> tuple[float, float]:
    """Return wall and processor time of a Python process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    wall_s, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return round(wall_s, 3), round(cpu_s, 3)


if __name__ == "__main__":
    main()
