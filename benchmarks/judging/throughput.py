"""Measure verdicts a second, with a fresh process for each candidate, and the cost of timing.

python -m benchmarks.judging.throughput [--device cuda] [--each 8] [--problems 6] [--kinds mixed]

Each problem has several different candidates, as a policy is asked for several answers. There are
three kinds: PyTorch-level variants of shipped problems and, on CUDA, Triton kernels, all correct;
and both kinds as a policy writes them, where four of twelve answers fail.

Each candidate is judged untimed first, which builds what is to be built, then in full against the
clock, preparing the problem included. The timing part of a verdict is its cost beyond the same
verdict without timing. The share of that part in which a burst ran is printed beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.common import chosen, judge, note, options, print_table, save, shipped
from benchmarks.timing.fidelity import CASES
from cudal1.candidate import Candidate
from cudal1.harness.device.device import Device
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem
from cudal1.verdict import Status

TRITON = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, {expression}, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block})
        return y
"""
EXPRESSIONS = {
    "level1/08_silu": "x / (1.0 + tl.exp(-x))",
    "level1/12_clamp_chain": "(tl.minimum(tl.maximum(x, -1.5), 1.5) * 2.0 + 3.0) * 0.5",
    "level1/14_relu": "tl.maximum(x, 0.0)",
}
BLOCKS = (512, 1024, 2048, 4096)
FAILING = {
    2: "\n\nright = ModelNew.forward\nModelNew.forward = lambda self, *x: 1.01 * right(self, *x)\n",
    5: "\n\nModelNew.forward = lambda self, *x: self.no_such_thing(*x)\n",
    7: "\n\nright = ModelNew.forward\nModelNew.forward = lambda self, *x: right(self, *x) + 0.1\n",
    10: "\n\n)\n",
}
"""Fault of an answer, by its place among `OF_ANSWERS`. Of 1,540 answers that the policies of a
shipped run gave, 17 % were incorrect, 14 % crashed and 6 % were no Python."""
OF_ANSWERS = 12

Work = dict[str, list[str]]
"""Candidate sources by problem."""


def main() -> None:
    """Measure, print a table, and write results/throughput_DEVICE.json."""
    parser = options("throughput", __doc__)
    parser.add_argument("--each", type=int, default=8, help="candidates of a problem")
    parser.add_argument("--problems", type=int, default=6, help="problems of each kind, at most")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, help="default: all, on a CPU no Triton"
    )
    given = parser.parse_args()
    device, protocol = chosen(given)
    problems = shipped(device)
    on_gpu = device.device_class is DeviceClass.CUDA
    found: list[dict[str, Any]] = []
    for kind in given.kinds or [kind for kind in KINDS if on_gpu or kind != "Triton"]:
        work = dict(list(KINDS[kind](problems, given.each).items())[: given.problems])
        with Pool(device, protocol) as pool:
            judged = [_judged(pool, problems[name], work[name]) for name in work]
        found.append({"kind": kind, **_summary(judged), "problems": judged})
        note(f"{kind}: {found[-1]['per_s']:.2f} verdicts a second")
        save(f"throughput_{given.device}", given.out, device, protocol, kinds=found)
    print_table(
        [
            "candidates",
            "judged",
            "correct",
            "a second",
            "once prepared",
            "one verdict s",
            "timing part s",
            "bursts s",
        ],
        [
            [
                row["kind"],
                str(row["num_judged"]),
                str(row["num_correct"]),
                f"{row['per_s']:.2f}",
                f"{row['prepared_per_s']:.2f}",
                f"{row['judge_s']:.2f}",
                f"{row['timing_s']:.2f}",
                f"{row['bursts_s']:.3f}",
            ]
            for row in found
        ],
    )
    _print_device(device)


def _judged(pool: Pool, problem: Problem, sources: list[str]) -> dict[str, Any]:
    started = time.monotonic()
    pool.reference_us(problem)
    prepare_s = time.monotonic() - started
    checks_s = [judge(pool, problem, source, timing=False).judge_s for source in sources]
    started = time.monotonic()
    judgements = [
        pool.judge(problem, Candidate(problem_id=problem.id, source=source)) for source in sources
    ]
    return {
        "problem": problem.key,
        "prepare_s": prepare_s,
        "wall_s": time.monotonic() - started,
        "first_s": checks_s,
        "statuses": [j.verdict.status for j in judgements],
        "reasons": sorted({j.verdict.reason for j in judgements if j.verdict.reason}),
        "judge_s": [j.verdict.judge_s for j in judgements],
        "checks_s": [judge(pool, problem, source, timing=False).judge_s for source in sources],
        "bursts_s": [sum(s.burst_us for s in j.samples) * 1e-6 for j in judgements],
        "measurements": [
            j.verdict.measurement and j.verdict.measurement.model_dump(mode="json")
            for j in judgements
        ],
    }


def _summary(judged: list[dict[str, Any]]) -> dict[str, Any]:
    def every(key: str) -> list[Any]:
        return [value for one in judged for value in one[key]]

    wall_s = sum(one["wall_s"] for one in judged)
    statuses = every("statuses")
    return {
        "num_judged": len(statuses),
        "num_correct": statuses.count(Status.CORRECT),
        "per_s": len(statuses) / (wall_s + sum(one["prepare_s"] for one in judged)),
        "prepared_per_s": len(statuses) / wall_s,
        "judge_s": median(every("judge_s")),
        "bursts_s": median(every("bursts_s")),
        "timing_s": median(a - b for a, b in zip(every("judge_s"), every("checks_s"), strict=True)),
    }


def _pytorch(problems: dict[str, Problem], each: int) -> Work:
    """Return the reference and the variants of `fidelity`, some of them under other names."""
    found: Work = {}
    for name in dict.fromkeys(case.problem for case in CASES):
        problem = problems[name]
        variants = [problem.null_source]
        variants += [case.source(problem) for case in CASES if case.problem == name and case.old]
        found[name] = [f"{variants[i % len(variants)]}# {i}\n" for i in range(each)]
    return found


def _triton(problems: dict[str, Problem], each: int) -> Work:
    """Return a few kernels in several block sizes, and those again under other names."""
    return {
        name: [
            TRITON.format(expression=expression, block=BLOCKS[i % len(BLOCKS)]) + f"# {i}\n"
            for i in range(each)
        ]
        for name, expression in EXPRESSIONS.items()
    }


def _mixed(problems: dict[str, Problem], each: int) -> Work:
    """Return both kinds, two of each in turn, some of them broken."""
    on_gpu = any(problem.device_class is DeviceClass.CUDA for problem in problems.values())
    triton = _triton(problems, each) if on_gpu else {}
    found: Work = {}
    for place, (name, sources) in enumerate(_pytorch(problems, each).items()):
        found[name] = []
        for i, pair in enumerate(zip(sources, triton.get(name, sources), strict=True)):
            broken = FAILING.get((place * each + i) % OF_ANSWERS, "")
            found[name].append(pair[i // 2 % 2] + broken)
    return found


KINDS: dict[str, Callable[[dict[str, Problem], int], Work]] = {
    "PyTorch": _pytorch,
    "Triton": _triton,
    "mixed": _mixed,
}


def _print_device(device: Device) -> None:
    print(f"on {device.kind}; each candidate in a process of its own")


if __name__ == "__main__":
    main()
