"""Test that odd problems and candidates cost nothing but themselves.

python -m benchmarks.fuzz --minutes 60 [--seed N] [--suites | --each] [--keep FOLDER] [--out FOLDER]

Suites of odd rows and single pairs are drawn with hypothesis and judged by the command line until
the time is over. Rules that a run breaks (`rules`) are faults: each is printed, made smaller, and
kept with its files. The result is results/fuzz_cpu.json. Exit code: 0 without a fault, 1 with one.

The trial of a reference has a limit of 20 s here, since many hang.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, note
from benchmarks.fuzz import grammar, hunting, running
from benchmarks.machine import cpu_name, versions


def main() -> None:
    """Fuzz, print each fault, save a summary."""
    parser = Parser(
        prog="python -m benchmarks.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument(
        "--each", action="store_true", help="nothing drawn: each piece alone, from suite SEED on"
    )
    parser.add_argument("--suites", action="store_true", help="no single pairs")
    parser.add_argument("--rows", type=int, default=24, help="odd rows of a suite")
    parser.add_argument("--quick", action="store_true", help="nothing that waits for a limit")
    parser.add_argument("--no-shrinking", action="store_true", help="report faults as they are")
    parser.add_argument("--keep", type=Path, help="folder of the faults' files")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    running.adopt()
    keep = given.keep or Path(tempfile.mkdtemp(prefix="fuzz-faults-"))
    hunt = hunting.Hunt(
        keep, deadline=time.monotonic() + 60 * given.minutes, shrinks=not given.no_shrinking
    )
    seed = given.seed
    while not hunt.is_over():
        rows = _rows(given, seed)
        if not rows:
            break
        hunt.suite(rows)
        if not (given.suites or given.each):
            for row in grammar.draw(3, -1 - seed, stalls=not given.quick):
                if not hunt.is_over():
                    hunt.single(row)
        seed += 1
        note(
            f"{hunt.num_suites} suites, {hunt.num_rows} rows, {hunt.num_singles} pairs, "
            f"{len(hunt.found)} kinds of faults"
        )
    _save(given.out, hunt, given, seed)
    for found in hunt.found.values():
        print(f"{found.fault.rule}: {found.shown}: {found.fault.said}\n  {found.folder}")
    print(f"{len(hunt.found)} kinds of faults in {hunt.num_rows + hunt.num_singles} rows")
    sys.exit(1 if hunt.found else 0)


def _rows(given: argparse.Namespace, seed: int) -> list[grammar.Row]:
    """Return the odd rows of a suite; none when each piece has had its turn."""
    if not given.each:
        return grammar.draw(given.rows, seed, stalls=not given.quick)
    first = seed * given.rows
    return grammar.one_by_one(stalls=not given.quick)[first : first + given.rows]


def _save(out: Path, hunt: hunting.Hunt, given: argparse.Namespace, end: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "benchmark": "fuzz",
        "measured": time.strftime("%Y-%m-%d"),
        "cpu": cpu_name(),
        "versions": versions("torch", "hypothesis"),
        "minutes": given.minutes,
        "seeds": [given.seed, end],
        "num_pieces": len(grammar.all_pieces()),
        "num_suites": hunt.num_suites,
        "num_rows": hunt.num_rows,
        "num_singles": hunt.num_singles,
        "outcomes": dict(Counter(hunt.outcomes).most_common()),
        "longest_run_s": round(hunt.longest_s, 1),
        "faults": [
            {
                "rule": found.fault.rule,
                "row": found.shown,
                "said": found.fault.said,
                "times": found.times,
            }
            for found in hunt.found.values()
        ],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (out / "fuzz_cpu.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
