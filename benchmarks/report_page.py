"""Measure the report page's size, and the cost of building it, with very many candidates.

python -m benchmarks.report_page [--large] [--out FOLDER]

For each size, a ledger is filled with made-up facts. Each candidate has a source of about 2 kB and
a verdict; every fourth one is correct, and every tenth flagged. The first twenty successes of each
problem and the fastest ones have 56 timing samples.

A process of its own then gathers what the report needs, as the stage does, and writes the page. Its
peak memory (with the database's), its seconds and the page's size are written down. Sizes: 15
problems and 1,500 candidates, 250 and 10,000, and with --large 250 and a million.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, note, print_table
from benchmarks.machine import cpu_name, versions
from cudal1.ledger import Ledger
from cudal1.report import Provenance
from cudal1.report.inputs import NULL_TEST
from cudal1.report.publish import PAGE, publish
from cudal1.settings import protocols
from tasks.report import gathered

STAGES = [*(f"generate@p{i}" for i in range(4)), "policy", "sft", "rl"]
SMALL, MIDDLE, LARGE = (15, 1_500), (250, 10_000), (250, 1_000_000)
"""Problems and candidates."""
DEVICE = "cpu"

_KEY = "printf('%016x', i)"
_FACTS = {
    "problems": """select printf('p%03d', i), 'made', 1 + i % 3, i, 'problem_' || i,
        if(i % 4 = 3, 'heldout', 'train'), 'cpu', '1',
        repeat('    x = torch.relu(x + ' || i || ')' || chr(10), 40), true, null,
        if(i % 3 = 0, ['input 0: whole numbers'], null)
        from range($problems) t(i)""",
    "candidates": f"""select {_KEY}, printf('p%03d', i % $problems),
        encode(repeat('    x = x * ' || i || ' + torch.relu(x)' || chr(10), 50))
        from range($candidates) t(i)""",
    "completions": f"""select {_KEY}, $stages[1 + i % 7], if(i % 7 < 4, 'p' || i % 7, 'policy'),
        printf('p%03d', i % $problems), 'prompt', 'template', i // $problems,
        encode('an answer'), encode(''), null, 'stop', 400, 300, null, 0.0,
        if(i >= $problems, [printf('%016x', i - $problems)], []), null, {_KEY}, null
        from range($candidates) t(i)""",
    "verdicts": f"""select {_KEY}, '{DEVICE}', $protocol, printf('p%03d', i % $problems), 'cpu0',
        if(ok, 'correct', 'incorrect'),
        if(ok, null, 'output 0: element 3 is 1.5, should be 2.5 (input 1, family normal)'),
        if(ok, 'eager', null), if(ok, s, null), if(ok, s - 0.05, null), 0.01,
        s - 0.04, s + 0.1, null, if(ok, 14, null), [s, s, s, s, s, s, s],
        if(ok, 0.0004, null), if(ok, true, null), null, null,
        if(ok, 900.0, null), if(ok, 900 / s, null), 3.0, 401, 3, 'strict', 3e-8, 0.1,
        null, 'off', ['fork', 'seccomp'], 0.5, '2026-01-01T00:00:00Z', '{{}}',
        if(ok, i % 5 > 0, null), if(ok, i % 7 > 0, null), if(ok, true, null), null,
        if(ok, true, null), if(ok, i % 2 = 0, null), if(ok, false, null), 0.1, 0.1, 0.1, 0.2
        from (select i, 1.1 + (hash(i) % 4000) / 1000 as s, i // $problems % 4 = 0 as ok
              from range($candidates) t(i))""",
    "timing_samples": f"""select {_KEY}, '{DEVICE}', $protocol, 0, n // 4, n % 4,
        if(n % 4 in (0, 3), 'reference', 'candidate'), 16, 900.0, 40 + (hash(i * 64 + n) % 100) / 10
        from range($candidates) t(i), range(56) u(n)
        where i // $problems % 4 = 0 and (i < 80 * $problems or hash(i) % 4000 > 3950)""",
    "hack_flags": f"""select {_KEY}, '{DEVICE}', $protocol, 'kind_' || (i // 10) % 12,
        if(i % 20 = 0, 'screen', 'guard'), 'line 12: x = cached[0]'
        from range(0, $candidates, 10) t(i)""",
    "training_steps": """select 'rl', i, name, hash(i) % 1000 / 1000
        from range(2000) t(i), (values ('reward_raw'), ('success'), ('kl')) n(name)""",
    "members": f"""select 'problems', 'problems', printf('p%03d', i) from range($problems) t(i)
        union all select $stages[1 + i % 7], 'completions', {_KEY} from range($candidates) t(i)
        union all select $stages[1 + i % 7], 'verdicts', {_KEY} || '/{DEVICE}/' || $protocol
        from range($candidates) t(i)""",
}
"""Queries of rows by table, in the columns' order."""


def fill(folder: Path, num_problems: int, num_candidates: int) -> None:
    """Fill a ledger with made-up facts."""
    values = {
        "problems": num_problems,
        "candidates": num_candidates,
        "stages": STAGES,
        "protocol": protocols.load(DEVICE).id,
    }
    with Ledger.open(folder) as ledger:
        for table, rows in _FACTS.items():
            used = {name: value for name, value in values.items() if f"${name}" in rows}
            ledger.sql(f"insert into {table} {rows}", used)


def build(folder: Path) -> dict[str, float]:
    """Build a ledger's page; return processor seconds of both parts, peak memory, kilobytes.

    Wall time says little on a shared machine.
    """
    started, computed = time.perf_counter(), time.process_time()
    with Ledger.read(folder) as ledger:
        problems: list[str] = ledger.query("problems")["problem_id"].to_list()
        given = gathered(
            ledger,
            _provenance(),
            _null_test(problems),
            baselines=(),
            stages=STAGES,
            problems=problems,
        )
    gather_cpu_s, gather_mb = time.process_time() - computed, _peak_mb()
    publish(given, folder)
    return {
        "wall_s": round(time.perf_counter() - started, 1),
        "gather_cpu_s": round(gather_cpu_s, 1),
        "page_cpu_s": round(time.process_time() - computed - gather_cpu_s, 1),
        "gather_peak_mb": gather_mb,
        "peak_mb": _peak_mb(),
        "page_kb": (folder / PAGE).stat().st_size // 1000,
    }


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _provenance() -> Provenance:
    return Provenance(
        title="made up",
        generated_at="2026-01-01T00:00:00Z",
        git_revision="-",
        device_kind=DEVICE,
        protocol=protocols.load(DEVICE),
    )


def _null_test(problems: list[str]) -> pl.DataFrame:
    rows = [
        {"problem_id": problem, "status": "correct", "speedup": 1.0, "certified": 1.0}
        for problem in problems
    ]
    frame = pl.DataFrame(rows, schema=NULL_TEST)
    return frame.with_columns(candidate_id=pl.lit("null test of ") + pl.col("problem_id"))


def measured(num_problems: int, num_candidates: int) -> dict[str, Any]:
    """Return the figures of one size, built in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, num_problems, num_candidates)
        note(f"{num_problems} problems, {num_candidates:,} candidates: filled")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figures = pool.apply(build, (folder,))
    return {"problems": num_problems, "candidates": num_candidates, **figures}


def main() -> None:
    """Measure every size, print the figures, write them down."""
    parser = Parser(
        prog="python -m benchmarks.report_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--large", action="store_true", help="a million candidates, too")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    sizes = [SMALL, MIDDLE, *([LARGE] if given.large else [])]
    rows = [measured(*size) for size in sizes]
    print_table(list(rows[0]), [[f"{value:,}" for value in row.values()] for row in rows])
    found = {
        "benchmark": "report_page",
        "measured": time.strftime("%Y-%m-%d"),
        "cpu": cpu_name(),
        "versions": versions("duckdb", "polars", "altair", "vl-convert-python"),
        "rows": rows,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "report_page.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
