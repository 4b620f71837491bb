"""Measure how often `cudal1 check` finds a planted slowdown of 5 %, and how often it cries wolf.

python -m benchmarks.keeping.slowdowns [--device cuda] [--records 10] [--unchanged 20] [--planted 2]

A version calls an operation 20 times where its reference calls it 30 times. Its record has ten
sessions, as after `cudal1 check --update`.

*Unchanged* is the check of that version by that record. *Planted* is the same record with a version
that calls the operation 21 times. It needs 1.05 times the time of the one that was proven. The
record names the slower source, as if the same source had become slower. A new library does that,
and none can be planted.

Unchanged and planted checks of all records come in turns, each round with judges of its own. The
machine may do other things meanwhile; the load is recorded.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median, stdev
from typing import Any

from benchmarks.common import chosen, note, options, own, print_table, save
from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.harness.device.device import Device
from cudal1.kept import SUFFIX, Kept, Proof
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from cudal1.record import content_id
from cudal1.services import keeping
from cudal1.services.checking import slowdown
from cudal1.services.checking.check import check
from cudal1.services.checking.finding import Finding, State
from cudal1.services.checking.here import Here
from cudal1.verdict import Verdict

MODULE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class {name}(nn.Module):
    def forward(self, {arguments}):
        for _ in range({times}):
            z = {call}
        return z


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
OPERATIONS = {
    "matmul": ("x, y", "x @ y", "torch.randn({n}, {n}), torch.randn({n}, {n})", 192, 1024),
    "tanh": ("x", "torch.tanh(x)", "torch.randn({n}, {n})", 256, 2048),
    "softmax": ("x", "torch.softmax(x, -1)", "torch.randn({n}, {n})", 192, 2048),
    "layer_norm": ("x", "F.layer_norm(x, x.shape[1:])", "torch.randn({n}, {n})", 256, 2048),
    "gelu": ("x", "F.gelu(x)", "torch.randn({n}, {n})", 192, 2048),
}
"""Arguments, call, inputs, and the size on a CPU and on a GPU, by the operation's name."""
REFERENCE, PROVEN, SLOWER = 30, 20, 21
"""Calls of the reference, of the version that was proven, and of the slower one."""
LIMITS = {"max_reference_ms": 1000.0, "time_limit_s": 60.0}

Row = dict[str, Any]


def main() -> None:
    """Check, print a table, and write results/check_slowdowns_DEVICE.json."""
    parser = options("keeping.slowdowns", __doc__)
    parser.add_argument("--records", type=int, default=10, help="records, of operations in turn")
    parser.add_argument("--unchanged", type=int, default=20, help="unchanged checks of each record")
    parser.add_argument("--planted", type=int, default=2, help="planted checks of each record")
    parser.add_argument("--wait", type=float, default=3600.0, help="seconds for a busy device")
    given = parser.parse_args()
    device, protocol = chosen(given)
    baselines: list[Row] = []
    rows: list[Row] = []

    def keep(is_complete: bool) -> None:
        save(
            f"check_slowdowns_{given.device}",
            given.out,
            device,
            protocol,
            is_complete=is_complete,
            rule={"alpha": slowdown.ALPHA, "margin": slowdown.MARGIN, "series": slowdown.SERIES},
            summary=summary(rows),
            records=baselines,
            checks=rows,
        )

    with tempfile.TemporaryDirectory(prefix="cudal1-check-") as made:
        folders: list[tuple[Path, Path, str]] = []
        for number in range(given.records):
            name = list(OPERATIONS)[number % len(OPERATIONS)]
            with here(device, given) as judge:
                fast, slow, proof = planted(Path(made) / str(number), name, judge, protocol)
            folders.append((fast, slow, name))
            baselines.append(
                {
                    "operation": name,
                    "sessions": [round(each, 4) for each in proof.sessions],
                    "detects": slowdown.detectable(proof.sessions),
                    "load": os.getloadavg()[0],
                }
            )
            note(f"record {number} of {name}: {median(proof.sessions):.3f}x")
            keep(False)
        for number in range(given.unchanged):
            # spread planted checks over the run
            before = -(-number * given.planted // given.unchanged)
            is_due = -(-(number + 1) * given.planted // given.unchanged) > before
            for is_planted in (True, False) if is_due else (False,):
                with here(device, given) as judge:
                    for index, (fast, slow, name) in enumerate(folders):
                        found = judged(slow if is_planted else fast, judge)
                        rows.append(row_of(found, name, index, is_planted=is_planted))
                        note(f"{name}, planted {is_planted}: {found.state}: {found.reason}")
                        keep(False)
        keep(True)
    counts = summary(rows)
    print_table(list(counts), [[str(value) for value in counts.values()]])


def here(device: Device, given: argparse.Namespace) -> Here:
    """Return judges of a round; other judges get the device between two rounds."""
    return Here(device.device_class, wait_s=given.wait, **LIMITS)


def planted(
    folder: Path, name: str, judge: Here, protocol: EvalProtocol
) -> tuple[Path, Path, Proof]:
    """Return a record, one with the same figures for the slower version, and the proof."""
    arguments, call, inputs, *sizes = OPERATIONS[name]
    size = sizes[judge.device.device_class == "cuda"]

    def source(called: str, times: int) -> str:
        return MODULE.format(
            name=called, arguments=arguments, call=call, inputs=inputs.format(n=size), times=times
        )

    problem = own(name, source("Model", REFERENCE), judge.device)
    fast, slow = source("ModelNew", PROVEN), source("ModelNew", SLOWER)
    proof = proven(problem, fast, judge, protocol)
    paths: list[Path] = []
    for version, text in (("fast", fast), ("slow", slow)):
        place = folder / version
        place.mkdir(parents=True)
        (place / "model.py").write_text(problem.source, encoding="utf-8")
        candidate = Candidate(problem_id=problem.id, source=text)
        verdict = proof.verdict.model_copy(update={"candidate_id": candidate.id})
        kept = Kept(
            version="model.faster.py",
            candidate_source_id=content_id(text),
            replaces=None,
            proofs=(proof.model_copy(update={"verdict": verdict}),),
        )
        paths.append(records.write(place, "model", text, kept))
        assert paths[-1].name == f"model{SUFFIX}"
    return paths[0], paths[1], proof


def proven(problem: Problem, source: str, judge: Here, protocol: EvalProtocol) -> Proof:
    """Return the proof of a version, with as many sessions as a record has."""
    candidate = Candidate(problem_id=problem.id, source=source)
    verdict: Verdict | None = None
    sessions: tuple[float, ...] = ()
    while len(sessions) < slowdown.BASELINE or verdict is None:
        said = judge.judge(problem, candidate, protocol)
        if (said.verdict.speedup or 0.0) > 1.0:
            verdict = verdict or said.verdict
        sessions += keeping.session_speedups(said)
    return keeping.proof_of(
        problem,
        "model.py",
        verdict,
        device=judge.device,
        protocol=protocol,
        inputs=("drawn by get_inputs",),
        sessions=sessions[: slowdown.BASELINE],
    )


def judged(path: Path, judge: Here) -> Finding:
    """Return the finding on a record's only proof."""
    kept = records.read(path)
    return check(path, kept, kept.proofs[0], judge.judge, judge.device)


def row_of(found: Finding, name: str, number: int, *, is_planted: bool) -> Row:
    """Return a finding in short."""
    return {
        "operation": name,
        "record": number,
        "planted": is_planted,
        "state": str(found.state),
        "change": found.speedup and round(found.speedup / found.proven - 1, 4),
        "num_sessions": len(found.sessions),
        "p_value": found.p_value,
        "took_s": round(found.took_s, 1),
        "load": round(os.getloadavg()[0], 1),
        "reason": found.reason,
    }


def summary(rows: list[Row]) -> Row:
    """Return the counts of all checks."""
    unchanged = [row for row in rows if not row["planted"]]
    slower = [row for row in rows if row["planted"]]
    changes = [row["change"] for row in unchanged if row["change"] is not None]
    return {
        "unchanged": len(unchanged),
        "false alarms": sum(row["state"] != State.FINE for row in unchanged),
        "planted": len(slower),
        "found": sum(row["state"] == State.SLOWER for row in slower),
        "spread of unchanged": round(stdev(changes), 4) if len(changes) > 1 else None,
        "s an unchanged check": _typical(unchanged),
        "s a planted check": _typical(slower),
    }


def _typical(rows: list[Row]) -> float | None:
    return median(row["took_s"] for row in rows) if rows else None


if __name__ == "__main__":
    began = time.monotonic()
    main()
    note(f"{time.monotonic() - began:.0f} s")
