"""Test that a second verdict says what the first said: judge a run's winners again and again.

python -m benchmarks.timing.repeats --device cuda --protocol cuda-quick --of FOLDER [--rounds 2]
    [--times 2] [--most 64]

The candidates are the best one of each problem in the ledger of FOLDER (what `benchmarks.pipeline`
leaves), if it was certified as a gain. In each round each candidate is judged `--times` times, and
its problem's reference against itself once. Rounds take turns: under the protocol as it is, and
under the same with the two gates of the paper (2.4.4: variance of the buckets 0.005, which takes no
bound away, and two measurements within 10 %).

*Lost* are verdicts that certify nothing, although the candidate was chosen for a gain and is
correct again. *Both ways* are candidates that had a gain in some of their verdicts and none in
others. The spread is a candidate's largest certified speedup over its smallest, where all are
gains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

from benchmarks.common import chosen, note, options, print_table, save
from cudal1.candidate import Candidate
from cudal1.harness.schedule.pool import Pool
from cudal1.ledger import Ledger
from cudal1.ledger.shards import read_parquet
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from cudal1.settings.params import Params
from cudal1.verdict import Verdict

PAPER = {"max_bucket_variance": 0.005, "confirm_within": 0.10}
OTHERS = ("transfer", "report")
"""Stages that judge winners and references, and find no candidate."""

Row = dict[str, Any]


def main() -> None:
    """Judge, print a table, and write results/repeats_DEVICE.json."""
    parser = options("repeats", __doc__)
    parser.add_argument("--of", type=Path, required=True, help="folder of a run, with its data/")
    parser.add_argument("--rounds", type=int, default=2, help="of each protocol")
    parser.add_argument("--times", type=int, default=2, help="verdicts on a candidate in a round")
    parser.add_argument("--most", type=int, default=64, help="problems, at most")
    given = parser.parse_args()
    if min(given.rounds, given.times, given.most) < 1:
        parser.error("--rounds, --times, --most: at least 1")
    device, protocol = chosen(given)
    ways = {"as it is": protocol, "the paper's gates": protocol.model_copy(update=PAPER)}
    if protocol == ways["the paper's gates"]:
        parser.error("--protocol: has the paper's gates already; give another, such as cuda-quick")
    if not (given.of / "data" / "problems.parquet").exists():
        parser.error(f"--of {given.of}: no run is there; `benchmarks.pipeline` leaves one")
    gains = winners(given.of)[: given.most]
    if not gains:
        parser.error(f"--of {given.of}: no candidate there was certified as a gain")
    if (made_for := gains[0][0].device_class) != given.device:
        parser.error(
            f"--of {given.of}: is a run for {made_for}; --device {given.device} is another"
        )
    rows: list[Row] = []
    found: dict[str, dict[str, float | None]] = {}
    for number in range(given.rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            mine = _judged(Pool(device, ways[name]), gains, given.times)
            rows += [{"round": number, "protocol": name, **row} for row in mine]
            note(f"round {number}, {name}: {len(mine)} verdicts")
            found = {each: summary(rows, each) for each in ways}
            num_wanted = given.rounds * len(ways) * len(gains) * (given.times + 1)
            save(
                f"repeats_{given.device}",
                given.out,
                device,
                protocol,
                rounds=given.rounds,
                times=given.times,
                is_complete=len(rows) == num_wanted,
                paper={"protocol_id": ways["the paper's gates"].id, **PAPER},
                summary=found,
                verdicts=rows,
            )
    print_table(
        [
            "gates",
            "candidates",
            "verdicts",
            "lost",
            "both ways",
            "spread, median",
            "at most",
            "geo. mean",
            "quads",
            "s a verdict",
            "references",
            "above 1.00",
            "above 1.01",
        ],
        [
            [
                name,
                str(row["num_candidates"]),
                str(row["num_verdicts"]),
                f"{row['num_lost']} ({(row['num_lost'] or 0) / (row['num_verdicts'] or 1):.1%})",
                str(row["num_both_ways"]),
                _told(row["spread_median"], ".3f"),
                _told(row["spread_max"], ".2f"),
                _told(row["geometric_mean"], ".2f"),
                _told(row["quads"], ".1f"),
                _told(row["judge_s"], ".2f"),
                str(row["num_references"]),
                str(row["num_null_above_100"]),
                str(row["num_null_above_101"]),
            ]
            for name, row in found.items()
        ],
    )


def winners(folder: Path) -> list[tuple[Problem, Candidate]]:
    """Return each problem's best candidate that was certified as a gain, the best ones first."""
    frame = read_parquet(folder / "data" / "problems.parquet")
    columns = [name for name in frame.columns if name in Problem.model_fields]
    problems = [Problem.model_validate(row) for row in frame.select(columns).to_dicts()]
    by_id = {problem.id: problem for problem in problems}
    with Ledger.open(folder / "data") as ledger:
        known = ledger.sql("select distinct stage from members")["stage"].to_list()
        stages = [name for name in known if name.split("@")[0] not in OTHERS]
        rows = ledger.query(
            "winners", protocol_id=_protocol_of(folder).id, stages=stages, count=1
        ).to_dicts()
    return [
        (by_id[row["problem_id"]], Candidate(problem_id=row["problem_id"], source=row["source"]))
        for row in sorted(rows, key=lambda row: -row["certified"])
        if row["certified"] > 1 and row["problem_id"] in by_id
    ]


def _protocol_of(folder: Path) -> EvalProtocol:
    return Params.load(folder / "params.yaml").protocol


def _judged(pool: Pool, gains: Sequence[tuple[Problem, Candidate]], times: int) -> list[Row]:
    rows: list[Row] = []
    with pool:
        for problem, candidate in gains:
            null = Candidate(problem_id=problem.id, source=problem.null_source)
            for each, count in ((candidate, times), (null, 1)):
                for _ in range(count):
                    verdict = pool.judge(problem, each).verdict
                    rows.append(_row(problem, verdict, is_null=each is null))
    return rows


def _row(problem: Problem, verdict: Verdict, *, is_null: bool) -> Row:
    measured = verdict.measurement
    return {
        "problem": problem.key,
        "candidate": verdict.candidate_id,
        "is_null": is_null,
        "status": verdict.status,
        "reason": verdict.reason,
        "judge_s": verdict.judge_s,
        "measurement": None if measured is None else measured.model_dump(mode="json"),
    }


def _told(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def summary(rows: Sequence[Mapping[str, Any]], protocol: str) -> dict[str, float | None]:
    """Return figures of verdicts under one protocol; candidates not found correct are left out.

    A figure is None if there is nothing to compute it from.
    """
    mine = [r for r in rows if r["protocol"] == protocol and r["measurement"] is not None]
    nulls = [row["measurement"]["certified"] for row in mine if row["is_null"]]
    gains = [row for row in mine if not row["is_null"]]
    certified: dict[str, list[float]] = defaultdict(list)
    for row in gains:
        certified[row["candidate"]].append(max(1.0, row["measurement"]["certified"]))
    spreads = [max(each) / min(each) for each in certified.values() if min(each) > 1]
    every = [value for each in certified.values() for value in each]
    return {
        "num_candidates": len(certified),
        "num_verdicts": len(gains),
        "num_lost": sum(row["measurement"]["certified"] <= 1 for row in gains),
        "num_both_ways": sum(min(each) == 1 < max(each) for each in certified.values()),
        "spread_median": median(spreads) if spreads else None,
        "spread_max": max(spreads, default=None),
        "geometric_mean": geometric_mean(every) if every else None,
        "quads": fmean(row["measurement"]["num_quads"] for row in gains) if gains else None,
        "judge_s": fmean(row["judge_s"] for row in gains) if gains else None,
        "num_references": len(nulls),
        "num_null_above_100": sum(each > 1 for each in nulls),
        "num_null_above_101": sum(each > 1.01 for each in nulls),
    }


if __name__ == "__main__":
    main()
