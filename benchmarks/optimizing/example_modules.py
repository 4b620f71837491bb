"""Measure how many of the example modules get a certified gain from `cudal1 optimize`.

python -m benchmarks.optimizing.example_modules [--minutes 5] [--device cpu] [--only NAME …]

Each module of `examples/modules` is copied to an empty folder and optimized by the command, with
its default authors. What it keeps is then judged by `cudal1 judge` in a fresh process. A loss is
beyond the error where the later upper bound is below the certified speedup of the record.

Results are written after each module. Modules that the file has under the same settings are not
measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions
from cudal1 import processes
from cudal1.ledger import Ledger
from cudal1.protocol import HARNESS_VERSION

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "examples" / "modules"
RESULTS = ROOT / "benchmarks" / "results"
GAIN = 1.05
"""Certified speedup above which a module counts (issue 40)."""


def main() -> None:
    """Measure each module; write results/optimize_DEVICE.json."""
    parser = Parser(
        prog="python -m benchmarks.optimizing.example_modules",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", nargs="*", help="names of modules; default: all")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    path = given.out / f"optimize_{given.device}.json"
    settings = {"minutes": given.minutes, "device": given.device, "harness": HARNESS_VERSION}
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    rows: dict[str, Any] = known.get("modules", {}) if known.get("settings") == settings else {}
    for module in sorted(MODULES.glob("*.py")):
        if module.stem in rows or (given.only and module.stem not in given.only):
            continue
        rows[module.stem] = measured(module, minutes=given.minutes, device=given.device)
        print(module.stem, json.dumps(rows[module.stem]), flush=True)
        content = {
            "benchmark": "optimize",
            "measured": time.strftime("%Y-%m-%d"),
            "cpu": cpu_name(),
            "versions": versions("torch", "transformers"),
            "settings": settings,
            **summed_up(rows),
            "modules": dict(sorted(rows.items())),
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summed_up(rows), indent=1))


def summed_up(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of all measured modules."""
    kept = [row["certified"] or 1.0 for row in rows.values()]
    first = sorted(row["first_gain_s"] for row in rows.values() if row["first_gain_s"] is not None)
    return {
        "num_modules": len(rows),
        "num_gains": sum(each > GAIN for each in kept),
        "median_first_gain_s": first[len(first) // 2] if first else None,
        "num_losses_beyond_error": sum(bool(row["is_loss"]) for row in rows.values()),
    }


def measured(module: Path, *, minutes: float, device: str) -> dict[str, Any]:
    """Optimize one module in a folder of its own, and judge what is kept once more."""
    with tempfile.TemporaryDirectory(prefix="optimize-") as name:
        folder = Path(name)
        shutil.copy(module, folder / "model.py")
        started = time.time()
        done = _run(folder, "optimize", "model.py", "--minutes", str(minutes), "--device", device)
        row: dict[str, Any] = {
            "exit_code": done.returncode,
            "seconds": round(time.time() - started, 1),
            "load": round(os.getloadavg()[0], 1),
            "certified": None,
            "later_certified": None,
            "later_upper": None,
            "is_loss": None,
            "first_gain_s": None,
            "author": None,
            "num_verdicts": 0,
            "stopped": (done.stderr.strip().splitlines() or [""])[-1],
        }
        if (folder / "model.optimize").exists():
            row |= _of_the_ledger(folder / "model.optimize", started)
        record = folder / "model.faster.json"
        if record.exists():
            verdict = json.loads(record.read_text())["proofs"][0]["verdict"]
            row["certified"] = verdict["measurement"]["certified"]
            later = _run(
                folder,
                "judge",
                "model.py",
                "model.faster.py",
                "--device",
                device,
                "--json",
                "--wait",
                "600",
            )
            again = json.loads(later.stdout)["measurement"] if later.stdout else None
            if again is not None:
                row["later_certified"], row["later_upper"] = again["certified"], again["upper"]
                row["is_loss"] = again["upper"] is not None and again["upper"] < row["certified"]
            else:
                row["is_loss"] = True
        return row


def _of_the_ledger(folder: Path, started: float) -> dict[str, Any]:
    """Return the number of verdicts, and the first gain with its author and time."""
    with Ledger.read(folder) as ledger:
        rows = ledger.sql(
            "select v.judged_at, v.certified, max(c.provider) as provider from verdicts v "
            "join completions c using (candidate_id) where v.status = 'correct' "
            "group by all order by v.judged_at"
        ).to_dicts()
        count = ledger.sql("select count(*) as n from verdicts").item(0, "n")
    found: dict[str, Any] = {"num_verdicts": int(count)}
    gains = [row for row in rows if (row["certified"] or 0.0) > 1]
    if gains:
        first = datetime.fromisoformat(str(gains[0]["judged_at"])).timestamp()
        found["first_gain_s"] = round(first - started, 1)
        found["author"] = max(gains, key=lambda row: row["certified"])["provider"]
    return found


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        processes.python("cudal1.cli", *words),
        cwd=folder,
        env=processes.sparse(),
        text=True,
        capture_output=True,
        check=False,
    )


if __name__ == "__main__":
    main()
