"""Measure a ledger of several writers on object storage: a hundred million timing samples.

python -m benchmarks.ledger.storage --endpoint URL [--candidates 1000000] [--out FOLDER]

Ledgers with made-up facts (`benchmarks.ledger.data`) are published to a bucket by processes that
run two at a time. Neighbours have some candidates in common. An empty ledger is published last,
alone, so that its publication names what was published twice. Then each documented view is asked in
three processes one after the other, of which the middle one counts: `cold` is the first answer,
when nothing was read, and `warm` is the better of two more. Views with more than 10,000 rows are
asked for their first page, as `cudal1 sql` does. `cold_processor` is the time of all threads of the
process that asks, which two free cores would need half of.

The server is one on this machine. Its own files are in the memory of the operating system, and no
network lies between: a real bucket adds its latency to the `parts` that were read, those of opening
included. `--latency-ms` makes up a latency.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.fs

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, note, print_table
from benchmarks.ledger.data import make_shards
from benchmarks.machine import cpu_name, versions
from cudal1.ledger import Ledger
from cudal1.ledger.published.objects import ObjectFile

PAGE = 200
WRITERS = 4
AT_ONCE = 2
"""Processes that publish at the same time."""
SHARED = 1_000
"""Candidates that a writer has in common with the one before it."""
BUCKET = "cudal1-benchmark"
ALL = "which"
"""Asks what there is to ask."""
QUESTIONS = {
    "samples of one candidate": "from timing_samples where candidate_id = "
    "(select min(candidate_id) from verdicts where status = 'correct')",
    "samples, counted by role": "select role, count(*) from timing_samples group by role",
    "median of all samples": "select role, approx_quantile(net_us, 0.5) from timing_samples "
    "group by role",
}
"""Questions to samples themselves, which no documented view asks."""


def main() -> None:
    """Publish, measure, print a table, and write results/ledger_storage[_LATENCYms].json."""
    parser = Parser(
        prog="python -m benchmarks.ledger.storage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--endpoint", required=True, help="S3 server on this machine: http://…")
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--prefix", default="ledger", help="used again, if it has publications")
    parser.add_argument("--server", default="not named", help="name of the server, for the result")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    parser.add_argument(
        "--latency-ms", type=int, default=0, help="waited before each part is read, as if far away"
    )
    parser.add_argument("--tries", type=int, default=3, help="processes that ask each question")
    parser.add_argument("--publish", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    place = f"s3://{BUCKET}/{given.prefix}"
    if given.publish is not None:
        print(json.dumps(_publish(place, given, given.publish)))
    elif given.ask is not None:
        print(json.dumps(_ask(place, given)))
    else:
        found = _measured(place, given)
        given.out.mkdir(parents=True, exist_ok=True)
        far = f"_{given.latency_ms}ms" if given.latency_ms else ""
        (given.out / f"ledger_storage{far}.json").write_text(json.dumps(found, indent=1) + "\n")
        _show(found)


def _measured(place: str, given: argparse.Namespace) -> dict[str, Any]:
    store = pyarrow.fs.S3FileSystem(endpoint_override=given.endpoint, allow_bucket_creation=True)
    store.create_dir(BUCKET)
    loads = [os.getloadavg()[0]]
    published: list[dict[str, Any]] = []
    chosen = pyarrow.fs.FileSelector(
        f"{BUCKET}/{given.prefix}", recursive=True, allow_not_found=True
    )
    if not store.get_file_info(chosen):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            published = list(
                pool.map(lambda each: _run(given, "--publish", str(each)), range(WRITERS))
            )
        published.append(_run(given, "--publish", str(WRITERS)))
        for each in published:
            note(f"published: {each}")
    files = [each for each in store.get_file_info(chosen) if each.is_file]
    sizes: dict[str, int] = {}
    for each in files:
        table = each.path.split("/")[-2]
        sizes[table] = sizes.get(table, 0) + each.size
    counted = _run(given, "--ask", ALL)
    asked: dict[str, dict[str, Any]] = {}
    for name, question in counted.pop("questions").items():
        tries = [_run(given, "--ask", question["asked"]) for _ in range(given.tries)]
        tries.sort(key=lambda each: each["cold"])
        span = {"cold_least": tries[0]["cold"], "cold_most": tries[-1]["cold"]}
        asked[name] = {**question, **tries[len(tries) // 2], **span}
        loads.append(os.getloadavg()[0])
        note(f"{name}: {asked[name]}")
    return {
        "benchmark": "ledger_storage",
        "measured": time.strftime("%Y-%m-%d"),
        "facts": "made up (benchmarks/ledger/data.py)",
        "server": given.server,
        "latency_ms": given.latency_ms,
        "tries": given.tries,
        "cpu": cpu_name(),
        "load_average": {"least": min(loads), "most": max(loads)},
        "versions": versions("duckdb", "pyarrow"),
        "published": published,
        "num_files": len(files),
        "bytes": dict(sorted(sizes.items())),
        "rows": counted["rows"],
        "views": {name: each for name, each in asked.items() if name not in QUESTIONS},
        "questions": {name: each for name, each in asked.items() if name in QUESTIONS},
    }


def _run(given: argparse.Namespace, *arguments: str) -> dict[str, Any]:
    """Return what this program says in a process of its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.ledger.storage", "--endpoint", given.endpoint),
            *("--prefix", given.prefix, "--candidates", str(given.candidates)),
            *("--latency-ms", str(given.latency_ms), *arguments),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def _publish(place: str, given: argparse.Namespace, writer: int) -> dict[str, Any]:
    """Make a ledger, publish it, and publish it again."""
    each = given.candidates // WRITERS
    shared = SHARED if writer else 0
    folder = Path(tempfile.mkdtemp(prefix="ledger-storage-"))
    try:
        if writer < WRITERS:
            make_shards(folder, num_candidates=each + shared, first=writer * each - shared)
        with Ledger.open(folder):
            pass
        times, rows, num_bytes = [], {}, 0
        for _ in range(2):
            started = time.monotonic()
            with Ledger.read(folder) as ledger:
                said = ledger.publish(place, endpoint=given.endpoint, writer=f"writer-{writer}")
            times.append(round(time.monotonic() - started, 2))
            rows = rows or (said.num_rows() if said else {})
            num_bytes += sum(shard.num_bytes for shard in said.shards) if said else 0
    finally:
        shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": times[0],
        "again_seconds": times[1],
        "rows": rows,
        "bytes": num_bytes,
        "peak_memory_bytes": peak,
    }


def _ask(place: str, given: argparse.Namespace) -> dict[str, Any]:
    question: str = given.ask
    _move_away(given.latency_ms / 1000)
    started = time.monotonic()
    with Ledger.read(place, endpoint=given.endpoint) as ledger:
        connected = time.monotonic() - started
        if question == ALL:
            return _questions(ledger)
        times, spent = [], []
        for _ in range(3):
            started, before = time.monotonic(), time.process_time()
            ledger.sql(question)
            times.append(time.monotonic() - started)
            spent.append(time.process_time() - before)
        (kept,) = ledger.sql(
            "select count(*), coalesce(sum(nr_bytes), 0) from duckdb_external_file_cache()"
        ).rows()
    return {
        "connect": round(connected, 3),
        "cold": round(times[0], 3),
        "cold_processor": round(spent[0], 3),
        "warm": round(min(times[1:]), 3),
        "parts": kept[0],
        "megabytes": round(float(kept[1]) / 1e6, 1),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _move_away(latency_s: float) -> None:
    """Let each part of an object take longer, as behind a network."""
    read = ObjectFile.read

    def read_later(self: ObjectFile, size: int = -1) -> bytes:
        time.sleep(latency_s)
        return read(self, size)

    if latency_s:
        ObjectFile.read = read_later


def _questions(ledger: Ledger) -> dict[str, Any]:
    """Return what is asked of each view, and the rows of the largest tables."""
    from cudal1.ledger.published.rules import TABLES

    names = ledger.sql("select view_name from duckdb_views() where not internal order by 1")
    youngest = ledger.sql("select arg_max(candidate_id, attempt) from completions").item()
    asked = {name: f"from {name}" for (name,) in names.iter_rows() if name not in TABLES}
    asked["lineage"] = f"from lineage('{youngest}')"
    questions = {}
    for name, question in (asked | QUESTIONS).items():
        rows = ledger.sql(f"select count(*) from ({question})").item()
        page = "" if rows <= 10_000 else f" limit {PAGE}"
        questions[name] = {"rows": rows, "asked": question + page}
    tables = ("candidates", "completions", "verdicts", "timing_samples", "members", "tries")
    rows = {table: ledger.sql(f"select count(*) from {table}").item() for table in tables}
    return {"questions": questions, "rows": rows}


def _show(found: dict[str, Any]) -> None:
    asked = {**found["views"], **found["questions"]}
    print_table(
        ["asked", "rows", "connect, s", "cold, s", "processor, s", "warm, s", "parts", "MB"],
        [
            [
                *(name, str(each["rows"])),
                *(f"{each[part]:.2f}" for part in ("connect", "cold", "cold_processor", "warm")),
                *(str(each["parts"]), f"{each['megabytes']:.1f}"),
            ]
            for name, each in sorted(asked.items(), key=lambda item: -item[1]["cold"])
        ],
    )
    load = found["load_average"]
    print(f"{found['rows']}; load average {load['least']:.1f} to {load['most']:.1f}")


if __name__ == "__main__":
    main()
