"""Measure the share of true gains certified, and of equals called faster or slower, under load.

python -m benchmarks.timing.power [--device cuda] [--tries 20] [--nulls 400] [--hogs 0 2]
                                  [--label NAME]

*Gains* are known by construction: the reference makes the same matrix product more often than the
candidate, 21 times for 20, 12 for 10 and 20 for 10. Attention written out against PyTorch's own is
a pair that people send in; plain timing on the quiet machine measures its gain. *Equals* are the
shipped references in disguise (`benchmarks.answers.disguise`), against themselves.

Both are judged beside processes that only compute, by turns: one try of each pair beside the first
number of `--hogs`, then one beside the next number. A candidate is *found* if it is certified at
`--found` of its gain or more (in logarithms), *too much* if above its gain. Equals must never be
called faster, and one in a hundred may be called slower.

To compare with other code, copy this file, `arguments.py` and `suite_under_load.py` into its
checkout, run it there with the same arguments and another `--label`, on the same machine.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from benchmarks.answers.disguise import disguised
from benchmarks.common import chosen, note, options, own, print_table, save, shipped
from benchmarks.suite_under_load import hogs
from benchmarks.timing.plain import plain
from cudal1.candidate import Candidate
from cudal1.harness.device.device import Device
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import Problem
from cudal1.verdict import Verdict

PRODUCTS = {1.05: (21, 20), 1.2: (12, 10), 2.0: (20, 10)}
"""Matrix products of the reference and of the candidate, by the candidate's true gain."""
ROUNDS = 41
"""Repeats of the plain timing that sizes a pair."""
SIZES = {"cpu": 192, "cuda": 1024}
PRODUCT = """import torch
import torch.nn as nn


class {name}(nn.Module):
    def forward(self, x, y):
        for _ in range({times}):
            z = x @ y
        return z


def get_inputs():
    return [torch.randn({size}, {size}), torch.randn({size}, {size})]


def get_init_inputs():
    return []
"""
ATTENTION = """import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn({shape}) for _ in range(3)]


def get_init_inputs():
    return []
"""
ATTENTION_SHAPES = {"cpu": "1, 4, 512, 32", "cuda": "8, 16, 1024, 64"}
FASTER_ATTENTION = """import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)
"""

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A reference and a candidate with a known speedup."""

    name: str
    problem: Problem
    source: str
    gain: float
    is_null: bool = False


@dataclass(frozen=True)
class Summary:
    """Counts of verdicts on one kind of pair, beside a number of busy processes."""

    kind: str
    num_hogs: int
    gain: float
    num_verdicts: int
    num_correct: int
    """Number of correct verdicts; only these have a speedup, and all should be correct."""
    faster: float
    """Share of the correct ones that were certified to be faster."""
    found: float
    """Share that was certified at enough of its gain; for equals the same as `faster`."""
    too_much: float
    """Share that was certified above its gain: what `alpha` bounds, but for processes' luck."""
    slower: float
    """Share that was called slower."""
    estimate: float
    """Median estimate of the speedup."""
    certified: float
    """Median certified speedup."""
    quads: float
    """Median quads of the first measurement."""
    judge_s: float
    """Mean seconds of a verdict."""


def main() -> None:
    """Judge, print a table, and write results/power_DEVICE[_LABEL].json."""
    parser = options("power", __doc__)
    parser.add_argument("--tries", type=int, default=20, help="verdicts on each gain and number")
    parser.add_argument("--nulls", type=int, default=400, help="on equals, for each number")
    parser.add_argument("--hogs", type=int, nargs="+", default=[0, 2], help="busy processes beside")
    parser.add_argument("--found", type=float, default=0.585, help="of a gain; 1.5 of 2")
    parser.add_argument("--label", help="part of the result file's name")
    given = parser.parse_args()
    device, protocol = chosen(given)
    name = "_".join(filter(None, ["power", given.device, given.label]))
    gains = gain_cases(device) if given.tries else []
    rows: list[Row] = []
    with Pool(device, protocol) as pool:
        for case, num_hogs in turns(gains, null_cases(device), given):
            with hogs(num_hogs):
                row = judged(pool, case, num_hogs)
            rows.append(row)
            note(f"{case.name}, {num_hogs} busy: {row['status']} {row['certified']}")
            save(
                name,
                given.out,
                device,
                protocol,
                found_share=given.found,
                is_complete=len(rows) == num_wanted(len(gains), given),
                summaries=[asdict(each) for each in summaries(rows, found_share=given.found)],
                verdicts=rows,
            )
    print_table(
        [
            "pairs",
            "busy",
            "gain",
            "verdicts",
            "correct",
            "faster",
            "found",
            "too much",
            "slower",
            "estimate",
            "certified",
            "quads",
            "s a verdict",
        ],
        [
            [
                each.kind,
                str(each.num_hogs),
                f"{each.gain:.2f}",
                str(each.num_verdicts),
                str(each.num_correct),
                f"{each.faster:.1%}",
                f"{each.found:.1%}",
                f"{each.too_much:.1%}",
                f"{each.slower:.1%}",
                f"{each.estimate:.3f}",
                f"{each.certified:.2f}",
                f"{each.quads:.0f}",
                f"{each.judge_s:.1f}",
            ]
            for each in summaries(rows, found_share=given.found)
        ],
    )


def gain_cases(device: Device) -> list[Case]:
    """Return pairs with a gain."""
    found: list[Case] = []
    size = SIZES[device.device_class]
    for gain, (more, fewer) in PRODUCTS.items():
        reference, source = (
            PRODUCT.format(name=name, times=times, size=size)
            for name, times in (("Model", more), ("ModelNew", fewer))
        )
        problem = own(f"products_{more}_{fewer}", reference, device)
        found.append(Case(f"products {more}/{fewer}", problem, source, gain))
    reference = ATTENTION.format(shape=ATTENTION_SHAPES[device.device_class])
    both = reference + FASTER_ATTENTION  # plain timing asks each for its inputs
    gained = plain(reference, both, device=device.device_class, rounds=ROUNDS).speedup
    problem = own("attention", reference, device)
    return [*found, Case("attention", problem, FASTER_ATTENTION, gained)]


def null_cases(device: Device) -> Iterator[Case]:
    """Yield the shipped references, one after the other, each time in another disguise."""
    for seed in itertools.count():
        for name, problem in shipped(device).items():
            source = disguised(problem.null_source, seed=seed, keep_attributes=True)
            yield Case(name, problem, source, 1.0, is_null=True)


def turns(gains: Sequence[Case], nulls: Iterator[Case], given: Any) -> Iterator[tuple[Case, int]]:
    """Yield pairs and loads in turn, so that a change of the machine meets all of them alike."""
    rounds = max(given.tries, 1)
    for number in range(rounds):
        few = (given.nulls * (number + 1)) // rounds - (given.nulls * number) // rounds
        equals = list(itertools.islice(nulls, few))
        for num_hogs in given.hogs:
            yield from ((case, num_hogs) for case in gains)
            yield from ((case, num_hogs) for case in equals)


def num_wanted(num_gains: int, given: Any) -> int:
    """Return the number of all verdicts."""
    return len(given.hogs) * (num_gains * given.tries + given.nulls)


def judged(pool: Pool, case: Case, num_hogs: int) -> Row:
    """Return the verdict on one pair, in short."""
    started = time.monotonic()
    asked = Candidate(problem_id=case.problem.id, source=case.source)
    verdict: Verdict = pool.judge(case.problem, asked).verdict
    m = verdict.measurement
    return {
        "kind": "equals" if case.is_null else case.name,
        "name": case.name,
        "hogs": num_hogs,
        "gain": round(case.gain, 4),
        "status": str(verdict.status),
        "reason": verdict.reason,
        "certified": m and m.certified,
        "estimate": m and round(m.speedup, 4),
        "lower": m and m.lower and round(m.lower, 4),
        "upper": m and m.upper and round(m.upper, 4),
        "quads": m and m.num_quads,
        "doubt": m and m.doubt,
        "is_confirmed": m and m.is_confirmed,
        "took_s": round(time.monotonic() - started, 2),
    }


def summaries(rows: Sequence[Row], *, found_share: float) -> list[Summary]:
    """Return one for each kind of pair and number of busy processes, in the order of first rows."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["hogs"]), []).append(row)
    return [_summary(mine, found_share) for mine in groups.values()]


def _summary(rows: Sequence[Row], found_share: float) -> Summary:
    gain = rows[0]["gain"]
    correct = [row for row in rows if row["certified"] is not None]
    certified: list[float] = [row["certified"] for row in correct]
    enough = math.exp(found_share * math.log(gain))

    def share(told: Sequence[bool]) -> float:
        return sum(told) / len(told) if told else 0.0

    return Summary(
        kind=rows[0]["kind"],
        num_hogs=rows[0]["hogs"],
        gain=gain,
        num_verdicts=len(rows),
        num_correct=len(correct),
        faster=share([each > 1 for each in certified]),
        found=share([each > 1 and each >= enough for each in certified]),
        too_much=share([each > gain for each in certified]),
        slower=share([each < 1 for each in certified]),
        estimate=median(row["estimate"] for row in correct) if correct else math.nan,
        certified=median(certified) if correct else math.nan,
        quads=median(row["quads"] for row in correct) if correct else math.nan,
        judge_s=fmean(row["took_s"] for row in rows),
    )


if __name__ == "__main__":
    main()
