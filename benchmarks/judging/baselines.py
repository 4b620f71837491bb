"""Time the table of all baselines on one device, and list the problems that have a place in each.

python -m benchmarks.judging.baselines [--device cuda] [--minutes 9] [--problems 36]

Every shipped reference is judged as a candidate in each way that the device can run it, by the code
that `cudal1 judge --suite shipped --baselines all` calls; each reference is tried first, as there.
A run ends when its minutes are over, or at Ctrl-C, once the judge has ended its current work. The
next run goes on with what has no verdict in the file beside the result, and the seconds of all runs
are added up. Without that file it begins anew. `cudal1 report` makes its tables of that file.

The clock runs from before the device is looked for until the judge's process has ended. That
process counts its seconds (`benchmarks.judging.judge_seconds`): compiling in a call counts as
measuring there, and importing the compiler counts as waiting for a build.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from itertools import chain, zip_longest
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.common import options, print_table, save
from benchmarks.judging import judge_seconds
from cudal1.baseline import Baseline, on
from cudal1.cli.judging.many import judge_many
from cudal1.cli.options.settings import choose
from cudal1.cli.verdicts.outcome import Outcome
from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.harness.device.device import Device, find_devices, num_lanes_of
from cudal1.harness.schedule.device_processes import processes_here
from cudal1.problem import Problem
from cudal1.suite import loader
from cudal1.verdict import Status

Run = dict[str, Any]


def main() -> None:
    """Judge, print the tables, write results/baselines_DEVICE.json and its file of verdicts."""
    parser = options("baselines", __doc__)
    parser.add_argument("--minutes", type=float, help="for this run; default: until all is judged")
    parser.add_argument("--problems", type=int, help="so many, of all levels; default: all")
    parser.add_argument("--names", nargs="+", type=Baseline, help="of baselines; default: all")
    given = parser.parse_args()
    started = time.monotonic()
    settings = choose(None, given.device, given.protocol, None)
    device = find_devices(settings.device_class)[0]
    problems = of_all_levels(loader.load_suite(settings.device_class), given.problems)
    baselines: list[Baseline] = given.names or on(settings.device_class)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    verdicts = out / f"baselines_{given.device}.verdicts.jsonl"
    runs = earlier_runs(out / f"baselines_{given.device}.json", verdicts)
    with processes_here([device]) as device_processes:
        device_processes[0].process.submit(judge_seconds.watch).result()
        with at_most(given.minutes):
            outcome = judge_many(
                None,
                problems,
                verdicts,
                settings,
                device_processes,
                timing=True,
                baselines=baselines,
                wait_s=0.0,
            )
        spent_s: dict[str, float] = {}
        with suppress(BrokenExecutor):  # the judge has died; the outcome says so
            spent_s = device_processes[0].process.submit(judge_seconds.spent_s).result()
    wall_s = time.monotonic() - started
    num_before = sum(run["num_verdicts"] for run in runs)
    runs.append(
        {
            "wall_s": wall_s,
            "num_verdicts": len(outcome.baselines) - num_before,
            "stopped": outcome.stopped,
            "complaints": outcome.complaints,
            "shares": judge_seconds.shares([spent_s], wall_s, num_lanes_of(device)),
        }
    )
    rows = [summary(each, outcome.of(each)) for each in baselines]
    save(
        f"baselines_{given.device}",
        out,
        device,
        settings.protocol,
        suite=problems[0].suite,
        revision=problems[0].revision,
        num_problems=len(problems),
        num_without=outcome.num_references_without,
        wall_s=sum(run["wall_s"] for run in runs),
        runs=runs,
        baselines=rows,
        verdicts=[_row(judged) for judged in outcome.baselines],
    )
    show(rows, outcome, runs, device, len(problems))


def of_all_levels(problems: Sequence[Problem], count: int | None) -> list[Problem]:
    """Return `count` problems, of each level in turn while it has any, in the suite's order."""
    levels = sorted({problem.level for problem in problems})
    by_level = [[each for each in problems if each.level == level] for level in levels]
    in_turn = [each for each in chain(*zip_longest(*by_level)) if each is not None]
    wanted = {each.id for each in in_turn[:count]}
    return [each for each in problems if each.id in wanted]


def earlier_runs(result: Path, verdicts: Path) -> list[Run]:
    """Return the earlier runs of these verdicts; none if the verdicts have been removed."""
    if not (result.exists() and verdicts.exists()):
        return []
    return json.loads(result.read_text(encoding="utf-8"))["runs"]


@contextmanager
def at_most(minutes: float | None) -> Iterator[None]:
    """Interrupt the block, as Ctrl-C would, when its time is over."""

    def over(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 60 * (minutes or 0.0))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def summary(baseline: Baseline, judged: Sequence[Judged]) -> dict[str, Any]:
    """Return how many problems have a baseline, its gain over eager, and the others' reasons.

    Only correct ones are in a denominator.
    """
    correct = [each for each in judged if each.verdict.status is Status.CORRECT]
    measured = [each.verdict.measurement for each in correct if each.verdict.measurement]
    return {
        "baseline": baseline.value,
        "num_judged": len(judged),
        "num_correct": len(correct),
        "judge_s": sum(each.verdict.judge_s for each in judged),
        "median": median(m.speedup for m in measured) if measured else None,
        "geometric_mean": geometric_mean(m.speedup for m in measured) if measured else None,
        "largest": max((m.speedup for m in measured), default=None),
        "without": {
            each.problem: f"{each.verdict.status}: {each.verdict.reason}"
            for each in judged
            if each.verdict.status is not Status.CORRECT
        },
    }


def show(
    rows: Sequence[dict[str, Any]],
    outcome: Outcome,
    runs: Sequence[Run],
    device: Device,
    num_problems: int,
) -> None:
    """Print the table, the problems without a place in it, and the use of the seconds."""
    print_table(
        [
            "baseline",
            "judged",
            "in the denominator",
            "median",
            "geo. mean",
            "largest",
            "s a verdict",
        ],
        [
            [
                row["baseline"],
                str(row["num_judged"]),
                str(row["num_correct"]),
                *(_times(row[key]) for key in ("median", "geometric_mean", "largest")),
                f"{row['judge_s'] / max(1, row['num_judged']):.2f}",
            ]
            for row in rows
        ],
    )
    for row in rows:
        for problem, why in row["without"].items():
            print(f"without {row['baseline']}: {problem}: {why[:160]}")
    for complaint in outcome.complaints:
        print(complaint)
    for number, run in enumerate(runs, start=1):
        parts = ", ".join(f"{what} {share:.0%}" for what, share in run["shares"].items())
        ended = f" ({run['stopped']})" if run["stopped"] else ""
        print(
            f"run {number}: {run['num_verdicts']} verdicts in {run['wall_s']:.0f} s{ended}: {parts}"
        )
    total_s = sum(run["wall_s"] for run in runs)
    print(
        f"{num_problems} problems on {device.kind}: {total_s / 60:.1f} minutes; "
        f"{outcome.num_references_without} verdicts missing"
    )


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _row(judged: Judged) -> dict[str, Any]:
    verdict, measured = judged.verdict, judged.verdict.measurement
    row = {
        "problem": judged.problem,
        "baseline": judged.baseline,
        "status": verdict.status,
        "reason": verdict.reason,
        "judge_s": verdict.judge_s,
    }
    if measured is None:
        return row
    return row | {
        "speedup": measured.speedup,
        "certified": measured.certified,
        "at_most": measured.at_most,
        "reference_us": measured.reference_us,
        "candidate_us": measured.candidate_us,
        "num_quads": measured.num_quads,
    }


if __name__ == "__main__":
    main()
