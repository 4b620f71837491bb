"""Test that nothing is lost when a writing stage is killed with SIGKILL at a random moment.

python -m benchmarks.ledger.kills [--kills 100] [--sabotage journal|database] [--out FOLDER]

A process begins a stage, appends facts of each kind, exports, and begins again. It writes down what
was acknowledged, after the append has returned. Three things are checked after each kill. The
ledger must open. Every acknowledged fact must be there whole. A database that is rebuilt from
shards and journals must have the same rows.

With `--sabotage` the process acknowledges what it has not written, to show that the checks notice
this. The first kill that shows it is the last. Not each kill shows it, since what was exported is
safe.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions
from cudal1.billing import Try
from cudal1.candidate import Candidate, Completion
from cudal1.errors import CudaL1Error
from cudal1.ledger import Ledger, journal, store
from cudal1.measurement import Role, TimingSample
from cudal1.verdict import Status, Verdict

RESULTS = Path(__file__).parents[1] / "results"
STAGE, PROBLEM = "rl", "problem"
GROUP = 8
"""Number of answers in a step."""
KILLS_EACH = 20
"""Kills of one ledger; then a new ledger is used, so that checking it stays quick."""
NUM_SAMPLES = 24
APPENDS_PER_RUN = 60
LATEST_KILL_S = 1.5
"""Latest kill, in seconds after the first acknowledgement."""


def main() -> None:
    """Kill and check again and again; write results/ledger_kills.json."""
    parser = Parser(
        prog="python -m benchmarks.ledger.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--sabotage", choices=["journal", "database"])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        write_until_killed(given.child, sabotage=given.sabotage)
        return
    with tempfile.TemporaryDirectory(prefix="ledger-kills-") as name:
        found = kill_often(Path(name), num_kills=given.kills, sabotage=given.sabotage, seed=0)
    print(json.dumps(found, indent=1))
    bad = found["num_lost"] + found["num_unopened"] + found["num_rebuilt_otherwise"]
    if given.sabotage is None:
        given.out.mkdir(parents=True, exist_ok=True)
        content = {
            "benchmark": "ledger_kills",
            "measured": time.strftime("%Y-%m-%d"),
            "cpu": cpu_name(),
            "versions": versions("duckdb"),
            **found,
        }
        (given.out / "ledger_kills.json").write_text(json.dumps(content, indent=1) + "\n")
    raise SystemExit(1 if bad else 0)


def kill_often(folder: Path, *, num_kills: int, sabotage: str | None, seed: int) -> dict[str, int]:
    """Count the losses over many kills of a ledger's writer."""
    rng, lost = random.Random(seed), set[str]()
    found: dict[str, int] = dict.fromkeys(
        (
            "num_kills",
            "num_acknowledged",
            "num_lost",
            "num_unopened",
            "num_rebuilt_otherwise",
            "num_kills_in_export",
            "num_moved_aside",
        ),
        0,
    )
    for number in range(num_kills):
        data = folder / f"data-{number // KILLS_EACH}"
        _run_and_kill(data, rng.uniform(0, LATEST_KILL_S), sabotage)
        found["num_kills"] += 1
        found["num_kills_in_export"] += (data / "shards" / f".{STAGE}.new").exists()
        try:
            with Ledger.open(data) as ledger:
                lost |= {f"{data.name} {fact}" for fact in _missing(ledger, data)}
                kept = _content(ledger)
            copy = folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*ledger.duckdb*"))
            with Ledger.open(copy) as rebuilt:
                lost |= {f"{data.name} {fact}" for fact in _missing(rebuilt, data)}
                found["num_rebuilt_otherwise"] += _content(rebuilt) != kept
        except (CudaL1Error, duckdb.Error) as error:
            print(f"kill {number}: {error}", flush=True)
            found["num_unopened"] += 1
        if number % 10 == 9:
            print(f"{number + 1} kills, {len(lost)} facts lost", flush=True)
        if sabotage and (lost or found["num_unopened"] or found["num_rebuilt_otherwise"]):
            break
    ledgers = sorted(folder.glob("data-*"))
    found["num_lost"] = len(lost)
    found["num_acknowledged"] = sum(len(_acknowledged(data)) for data in ledgers)
    found["num_moved_aside"] = sum(len(list(data.glob("*.corrupt-*"))) for data in ledgers)
    return found


def _run_and_kill(data: Path, after_s: float, sabotage: str | None) -> None:
    log = data / "acknowledged"
    before = log.stat().st_size if log.exists() else 0
    command = [sys.executable, "-m", "benchmarks.ledger.kills", "--child", str(data)]
    process = subprocess.Popen([*command, *(["--sabotage", sabotage] if sabotage else [])])
    try:
        while not log.exists() or log.stat().st_size == before:
            assert process.poll() is None, "the writer ended"
            time.sleep(0.01)
        time.sleep(after_s)
    finally:
        process.kill()
        process.wait()


def write_until_killed(data: Path, *, sabotage: str | None) -> None:
    """Run a stage again and again; never return."""
    data.mkdir(parents=True, exist_ok=True)
    log = os.open(data / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if sabotage == "journal":
        journal.Journal.append = lambda self, batches: 0  # pyright: ignore[reportAttributeAccessIssue]
    elif sabotage == "database":
        store.Store._insert = lambda self, batch: None  # pyright: ignore[reportAttributeAccessIssue]
    while True:
        with Ledger.open(data) as ledger:
            ledger.begin(STAGE)
            start = ledger.sql("from completions select count(*)").item()
            for number in range(start, start + APPENDS_PER_RUN):
                _append(ledger, number, log)
            ledger.export()


def _append(ledger: Ledger, number: int, log: int) -> None:
    """Append a try, its answer with a candidate, the verdict with samples, rewards and numbers."""
    key = str(number)
    candidate = Candidate(problem_id=PROBLEM, source=f"class ModelNew: {number}")
    paid = Try.model_validate(
        {
            "request_id": key,
            "sent_at": f"2026-01-01T00:00:00.{number:06d}+00:00",
            "stage": STAGE,
            "provider": "x",
            "outcome": "answered",
            "cost_usd": 0.01,
            "at_most_usd": 0.1,
        }
    )
    ledger.add_try(paid)
    os.write(log, f"try {key}\n".encode())
    answer = Completion(
        id=key,
        stage=STAGE,
        provider="x",
        problem_id=PROBLEM,
        prompt_id="q",
        template_id="t",
        attempt=number,
        text="t" * 2000,
        finish_reason="stop",
    )
    ledger.add_completion(answer, candidate, None)
    os.write(log, f"answer {key}\n".encode())
    verdict = Verdict(
        problem_id=PROBLEM,
        candidate_id=candidate.id,
        protocol_id="p",
        device_kind="cpu",
        device_id="cpu0",
        status=Status.CRASHED,
        reason="no",
        judged_at="2026-01-01T00:00:00Z",
        judge_s=0.1,
    )
    samples = [
        TimingSample(
            session=0,
            quad=i // 4,
            position=i % 4,
            role=Role.CANDIDATE,
            num_calls=1,
            burst_us=1.0 + i,
            net_us=1.0 + i,
        )
        for i in range(NUM_SAMPLES)
    ]
    ledger.add_verdict(verdict, samples)
    os.write(log, f"verdict {candidate.id}\n".encode())
    if number % GROUP == 0:
        ledger.add_rewards(number, [(key, 1.0, 0.5)])
        ledger.add_steps(number, {"loss": 1.0})


def _missing(ledger: Ledger, data: Path) -> set[str]:
    """Return acknowledged facts that are not there whole."""
    there = {
        *(f"try {key}" for key in ledger.sql("from tries")["request_id"]),
        *(
            f"answer {key}"
            for key in ledger.sql("from completions join candidates using (candidate_id)")[
                "completion_id"
            ]
        ),
        *(
            f"verdict {key}"
            for key in ledger.sql(
                "select candidate_id from verdicts join timing_samples using (candidate_id) "
                f"group by all having count(*) = {NUM_SAMPLES}"
            )["candidate_id"]
        ),
    }
    return _acknowledged(data) - there


def _acknowledged(data: Path) -> set[str]:
    return set((data / "acknowledged").read_text().rpartition("\n")[0].splitlines())


def _content(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    tables = ledger.sql("select table_name from duckdb_tables() where table_name <> 'meta'")
    return {table: ledger.sql(f"from {table} order by all").rows() for (table,) in tables.rows()}


if __name__ == "__main__":
    main()
