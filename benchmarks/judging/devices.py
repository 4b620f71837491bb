"""Measure the verdicts a minute that several devices give, and the share of time they measure.

python -m benchmarks.judging.devices --device cuda [--each 64] [--problems 6] [--counts 1 2]
                                     [--rounds 2]
    [--every 4]

The same queue goes through a fleet of one device and through fleets of more. It holds candidates as
a policy writes them (`benchmarks.judging.throughput`, mixed). Half of those that are not PyTorch
alone have an inline extension (`benchmarks.judging.inline`; `--every 2` makes it all of them). A
builder compiles these meanwhile, as for `cudal1 judge --candidates`: one builder for all fleets, on
the cores that none of the devices' judges needs. Every fleet has sources of its own, so that it
compiles them all.

The clock runs from the first candidate to the last verdict, preparing problems and compiling
included. It starts once the builder has compiled something and each device has given a verdict on
something else, so it does not include the start of their processes.

The time of a verdict drifts, by the machine and by the luck of its quads: one claim may take 200
where 7 are the mean. So the fleets take turns for some rounds, with fleets and devices in another
order each time. Each is first equally often in an even number of rounds, and each device alone in
a multiple of their number. Verdicts a minute are all of a fleet's over all of its time.

*Measuring or checking* is what a device's judge does while it has a candidate and waits for no
process: bursts, timed ones and those of checks, drawing inputs, computing and comparing answers
(`benchmarks.judging.judge_seconds`). Waiting for a build, for a process to begin or to end,
preparing a problem, and having nothing to judge are not measuring or checking. Shares of all
devices' wall time are printed for each.

Disturbed bursts cost more quads, which counts as measuring: so seconds and quads of a verdict are
printed, too. `--parts` shows what else became slower beside other devices; counting costs the judge
some time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from math import nan
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.common import chosen, note, options, print_table, save, shipped
from benchmarks.judging import judge_seconds
from benchmarks.judging.inline import EXPRESSIONS, extension
from benchmarks.judging.throughput import FAILING, KINDS, OF_ANSWERS
from cudal1.candidate import Candidate
from cudal1.harness.builds.builder import Builder, num_idle
from cudal1.harness.builds.toolchain import COMPILES
from cudal1.harness.device.device import find_devices, num_lanes_of
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.assignment import Assignment
from cudal1.harness.schedule.device_processes import DeviceProcess, processes_here
from cudal1.harness.schedule.fleet import Fleet
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

Queue = list[tuple[Problem, Candidate]]


def main() -> None:
    """Measure, print tables, and write results/devices_DEVICE.json."""
    parser = options("devices", __doc__)
    parser.add_argument("--each", type=int, default=64, help="candidates of a problem")
    parser.add_argument("--problems", type=int, default=6, help="problems, at most")
    parser.add_argument("--counts", type=int, nargs="+", help="of devices; default: one, and all")
    parser.add_argument("--rounds", type=int, default=2, help="each of a queue of its own")
    parser.add_argument("--every", type=int, default=4, help="so manieth candidate is an extension")
    parser.add_argument("--workers", type=int, help="of the builder; default: as it has it")
    parser.add_argument("--parts", action="store_true", help="count the judge's parts, too")
    given = parser.parse_args()
    device, protocol = chosen(given)
    devices = find_devices(device.device_class)
    counts = sorted(set(given.counts or (1, len(devices))))
    if counts[-1] > len(devices):
        parser.error(f"--counts {counts[-1]}: there are {len(devices)}")
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: at least one")
    devices = devices[: counts[-1]]
    problems = shipped(device)
    workers = num_idle(devices) if given.workers is None else given.workers
    fleets: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Builder(devices, protocol, Path(folder), num_workers=workers) as builder,
        processes_here(devices) as device_processes,
    ):
        _watch(device_processes, with_parts=given.parts)
        _warm_up(builder, queue(problems, 4, given.problems, label="before", every=given.every))
        for number, count in turns(counts, given.rounds):
            label = f"{number} of {count}"
            work = queue(problems, given.each, given.problems, label=label, every=given.every)
            queued = {problem.id for problem, _ in work}
            other = next(each for each in problems.values() if each.id not in queued)
            taken = [device_processes[(number + i) % len(device_processes)] for i in range(count)]
            judged = _judged(taken, protocol, builder, work, other)
            fleets.append({"round": number, "num_workers": workers, **judged})
            note(f"{count} devices: {fleets[-1]['per_minute']:.1f} verdicts a minute")
            save(f"devices_{given.device}", given.out, device, protocol, fleets=fleets)
    found = [together([each for each in fleets if each["num_devices"] == n]) for n in counts]
    print_table(
        [
            "devices",
            "verdicts",
            "extensions",
            "wall s",
            "a minute",
            "against the first",
            "by round",
            "measuring or checking",
            "device s a verdict",
            "quads a claim",
            "at most",
        ],
        [
            [
                str(row["num_devices"]),
                str(row["num_verdicts"]),
                str(row["num_extensions"]),
                f"{row['wall_s']:.1f}",
                f"{row['per_minute']:.1f}",
                f"{row['per_minute'] / found[0]['per_minute']:.2f}",
                " ".join(
                    f"{mine / first:.2f}"
                    for mine, first in zip(row["by_round"], found[0]["by_round"], strict=True)
                ),
                f"{row['shares'][judge_seconds.MEASURING]:.0%}",
                f"{row['num_devices'] * row['wall_s'] / row['num_verdicts']:.3f}",
                f"{mean(row['num_quads'] or [nan]):.1f}",
                f"{max(row['num_quads'] or [nan]):.0f}",
            ]
            for row in found
        ],
    )
    print("\nshares of the devices' wall time")
    print_table(
        ["", *(f"{row['num_devices']} devices" for row in found)],
        [[what, *(f"{row['shares'][what]:.1%}" for row in found)] for what in found[0]["shares"]],
    )
    if given.parts:
        print("\nseconds of all judges in each part, and calls")
        names = sorted(found[-1]["parts"], key=lambda part: -found[-1]["parts"][part][1])
        counted = [[row["parts"].get(name, (0, 0.0)) for row in found] for name in names]
        print_table(
            ["", *(f"{row['num_devices']} devices" for row in found)],
            [
                [name, *(f"{took_s:.1f} ({calls})" for calls, took_s in row)]
                for name, row in zip(names, counted, strict=True)
            ],
        )


def turns(counts: Sequence[int], num_rounds: int) -> list[tuple[int, int]]:
    """Return all fleets in their order: the round, and the number of devices."""
    return [(i, n) for i in range(num_rounds) for n in counts[:: -1 if i % 2 else 1]]


def together(fleets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one row of all rounds with the same number of devices."""
    wall_s = sum(each["wall_s"] for each in fleets)
    num_verdicts = sum(each["num_verdicts"] for each in fleets)
    return {
        "num_devices": fleets[0]["num_devices"],
        "num_verdicts": num_verdicts,
        "num_extensions": sum(each["num_extensions"] for each in fleets),
        "wall_s": wall_s,
        "per_minute": 60 * num_verdicts / wall_s,
        "by_round": [each["per_minute"] for each in sorted(fleets, key=lambda each: each["round"])],
        "shares": {
            what: sum(each["shares"][what] * each["wall_s"] for each in fleets) / wall_s
            for what in fleets[0]["shares"]
        },
        "parts": _added([each["parts"] for each in fleets]),
        "num_quads": [
            verdict["num_quads"]
            for each in fleets
            for verdict in each["verdicts"]
            if verdict["num_quads"] is not None
        ],
    }


def queue(problems: dict[str, Problem], each: int, most: int, *, label: str, every: int) -> Queue:
    """Return candidates by problem; `label` makes every source a new one, to compilers, too."""
    found: Queue = []
    for place, (name, sources) in enumerate(list(KINDS["mixed"](problems, each).items())[:most]):
        problem = problems[name]
        for i, source in enumerate(sources):
            text = source
            if (
                name in EXPRESSIONS and i % every == every - 1
            ):  # of 4, `mixed` has Triton in 2 and 3
                text = extension(name, problem, f"{i} {label}")
                text += FAILING.get((place * each + i) % OF_ANSWERS, "")
            found.append((problem, Candidate(problem_id=problem.id, source=f"{text}# {label}\n")))
    return found


def _warm_up(builder: Builder, work: Queue) -> None:
    """Have the builder compile one source, if it is to compile any."""
    for problem, candidate in work:
        if builder.num_workers and builder.takes(candidate):
            builder.begin(problem, candidate).result()
            return


def _watch(device_processes: Sequence[DeviceProcess], *, with_parts: bool) -> None:
    for device_process in device_processes:
        device_process.process.submit(judge_seconds.watch).result()
        if with_parts:
            device_process.process.submit(judge_seconds.watch_parts).result()


def _judged(
    device_processes: list[DeviceProcess],
    protocol: EvalProtocol,
    builder: Builder,
    work: Queue,
    other: Problem,
) -> dict[str, Any]:
    with Fleet(device_processes, protocol, builder=builder) as fleet:
        asked = Assignment(
            other, Candidate(problem_id=other.id, source=other.null_source), timing=True
        )
        for future in [
            device_process.process.submit(assignment.judge, asked)
            for device_process in device_processes
        ]:
            future.result()
        for device_process in device_processes:
            device_process.process.submit(judge_seconds.forget).result()
        started = time.monotonic()
        judged = [(time.monotonic() - started, each) for each in fleet.judge_all(work)]
        wall_s = time.monotonic() - started
        spent = [
            device_process.process.submit(judge_seconds.spent_s).result()
            for device_process in device_processes
        ]
        parts = [
            device_process.process.submit(judge_seconds.parts).result()
            for device_process in device_processes
        ]
    judgements = [(at_s, each) for at_s, each in judged if isinstance(each, Judgement)]
    keys = {problem.id: problem.key for problem, _ in work}
    of_extensions = {each.id for _, each in work if COMPILES in each.source}
    shares = judge_seconds.shares(spent, wall_s, num_lanes_of(device_processes[0].device))
    return {
        "num_devices": len(device_processes),
        "num_verdicts": len(judgements),
        "num_extensions": len(of_extensions),
        "wall_s": wall_s,
        "per_minute": 60 * len(judgements) / wall_s,
        "shares": shares,
        "seats": spent,
        "parts": _added(parts),
        "verdicts": [
            _row(at_s, each, keys) | {"is_extension": each.verdict.candidate_id in of_extensions}
            for at_s, each in judgements
        ],
        "refused": [each.reason for _, each in judged if not isinstance(each, Judgement)],
        "complaint": builder.complaint,
    }


def _added(
    device_processes: Sequence[Mapping[str, tuple[int, float]]],
) -> dict[str, tuple[int, float]]:
    """Return calls and seconds of each part, of all judges."""
    found: dict[str, tuple[int, float]] = {}
    for part, (calls, took_s) in chain.from_iterable(
        device_process.items() for device_process in device_processes
    ):
        known = found.get(part, (0, 0.0))
        found[part] = known[0] + calls, known[1] + took_s
    return found


def _row(at_s: float, judged: Judgement, keys: Mapping[str, str]) -> dict[str, Any]:
    verdict, claim = judged.verdict, judged.verdict.measurement
    return {
        "problem": keys[verdict.problem_id],
        "status": verdict.status,
        "reason": verdict.reason,
        "device": verdict.device_id,
        "confirmed_on": claim and claim.confirmed_on,
        "at_s": at_s,
        "judge_s": verdict.judge_s,
        "build_s": judged.build_s,
        "prepare_s": judged.prepare_s,
        "certified": claim and claim.certified,
        "num_quads": claim and claim.num_quads,
    }


if __name__ == "__main__":
    main()
