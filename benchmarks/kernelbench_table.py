"""What `benchmarks.kernelbench` found: both wall times, and two verdicts on each candidate."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.common import print_table
from benchmarks.kernelbench_setup import Bench, problems_of
from cudal1.candidate import Candidate
from cudal1.cli.verdict_file import Judged, read_judged
from cudal1.verdict import Status


def collect(bench: Bench) -> dict[str, Any]:
    """What is known so far, ready to be shown and saved."""
    problems = problems_of(bench)
    done: dict[str, Any] = {}
    verdicts: dict[tuple[str, str], Judged] = {}
    if bench.ours_file.exists():
        done = json.loads(bench.ours_file.read_text(encoding="utf-8"))
        judged = read_judged(bench.verdicts_file)
        verdicts = {(each.verdict.problem_id, each.verdict.candidate_id): each for each in judged}
    theirs = bench.theirs()
    # the first one: a run in one piece starts it once
    starts = [line["start_s"] for line in bench.lines() if "start_s" in line]
    rows: list[dict[str, Any]] = []
    for entry in bench.candidates:
        problem = problems[entry.name]
        candidate = Candidate(problem_id=problem.id, source=entry.source)
        mine = verdicts.get((problem.id, candidate.id))
        other = theirs.get(entry.name)
        rows.append(
            {
                "candidate": entry.name, "problem": problem.key, "kind": entry.kind.value,
                "expected": entry.expected.value, "ours": _our_words(mine),
                "theirs": _their_words(bench, other),
            }
        )  # fmt: skip
    is_complete = bool(done) and len(theirs) == len(bench.candidates)
    ours_s = done.get("wall_s")
    theirs_s = starts[0] + sum(line["wall_s"] for line in theirs.values()) if starts else None
    inputs = [
        row["ours"]["num_inputs"]
        for row in rows
        if row["ours"] and row["ours"]["status"] == Status.CORRECT
    ]
    return {
        "is_complete": is_complete, "revision": next(iter(problems.values())).revision,
        "num_candidates": len(rows), "ours_wall_s": ours_s, "theirs_wall_s": theirs_s,
        "theirs_start_s": starts[0] if starts else None, "num_theirs": len(theirs),
        "times_faster": theirs_s / ours_s if is_complete and theirs_s and ours_s else None,
        "min_inputs_of_correct": min(inputs, default=None),
        "disagree": [row["candidate"] for row in rows if _differ(row)],
        "said": _without_places(bench, done.get("said", "")), "candidates": rows,
    }  # fmt: skip


def _our_words(judged: Judged | None) -> dict[str, Any] | None:
    if judged is None:
        return None
    verdict = judged.verdict
    measured, checked = verdict.measurement, verdict.correctness
    return {
        "status": verdict.status.value, "reason": verdict.reason, "revision": judged.revision,
        "num_inputs": checked.num_inputs if checked else 0,
        "certified": measured.certified if measured else None,
        "candidate_us": measured.candidate_us if measured else None, "judge_s": verdict.judge_s,
    }  # fmt: skip


def _their_words(bench: Bench, line: dict[str, Any] | None) -> dict[str, Any] | None:
    if line is None:
        return None
    result = line["result"] or {"compiled": False, "correctness": False, "metadata": {}}
    status = "incorrect" if result["compiled"] else "not compiled"
    meta = result["metadata"]
    said = line.get("error") or "; ".join(
        f"{name}: {value}" for name, value in meta.items() if name not in ("hardware", "device")
    )
    return {
        "status": "correct" if result["correctness"] else status,
        "reason": _without_places(bench, said)[:400], "wall_s": line["wall_s"],
        "runtime_ms": result.get("runtime", -1.0) if result["correctness"] else None,
    }  # fmt: skip


def _without_places(bench: Bench, text: str) -> str:
    """Where they lie is nobody's business."""
    return text.replace(str(bench.state), "STATE").replace(str(bench.checkout), "CHECKOUT")


def _differ(row: dict[str, Any]) -> bool:
    if row["ours"] is None or row["theirs"] is None:
        return False
    return (row["ours"]["status"] == "correct") != (row["theirs"]["status"] == "correct")


def show(found: dict[str, Any]) -> None:
    """Print a line a candidate, and what follows."""
    rows: list[list[str]] = []
    for row in found["candidates"]:
        ours, theirs = row["ours"] or {}, row["theirs"] or {}
        certified, wall_s = ours.get("certified"), theirs.get("wall_s")
        rows.append(
            [
                f"{row['problem'].partition('/')[2][:5]} {row['candidate']}",
                ours.get("status", "-"), f"{certified:.2f}" if certified else "-",
                str(ours.get("num_inputs", "-")), theirs.get("status", "-"),
                f"{wall_s:.1f}" if wall_s else "-", "DISAGREE" if _differ(row) else "",
            ]
        )  # fmt: skip
    print_table(["candidate", "ours", "certified", "inputs", "theirs", "s there", ""], rows)
    ours_s, theirs_s = found["ours_wall_s"], found["theirs_wall_s"]
    if not found["is_complete"]:
        print(
            f"PARTIAL: ours {'done' if ours_s else 'not done'}, theirs {found['num_theirs']} of "
            f"{found['num_candidates']} candidates; run again to go on"
        )
    if ours_s:
        print(
            f"ours: {ours_s:.1f} s for {found['num_candidates']} candidates, at least "
            f"{found['min_inputs_of_correct']} inputs of each correct one"
        )
    if theirs_s:
        print(f"theirs: {theirs_s:.1f} s for {found['num_theirs']} candidates, 5 inputs each")
    if found["times_faster"]:
        print(f"{found['times_faster']:.1f} times faster at revision {found['revision']}")
