"""How many more verdicts a minute several devices give, and for how much of the time they measure.

python -m benchmarks.devices --device cuda [--each 64] [--problems 6] [--counts 1 2] [--rounds 2]
    [--every 4]

The same queue goes through a fleet of one device and through fleets of more: candidates as a policy
writes them (`benchmarks.throughput`, mixed), half of those that are not PyTorch alone with an
inline extension (`benchmarks.inline`; `--every 2` makes it all of them), which a builder compiles
meanwhile, as for `cudal1 judge --candidates`: one for all fleets, on the cores that none of the
devices' judges needs. Every fleet has sources of its own, so that it compiles them all. The clock
runs from the first candidate to the last verdict, preparing problems and compiling included, once
the builder has compiled something and each device has given a verdict on something else: starting
their processes is not.

How long a verdict takes drifts, by the machine and by the luck of its quads, of which one claim may
take 200 where 7 are the mean. So the fleets take turns for some rounds, in the other order and with
the devices in another order each time (each is first equally often in an even number of rounds, and
each device alone in a multiple of their number); verdicts a minute are all of a fleet's over all of
its time.

*Measuring or checking* is what a device's judge does while it has a candidate and waits for no
process: bursts, timed ones and those of checks, drawing inputs, computing and comparing answers
(`benchmarks.judge_seconds`). Waiting for a build, for a process to begin or to end, preparing a
problem, and having nothing to judge are not; shares of all devices' wall time are printed for each.
What disturbs bursts costs more quads, which counts as measuring: so seconds and quads of a verdict
are printed, too. `--parts` tells what else became slower beside other devices; counting costs the
judge something.
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

from benchmarks import judge_seconds
from benchmarks.common import chosen, note, options, print_table, save, shipped
from benchmarks.inline import EXPRESSIONS, extension
from benchmarks.throughput import FAILING, KINDS, OF_ANSWERS
from cudal1.candidate import Candidate
from cudal1.harness import errand
from cudal1.harness.builder import Builder, num_idle
from cudal1.harness.device import find_devices, num_lanes_of
from cudal1.harness.errand import Errand
from cudal1.harness.fleet import Fleet
from cudal1.harness.judge import Judgement
from cudal1.harness.seats import Seat, seats_here
from cudal1.harness.toolchain import COMPILES
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

Queue = list[tuple[Problem, Candidate]]


def main() -> None:
    """Measure, print tables, leave results/devices_DEVICE.json."""
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
        seats_here(devices) as seats,
    ):
        _watch(seats, with_parts=given.parts)
        _warm_up(builder, queue(problems, 4, given.problems, label="before", every=given.every))
        for number, count in turns(counts, given.rounds):
            label = f"{number} of {count}"
            work = queue(problems, given.each, given.problems, label=label, every=given.every)
            queued = {problem.id for problem, _ in work}
            other = next(each for each in problems.values() if each.id not in queued)
            taken = [seats[(number + i) % len(seats)] for i in range(count)]
            judged = _judged(taken, protocol, builder, work, other)
            fleets.append({"round": number, "num_workers": workers, **judged})
            note(f"{count} devices: {fleets[-1]['per_minute']:.1f} verdicts a minute")
            save(f"devices_{given.device}", given.out, device, protocol, fleets=fleets)
    found = [together([each for each in fleets if each["num_devices"] == n]) for n in counts]
    print_table(
        ["devices", "verdicts", "extensions", "wall s", "a minute", "against the first", "by round",
         "measuring or checking", "device s a verdict", "quads a claim", "at most"],
        [[
            str(row["num_devices"]), str(row["num_verdicts"]), str(row["num_extensions"]),
            f"{row['wall_s']:.1f}", f"{row['per_minute']:.1f}",
            f"{row['per_minute'] / found[0]['per_minute']:.2f}",
            " ".join(
                f"{mine / first:.2f}"
                for mine, first in zip(row["by_round"], found[0]["by_round"], strict=True)
            ),
            f"{row['shares'][judge_seconds.MEASURING]:.0%}",
            f"{row['num_devices'] * row['wall_s'] / row['num_verdicts']:.3f}",
            f"{mean(row['num_quads'] or [nan]):.1f}", f"{max(row['num_quads'] or [nan]):.0f}",
        ] for row in found],
    )  # fmt: skip
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
    """All fleets in their order: the round, and how many devices."""
    return [(i, n) for i in range(num_rounds) for n in counts[:: -1 if i % 2 else 1]]


def together(fleets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of all rounds of as many devices."""
    wall_s = sum(each["wall_s"] for each in fleets)
    num_verdicts = sum(each["num_verdicts"] for each in fleets)
    return {
        "num_devices": fleets[0]["num_devices"], "num_verdicts": num_verdicts,
        "num_extensions": sum(each["num_extensions"] for each in fleets), "wall_s": wall_s,
        "per_minute": 60 * num_verdicts / wall_s,
        "by_round": [
            each["per_minute"] for each in sorted(fleets, key=lambda each: each["round"])
        ],
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
    }  # fmt: skip


def queue(
    problems: dict[str, Problem], each: int, most: int, *, label: str, every: int
) -> Queue:  # fmt: skip
    """Candidates by problem; `label` makes every source another one, to compilers, too."""
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
    """Have it compile one, if it is to compile any."""
    for problem, candidate in work:
        if builder.num_workers and builder.takes(candidate):
            builder.begin(problem, candidate).result()
            return


def _watch(seats: Sequence[Seat], *, with_parts: bool) -> None:
    for seat in seats:
        seat.process.submit(judge_seconds.watch).result()
        if with_parts:
            seat.process.submit(judge_seconds.watch_parts).result()


def _judged(
    seats: list[Seat], protocol: EvalProtocol, builder: Builder, work: Queue, other: Problem
) -> dict[str, Any]:
    with Fleet(seats, protocol, builder=builder) as fleet:
        asked = Errand(other, Candidate(problem_id=other.id, source=other.null_source), timing=True)
        for future in [seat.process.submit(errand.judge, asked) for seat in seats]:
            future.result()
        for seat in seats:
            seat.process.submit(judge_seconds.forget).result()
        started = time.monotonic()
        judged = [(time.monotonic() - started, each) for each in fleet.judge_all(work)]
        wall_s = time.monotonic() - started
        spent = [seat.process.submit(judge_seconds.spent_s).result() for seat in seats]
        parts = [seat.process.submit(judge_seconds.parts).result() for seat in seats]
    judgements = [(at_s, each) for at_s, each in judged if isinstance(each, Judgement)]
    keys = {problem.id: problem.key for problem, _ in work}
    of_extensions = {each.id for _, each in work if COMPILES in each.source}
    shares = judge_seconds.shares(spent, wall_s, num_lanes_of(seats[0].device))
    return {
        "num_devices": len(seats), "num_verdicts": len(judgements),
        "num_extensions": len(of_extensions), "wall_s": wall_s,
        "per_minute": 60 * len(judgements) / wall_s, "shares": shares, "seats": spent,
        "parts": _added(parts),
        "verdicts": [
            _row(at_s, each, keys) | {"is_extension": each.verdict.candidate_id in of_extensions}
            for at_s, each in judgements
        ],
        "refused": [each.reason for _, each in judged if not isinstance(each, Judgement)],
        "complaint": builder.complaint,
    }  # fmt: skip


def _added(seats: Sequence[Mapping[str, tuple[int, float]]]) -> dict[str, tuple[int, float]]:
    """Calls and seconds of each part, of all judges."""
    found: dict[str, tuple[int, float]] = {}
    for part, (calls, took_s) in chain.from_iterable(seat.items() for seat in seats):
        known = found.get(part, (0, 0.0))
        found[part] = known[0] + calls, known[1] + took_s
    return found


def _row(at_s: float, judged: Judgement, keys: Mapping[str, str]) -> dict[str, Any]:
    verdict, claim = judged.verdict, judged.verdict.measurement
    return {
        "problem": keys[verdict.problem_id], "status": verdict.status, "reason": verdict.reason,
        "device": verdict.device_id, "confirmed_on": claim and claim.confirmed_on,
        "at_s": at_s, "judge_s": verdict.judge_s, "build_s": judged.build_s,
        "prepare_s": judged.prepare_s, "certified": claim and claim.certified,
        "num_quads": claim and claim.num_quads,
    }  # fmt: skip


if __name__ == "__main__":
    main()
