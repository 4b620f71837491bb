"""Measure a ledger of a million candidates and a hundred million timing samples.

python -m benchmarks.ledger.scale [--candidates 1000000] [--folder FOLDER] [--out FOLDER]

Shards are made (`benchmarks.ledger.data`), a database is rebuilt from them in a process of its own,
each view is asked, and a stage asks for births while it appends, as reinforcement does. Views that
have a row for each candidate are asked for their first page, as `cudal1 sql --view` does.

A shared machine makes wall times longer. Processor times, of all threads together, stand beside
them, and are what two free cores would need at most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, note, print_table
from benchmarks.ledger.data import DEVICE, PROTOCOL, STAGES, make_shards
from benchmarks.machine import cpu_name, versions
from cudal1.baseline import Baseline
from cudal1.candidate import Candidate, Completion
from cudal1.ledger import Ledger
from cudal1.measurement import Measurement, Role, TimingSample
from cudal1.verdict import Status, Verdict

PAGE = 200
TIMES = 3
ROLLOUTS, GROUP = 100, 8


def main() -> None:
    """Measure, print a table, and write results/ledger_scale.json."""
    parser = Parser(
        prog="python -m benchmarks.ledger.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where shards are, or are made; is kept")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        print(json.dumps(_load(given.folder)))
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="ledger-scale-"))
    try:
        if not (folder / "shards").exists():
            make_shards(folder, num_candidates=given.candidates)
        found = _measured(folder)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "ledger_scale.json").write_text(json.dumps(found, indent=1) + "\n")
    _show(found)


def _measured(folder: Path) -> dict[str, Any]:
    for name in (".ledger.duckdb", ".ledger.duckdb.wal"):
        (folder / name).unlink(missing_ok=True)
    for name in ("unclaimed", "journal"):
        shutil.rmtree(folder / name, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger.scale", "--load", "--folder", str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    load = json.loads(done.stdout)
    note(f"rebuilt: {load}")
    shard_bytes = sum(path.stat().st_size for path in (folder / "shards").rglob("*.parquet"))
    with Ledger.read(folder) as ledger:
        views = _views(ledger)
    reopened, ledger = _timed(lambda: Ledger.open(folder))
    with ledger:
        rollouts = _rollouts(ledger)
    return {
        "benchmark": "ledger_scale",
        "measured": time.strftime("%Y-%m-%d"),
        "cpu": cpu_name(),
        "load_average": os.getloadavg()[1],
        "versions": versions("duckdb", "polars"),
        "rebuild": load,
        "shard_bytes": shard_bytes,
        "database_bytes": (folder / ".ledger.duckdb").stat().st_size,
        "reopen": reopened,
        "page": PAGE,
        "views": views,
        "births": rollouts,
    }


def _load(folder: Path) -> dict[str, Any]:
    times, ledger = _timed(lambda: Ledger.open(folder))
    with ledger:
        tables = ("candidates", "completions", "verdicts", "timing_samples", "members")
        rows = {table: ledger.sql(f"from {table} select count(*)").item() for table in tables}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**times, "rows": rows, "peak_memory_bytes": peak}


def _timed(do: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Return wall and processor seconds, and the result of the call."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    result = do()
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(wall, 4), "processor_seconds": round(spent, 4)}, result


def _views(ledger: Ledger) -> dict[str, dict[str, Any]]:
    names = ledger.sql("select view_name from duckdb_views() where not internal order by 1")
    youngest = ledger.sql("select arg_max(candidate_id, attempt) from completions").item()
    questions = {name: f"from {name}" for (name,) in names.iter_rows()}
    questions["lineage"] = f"from lineage('{youngest}')"
    found: dict[str, dict[str, Any]] = {}
    for name, question in questions.items():
        rows = ledger.sql(f"select count(*) from ({question})").item()
        asked = question if rows <= 10_000 else f"{question} limit {PAGE}"
        tries = [_timed(lambda asked=asked: ledger.sql(asked))[0] for _ in range(TIMES)]
        found[name] = {
            "rows": rows,
            "asked": "all" if asked == question else "first page",
            **{part: min(each[part] for each in tries) for part in tries[0]},
        }
        note(f"{name}: {found[name]}")
    return found


# --- births --------------------------------------------------------------------------------------


def _rollouts(ledger: Ledger) -> dict[str, Any]:
    """Run a stage that asks, and appends a group of answers with verdicts, again and again."""
    rng = random.Random(0)
    problems = ledger.sql("select problem_id from problems order by 1")["problem_id"].to_list()
    begun, _ = _timed(lambda: ledger.begin("rl_again"))
    first, _ = _timed(lambda: _ask(ledger, problems[0]))
    asks, processor, appends, shown = [list[float]() for _ in range(4)]
    for step in range(ROLLOUTS):
        problem_id = rng.choice(problems)
        times, births = _timed(lambda problem_id=problem_id: _ask(ledger, problem_id))
        asks.append(times["seconds"])
        processor.append(times["processor_seconds"])
        sources, _ = _timed(lambda births=births: ledger.shown(rng.sample(births, 2)))
        shown.append(sources["seconds"])
        for place in range(GROUP):
            times, _ = _timed(
                lambda place=place, step=step, problem_id=problem_id: _answer(
                    ledger, problem_id, step, place
                )
            )
            appends.append(times["seconds"])
    note(f"births: {ROLLOUTS} asks, median {median(asks) * 1000:.1f} ms")
    plain, _ = _timed(lambda: _plain(ledger, problems[1]))
    equal = all(
        [(b.candidate_id, b.score, b.born, b.island) for b in _ask(ledger, p)] == _plain(ledger, p)
        for p in problems[:: len(problems) // 5]
    )
    return {
        "begin": begun,
        "first": first,
        "asks": ROLLOUTS,
        "equal_to_plain": equal,
        "births_each": len(_ask(ledger, problems[0])),
        **{f"ask_{name}_ms": round(value * 1000, 2) for name, value in _spread(asks).items()},
        "ask_processor_median_ms": round(median(processor) * 1000, 2),
        **{f"shown_{name}_ms": round(value * 1000, 2) for name, value in _spread(shown).items()},
        **{f"append_{name}_ms": round(value * 1000, 2) for name, value in _spread(appends).items()},
        "plain_ms": round(plain["seconds"] * 1000, 1),
    }


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": median(ordered), "p95": ordered[int(0.95 * len(ordered))], "max": ordered[-1]}


def _ask(ledger: Ledger, problem_id: str) -> list[Any]:
    return ledger.births(
        problem_id,
        device_kind=DEVICE,
        protocol_id=PROTOCOL,
        stages=[*STAGES, "rl_again"],
        attempts_per_step=10_000,
    )


def _plain(ledger: Ledger, problem_id: str) -> list[tuple[Any, ...]]:
    """Return a problem's births by one plain query, to compare with `births`."""
    return ledger.sql(
        """
        select distinct c.candidate_id, v.certified,
               case when k.stage = 'rl_again' then k.attempt // 10000 end as born, k.island
        from judged v join candidates c using (candidate_id) join completions k using (candidate_id)
        where v.problem_id = ? and v.device_kind = ? and v.protocol_id = ?
          and v.status = 'correct' and v.certified is not null
          and exists (select 1 from members m where m.kind = 'verdicts'
                      and m.stage in ('filter', 'rl', 'rl_again')
                      and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id))
          and exists (select 1 from members m where m.kind = 'completions'
                      and m.stage in ('filter', 'rl', 'rl_again') and m.key = k.completion_id)
        order by c.candidate_id, born nulls first, k.island nulls first
        """,
        [problem_id, DEVICE, PROTOCOL],
    ).rows()


def _answer(ledger: Ledger, problem_id: str, step: int, place: int) -> None:
    """Append an answer with a correct candidate, and its verdict with 200 samples."""
    candidate = Candidate(problem_id=problem_id, source=f"class ModelNew: {step} {place}")
    ledger.add_completion(
        Completion(
            id=f"rl_again {step} {place}",
            stage="rl_again",
            provider="policy",
            text="x" * 1500,
            problem_id=problem_id,
            prompt_id="p",
            template_id="t",
            attempt=step * 10_000 + place,
            finish_reason="stop",
        ),
        candidate,
        None,
    )
    speedup = 1 + place / 10
    measured = Measurement(
        baseline=Baseline.EAGER,
        speedup=speedup,
        certified=speedup,
        alpha=0.01,
        num_quads=40,
        bucket_medians=(speedup,) * 7,
        bucket_variance=0.0,
        is_stable=True,
        reference_us=100.0,
        candidate_us=100 / speedup,
    )
    verdict = Verdict(
        problem_id=problem_id,
        candidate_id=candidate.id,
        protocol_id=PROTOCOL,
        device_kind=DEVICE,
        device_id="cuda:0",
        status=Status.CORRECT,
        measurement=measured,
        judge_s=1.0,
        judged_at="2026-06-01T00:00:00Z",
    )
    samples = [
        TimingSample(
            session=0,
            quad=i // 4,
            position=i % 4,
            num_calls=8,
            burst_us=800.0 + i,
            net_us=100.0,
            role=Role.REFERENCE if i % 4 in (0, 3) else Role.CANDIDATE,
        )
        for i in range(200)
    ]
    ledger.add_verdict(verdict, samples)


def _show(found: dict[str, Any]) -> None:
    load, births = found["rebuild"], found["births"]
    samples, giga = load["rows"]["timing_samples"], 1e9
    slowest = max(found["views"], key=lambda name: found["views"][name]["seconds"])
    view = found["views"][slowest]
    print_table(
        ["figure", "must", "measured"],
        [
            [
                "timing samples, candidates",
                "100 M, 1 M",
                f"{samples / 1e6:.1f} M, {load['rows']['candidates'] / 1e6:.1f} M",
            ],
            [
                "load, all tables: samples a second",
                "1 M",
                f"{samples / load['seconds'] / 1e6:.2f} M",
            ],
            [
                "  and a second of one processor",
                "",
                f"{samples / load['processor_seconds'] / 1e6:.2f} M",
            ],
            ["rebuild from shards", "stated", f"{load['seconds']:.0f} s"],
            ["its peak memory", "stated", f"{load['peak_memory_bytes'] / giga:.1f} GB"],
            [
                "database, shards",
                "stated",
                f"{found['database_bytes'] / giga:.1f} GB, {found['shard_bytes'] / giga:.1f} GB",
            ],
            [f"slowest view, {slowest}", "1 s", f"{view['seconds']:.2f} s"],
            ["  its processor time", "", f"{view['processor_seconds']:.2f} s"],
            ["exemplars of a rollout, median", "20 ms", f"{births['ask_median_ms']:.1f} ms"],
            [
                "  95th percentile, longest",
                "20 ms",
                f"{births['ask_p95_ms']:.1f} ms, {births['ask_max_ms']:.1f} ms",
            ],
            ["  processor time, median", "", f"{births['ask_processor_median_ms']:.1f} ms"],
            ["  the first question of a run", "", f"{births['first']['seconds']:.1f} s"],
            ["  asked as before", "", f"{births['plain_ms']:.0f} ms"],
            ["to open it again, for writing", "", f"{found['reopen']['seconds']:.1f} s"],
        ],
    )
    print(
        f"load average {found['load_average']:.1f}; births equal the plain ones: "
        f"{births['equal_to_plain']}"
    )


if __name__ == "__main__":
    main()
