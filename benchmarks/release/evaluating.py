"""Run KernelBench's own evaluator on released sources, one after the other, with wall times.

As in its batch evaluation, each candidate has a process of its own, with 180 s and an empty folder
for builds. All of its costs are counted: starting, compiling, checking and timing.

Rows come in an order that has nothing to do with their level. So the rows that were evaluated when
time ran out are a sample of all, and the time for all can be estimated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ablation.memory import Lines
from benchmarks.common import note
from benchmarks.release.children import Children, side_by_side
from benchmarks.release.jobs import run_job
from benchmarks.release.rows import Entry, Place, Which
from benchmarks.release.state import State, lines_of
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass
from cudal1.record import content_id

WORKER = Path(__file__).with_name("evaluator_worker.py")
LIMIT_S = 180.0
"""Seconds that a candidate has, as in KernelBench's batch evaluation."""


@dataclass(frozen=True)
class Evaluating:
    """The settings of the evaluator's run."""

    state: State
    which: Which
    device_class: DeviceClass
    checkout: Path
    """Checkout of KernelBench."""
    limit_s: float
    """Seconds for all of its candidates together; then nothing is begun."""
    worker: Path = WORKER
    """Script that gets each row."""

    def known(self) -> dict[Place, dict[str, Any]]:
        """Return the lines on rows that have been evaluated."""
        return known_evaluations(self.state, self.which)


def known_evaluations(state: State, which: Which) -> dict[Place, dict[str, Any]]:
    """Return the lines on rows that have been evaluated."""
    return {
        (line["level"], line["number"]): line
        for line in lines_of(state.evaluations)
        if line["which"] == which
    }


def evaluate(evaluating: Evaluating, entries: Sequence[Entry], *, deadline: float) -> None:
    """Evaluate the entries that have not been evaluated; those without a source are left out.

    Raises:
        ConfigError: the checkout has no evaluator.
    """
    if not (evaluating.checkout / "src" / "kernelbench" / "eval.py").is_file():
        raise ConfigError(
            f"{evaluating.checkout}: no src/kernelbench/eval.py in it; give --kernelbench a "
            "checkout of https://github.com/ScalingIntelligence/KernelBench"
        )
    known = evaluating.known()
    left = [entry for entry in entries if entry.source and entry.place not in known]
    left.sort(key=lambda entry: content_id(entry.name))
    spent_s = sum(line["wall_s"] for line in known.values())
    if not left or spent_s >= evaluating.limit_s:
        return
    note(f"KernelBench on {evaluating.which}: {len(left)} rows, {spent_s:.0f} s spent before")
    kept = Lines(evaluating.state.evaluations)

    def one(entry: Entry, children: Children) -> None:
        line = _line(evaluating, entry, children)
        kept.add(line)
        note(f"{entry.name}: {'correct' if line['correct'] else 'not correct'}")

    until = min(deadline, time.monotonic() + evaluating.limit_s - spent_s)
    side_by_side(left, one, beside=1, deadline=until)


def _line(evaluating: Evaluating, entry: Entry, children: Children) -> dict[str, Any]:
    folder = evaluating.state.work / f"evaluate-{evaluating.which}-{entry.name.replace(':', '-')}"
    content = {
        "checkout": str(evaluating.checkout.resolve()),
        "builds": str(folder / "builds"),
        "device": "cuda:0" if evaluating.device_class is DeviceClass.CUDA else "cpu",
    }
    said, ended = run_job(
        children, evaluating.worker, folder, entry, content, limit_s=LIMIT_S, environment={}
    )
    said = said or {"compiled": False, "correct": False, "reason": ended.why}
    return {
        "which": evaluating.which,
        "level": entry.place[0],
        "number": entry.place[1],
        "candidate_id": entry.candidate_id,
        "wall_s": ended.wall_s,
        **said,
    }
