"""Collect results of `benchmarks.kernelbench`: wall times, and two verdicts on each candidate."""

from __future__ import annotations

import json
import math
from typing import Any

from benchmarks.common import print_table
from benchmarks.kernelbench.candidates import Expected
from benchmarks.kernelbench.setup import Bench, problems_of
from cudal1.candidate import Candidate
from cudal1.cli.verdicts.verdict_file import Judged, read_judged
from cudal1.verdict import Status


def collect(bench: Bench) -> dict[str, Any]:
    """Return the results so far, ready to be shown and saved."""
    problems, theirs = problems_of(bench), bench.theirs()
    rows: list[dict[str, Any]] = []
    verdicts = {name: _verdicts(bench, name) for name in bench.protocols}
    for entry in bench.candidates:
        problem = problems[entry.name]
        key = problem.id, Candidate(problem_id=problem.id, source=entry.source).id
        mine = {name: _our_words(found[key]) for name, found in verdicts.items() if key in found}
        other = theirs.get(entry.name)
        row = {
            "candidate": entry.name,
            "problem": problem.key,
            "kind": entry.kind.value,
            "expected": entry.expected.value,
            "ours": mine,
            "theirs": None if other is None else _their_words(bench, other),
        }
        rows.append(row | {"notes": _notes(row)})
    # the first one: a run in one piece starts it once
    start_s = next((line["start_s"] for line in bench.lines() if "start_s" in line), None)
    theirs_s = None
    if start_s is not None and theirs:
        theirs_s = start_s + sum(line["wall_s"] for line in theirs.values())
    ours: dict[str, dict[str, Any]] = {}
    for name in (name for name, found in verdicts.items() if found):
        words = [row["ours"][name] for row in rows if name in row["ours"]]
        least = _ratio(bench, name, theirs_s) if len(words) == len(rows) else None
        ours[name] = _side(bench, name, words) | {
            "times_faster": least if len(theirs) == len(rows) else None,
            "times_faster_at_least": least,
        }
    return {
        "is_complete": len(theirs) == len(rows) and len(ours) == len(bench.protocols),
        "revision": problems[bench.candidates[0].name].revision,
        "ours": ours,
        "theirs": {"wall_s": theirs_s, "start_s": start_s, "num_evaluated": len(theirs)},
        "candidates": rows,
    }


def _verdicts(bench: Bench, name: str) -> dict[tuple[str, str], Judged]:
    """Return verdicts by problem and candidate; none before the command has ended."""
    if not bench.ours_file(name).exists():
        return {}
    judged = read_judged(bench.verdicts_file(name))
    return {(each.verdict.problem_id, each.verdict.candidate_id): each for each in judged}


def _ratio(bench: Bench, name: str, theirs_s: float | None) -> float | None:
    """Return their time so far over ours for all: what they have left only adds to it."""
    return None if theirs_s is None else theirs_s / _done(bench, name)["wall_s"]


def _done(bench: Bench, name: str) -> dict[str, Any]:
    return json.loads(bench.ours_file(name).read_text(encoding="utf-8"))


def _side(bench: Bench, name: str, words: list[dict[str, Any]]) -> dict[str, Any]:
    """Return our run under one protocol."""
    done = _done(bench, name)
    inputs = [each["num_inputs"] for each in words if each["status"] == Status.CORRECT]
    return {
        "wall_s": done["wall_s"],
        "num_judged": len(words),
        "num_correct": len(inputs),
        "min_inputs_of_correct": min(inputs, default=None),
        "protocol": bench.protocols[name].model_dump(mode="json"),
        "said": _without_places(bench, done["said"]),
    }


def _our_words(judged: Judged) -> dict[str, Any]:
    verdict = judged.verdict
    measured, checked = verdict.measurement, verdict.correctness
    return {
        "status": verdict.status.value,
        "reason": verdict.reason,
        "revision": judged.revision,
        "num_inputs": checked.num_inputs if checked else 0,
        "certified": measured.certified if measured else None,
        "reference_us": measured.reference_us if measured else None,
        "candidate_us": measured.candidate_us if measured else None,
        "judge_s": verdict.judge_s,
    }


def _their_words(bench: Bench, line: dict[str, Any]) -> dict[str, Any]:
    result = line["result"] or {"compiled": False, "correctness": False, "metadata": {}}
    status = "incorrect" if result["compiled"] else "not compiled"
    said = line["error"] or "; ".join(
        f"{name}: {value}"
        for name, value in result["metadata"].items()
        if name not in ("hardware", "device")
    )
    return {
        "status": "correct" if result["correctness"] else status,
        "reason": _without_places(bench, said)[:400],
        "wall_s": line["wall_s"],
        "runtime_ms": result["runtime"] if result["correctness"] else None,
    }


def _without_places(bench: Bench, text: str) -> str:
    """Return a text without the folders' places, which are private."""
    return text.replace(str(bench.state), "STATE").replace(str(bench.checkout), "CHECKOUT")


def _notes(row: dict[str, Any]) -> list[str]:
    """Return notes on differing and unexpected verdicts; many of these mean another fault."""
    notes: list[str] = []
    ours = {words["status"] == Status.CORRECT for words in row["ours"].values()}
    theirs = set[bool]() if row["theirs"] is None else {row["theirs"]["status"] == "correct"}
    if len(ours | theirs) > 1:
        notes.append("DISAGREE")
    if ours - {row["expected"] == Expected.CORRECT}:
        notes.append("ours unexpected")
    if theirs - {row["expected"] != Expected.WRONG}:
        notes.append("theirs unexpected")
    return notes


def show(found: dict[str, Any]) -> None:
    """Print a line a candidate, and the results."""
    rows: list[list[str]] = []
    for row in found["candidates"]:
        ours, theirs = next(iter(row["ours"].values()), {}), row["theirs"] or {}
        certified, wall_s = ours.get("certified"), theirs.get("wall_s")
        rows.append(
            [
                f"{row['problem'].partition('/')[2][:5]} {row['candidate']}",
                ours.get("status", "-"),
                f"{certified:.2f}" if certified else "-",
                str(ours.get("num_inputs", "-")),
                theirs.get("status", "-"),
                f"{wall_s:.1f}" if wall_s else "-",
                ", ".join(row["notes"]),
            ]
        )
    print_table(["candidate", "ours", "certified", "inputs", "theirs", "s there", ""], rows)
    count, theirs = len(rows), found["theirs"]
    if not found["is_complete"]:
        print("PARTIAL: run again to go on")
    if theirs["wall_s"] is not None:
        print(
            f"theirs: {theirs['wall_s']:.1f} s for {theirs['num_evaluated']} of {count}, 5 inputs "
            f"each; {theirs['start_s']:.1f} s of it to start once, as every process of it does"
        )
    is_whole = theirs["num_evaluated"] == count
    for name, side in found["ours"].items():
        times = side["times_faster_at_least"]
        print(
            f"ours, {name}: {side['wall_s']:.1f} s for {side['num_judged']} of {count}; "
            f"{side['num_correct']} correct, on {side['min_inputs_of_correct']} inputs or more each"
            + (f"; {_times(times, is_whole=is_whole)} times faster" if times else "")
        )
    print(f"KernelBench's revision: {found['revision']}")


def _times(times: float, *, is_whole: bool) -> str:
    """Return a ratio as text; a bound is not rounded up."""
    return f"{times:.1f}" if is_whole else f"at least {math.floor(10 * times) / 10:.1f}"
