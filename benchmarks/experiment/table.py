"""Compare methods at equal budget over several runs of the pipeline, one a seed.

    python -m benchmarks.experiment.table --base GRPO SEED=FOLDER… [--out FILE]

Each FOLDER is a work folder of `benchmarks.pipeline`, or a copy of its `data` with the ledger.
Folders of one seed may have different rows; what several have is counted once. Problems must be the
same for all. What is compared, and why, is in `cudal1.selection.budget`: best so far at equal
budget, beside an echo of each method with exemplars.

Per method, over problems and seeds: the first answers alone, the best of all and the area; later
answers over echo, seed by seed; shares of copies and of progress; the ratio to the base method.
Per row of training: numbers of its first and last fifth of steps.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

from benchmarks.arguments import Parser
from benchmarks.common import print_table
from cudal1.ledger import Ledger
from cudal1.selection import budget
from cudal1.selection.progress import IMPROVED, REFERENCE_SCORE

ANSWERS = """
select m.stage, c.problem_id, c.attempt, max(coalesce(v.certified, 0)) as reward,
       any_value(k.best_shown) as best_shown, any_value(k.is_copy) as is_copy
from members m join completions c on m.kind = 'completions' and c.completion_id = m.key
left join copies k using (completion_id)
left join judged v on v.candidate_id = c.candidate_id and v.status = 'correct'
where m.stage like 'search@%' and c.finish_reason <> 'exhausted'
group by all order by all
"""
"""By `members`: two methods of one policy share the answers of their first round."""
STEPS = ("reward_raw", "success", "copied", "progressed", "new", "distinct", "entropy")
"""Numbers of a training step that are told."""


@dataclass
class Told:
    """The worth of one method's answers with one seed."""

    rewards: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """By problem, in the order of the answers; 0 for a failure."""
    shown: list[tuple[bool, bool]] = field(default_factory=list[tuple[bool, bool]])
    """A pair for each answer to a prompt with exemplars: is a copy, is progress."""


Methods = Mapping[str, Mapping[int, Told]]
"""By name, by seed."""


def main() -> None:
    """Print the tables, and write them."""
    parser = Parser(
        prog="python -m benchmarks.experiment.table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", metavar="SEED=FOLDER")
    parser.add_argument("--base", required=True, help="the method that others are compared with")
    parser.add_argument("--out", type=Path, help="a JSON file")
    given = parser.parse_args()
    folders = [
        (int(seed), Path(path)) for seed, _, path in (f.partition("=") for f in given.folders)
    ]
    methods, steps, first_round = read(folders)
    if given.base not in methods:
        sys.exit(f"--base {given.base}: no such method; there are {', '.join(sorted(methods))}")
    found = {
        "base": given.base,
        "methods": {name: row(methods, name, given.base, first_round) for name in sorted(methods)},
        "training": {name: trained(seeds) for name, seeds in sorted(steps.items())},
    }
    show(found)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read(
    folders: Sequence[tuple[int, Path]],
) -> tuple[Methods, Mapping[str, Mapping[int, list[dict[str, float]]]], int]:
    """Return the answers of methods that are done, each training's steps, and a first round's size.

    A stage may still be running: its ledger is then read from its files. A method is done once its
    product is there: answers are stored before they are judged.
    """
    methods: dict[str, dict[int, Told]] = defaultdict(dict)
    steps: dict[str, dict[int, list[dict[str, float]]]] = defaultdict(dict)
    sizes: set[int] = set()
    for seed, folder in folders:
        params = yaml.safe_load((folder / "params.yaml").read_text(encoding="utf-8"))
        sizes.add(params["search"]["answers_per_round"])
        with Ledger.read(folder / "data") as ledger:
            for stage, told in _answers(ledger.sql(ANSWERS, {}).to_dicts()).items():
                name = stage.removeprefix("search@")
                if (folder / "data" / "search" / f"{name}.parquet").exists():
                    methods[name][seed] = told
            for stage in ("rl", *(f"ablation@{name}" for name in params["ablation"]["rows"])):
                if rows := _steps(ledger, stage):
                    steps[stage.removeprefix("ablation@")][seed] = rows
    if len(sizes) != 1:
        sys.exit(f"rounds of {sorted(sizes)} answers: no equal budget")
    return methods, steps, sizes.pop()


def _answers(rows: Sequence[Mapping[str, Any]]) -> dict[str, Told]:
    found: dict[str, Told] = defaultdict(Told)
    for each in sorted(rows, key=lambda row: (row["stage"], row["problem_id"], row["attempt"])):
        told = found[each["stage"]]
        told.rewards.setdefault(each["problem_id"], []).append(each["reward"])
        if each["best_shown"] is not None:
            is_ahead = each["reward"] >= IMPROVED * max(each["best_shown"], REFERENCE_SCORE)
            told.shown.append((bool(each["is_copy"]), is_ahead and not each["is_copy"]))
    return found


def _steps(ledger: Ledger, stage: str) -> list[dict[str, float]]:
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for each in ledger.query("steps", stage=stage).to_dicts():
        steps[each["step"]][each["name"]] = each["value"]
    return [steps[number] for number in sorted(steps) if "reward_raw" in steps[number]]


def row(methods: Methods, name: str, base: str, first_round: int) -> dict[str, Any]:
    """Return a method's numbers, and how it compares with the base at equal budget."""
    seeds = methods[name]
    num_answers = max(len(each) for told in seeds.values() for each in told.rewards.values())
    both = sorted(seeds.keys() & methods[base].keys())
    shown = [each for told in seeds.values() for each in told.shown]
    best = {seed: _bests(told) for seed, told in seeds.items()}
    ratio = budget.ratio(
        _pooled([best[seed] for seed in both]),
        _pooled([_bests(methods[base][seed]) for seed in both]),
    )
    return {
        "seeds": sorted(seeds),
        "problems": len(next(iter(seeds.values())).rewards),
        "answers": num_answers,
        "first_round": _over(
            fmean(fmean(each[:first_round]) for each in told.rewards.values())
            for told in seeds.values()
        ),
        "later": _over(_later(told.rewards, first_round) for told in seeds.values()),
        "best": _over(budget.end(told.rewards, num_answers).value for told in seeds.values()),
        "area": _over(budget.area(told.rewards, num_answers).value for told in seeds.values()),
        "over_echo": [
            _later(told.rewards, first_round)
            / max(1e-9, _later(budget.echo(told.rewards, first_round), first_round))
            for _, told in sorted(seeds.items())
        ],
        "copies": fmean(is_copy for is_copy, _ in shown) if shown else None,
        "progress": fmean(is_ahead for _, is_ahead in shown) if shown else None,
        "over_base": None if ratio is None else ratio.model_dump(),
        "over_base_by_seed": [
            fmean(fmean(each) for each in best[seed].values())
            / max(1e-9, fmean(fmean(each) for each in _bests(methods[base][seed]).values()))
            for seed in both
        ],
    }


def _bests(told: Told) -> dict[str, list[float]]:
    return {problem: [max(each, default=0.0)] for problem, each in told.rewards.items()}


def _pooled(seeds: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Return each problem's numbers of all seeds; problems that a seed lacks are left out."""
    common = set.intersection(*(set(each) for each in seeds)) if seeds else set[str]()
    return {problem: [n for each in seeds for n in each[problem]] for problem in common}


def _later(rewards: budget.Rewards, first_round: int) -> float:
    later = [fmean(each[first_round:]) for each in rewards.values() if each[first_round:]]
    return fmean(later) if later else 0.0


def _over(values: Any) -> list[float]:
    """Return the mean over seeds and the seeds' standard deviation."""
    known = list(values)
    return [fmean(known), stdev(known) if len(known) > 1 else 0.0]


def trained(seeds: Mapping[int, Sequence[Mapping[str, float]]]) -> dict[str, list[float]]:
    """Return the means over seeds of the first and of the last fifth of the steps, by number."""
    found: dict[str, list[float]] = {}
    for name in STEPS:
        ends = [
            (
                _mean(name, steps[: max(1, len(steps) // 5)]),
                _mean(name, steps[-max(1, len(steps) // 5) :]),
            )
            for steps in seeds.values()
        ]
        known = [(first, last) for first, last in ends if first is not None and last is not None]
        if known:
            found[name] = [fmean(first for first, _ in known), fmean(last for _, last in known)]
    return found


def _mean(name: str, steps: Sequence[Mapping[str, float]]) -> float | None:
    values = [step[name] for step in steps if name in step]
    return fmean(values) if values else None


def show(found: Mapping[str, Any]) -> None:
    """Print both tables."""
    print_table(
        [
            "method",
            "seeds",
            "first",
            "later",
            "best",
            "area",
            "over echo",
            "copies",
            "progress",
            "over base",
        ],
        [
            [
                name,
                str(len(each["seeds"])),
                *(
                    f"{each[key][0]:.2f}±{each[key][1]:.2f}"
                    for key in ("first_round", "later", "best", "area")
                ),
                " ".join(f"{value:.2f}" for value in each["over_echo"]),
                *(
                    "-" if each[key] is None else f"{each[key]:.0%}"
                    for key in ("copies", "progress")
                ),
                "-"
                if each["over_base"] is None
                else "{value:.2f} ({low:.2f} to {high:.2f})".format(**each["over_base"]),
            ]
            for name, each in found["methods"].items()
        ],
    )
    print_table(
        ["training: first and last fifth", *STEPS],
        [
            [
                name,
                *(
                    " → ".join(f"{v:.2f}" for v in each[key]) if key in each else "-"
                    for key in STEPS
                ),
            ]
            for name, each in found["training"].items()
        ],
    )


if __name__ == "__main__":
    main()
