"""How many verdicts a second, with a fresh process for each candidate, and what timing costs.

python -m benchmarks.throughput [--device cuda] [--candidates 24]

Different candidates, all correct: PyTorch-level variants of shipped problems and, on CUDA, Triton
kernels. Each is judged twice in one open pool: first unmeasured, which builds what is to be built,
then again against the clock. The timing part of a verdict is what a verdict costs more than the
same one without timing; the share of it in which a burst ran is printed beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.common import chosen, judge, note, options, print_table, save, shipped
from benchmarks.fidelity import CASES
from cudal1.candidate import Candidate
from cudal1.harness import Device, Pool
from cudal1.problem import DeviceClass, Problem

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

Work = list[tuple[Problem, str]]
"""Problems with candidate sources, in the order in which they are judged."""


def main() -> None:
    """Measure, print a table, leave results/throughput_DEVICE.json."""
    parser = options("throughput", __doc__)
    parser.add_argument("--candidates", type=int, default=24, help="of each kind")
    given = parser.parse_args()
    device, protocol = chosen(given)
    problems = shipped(device)
    kinds: dict[str, Callable[[dict[str, Problem], int], Work]] = {"PyTorch": _pytorch}
    if device.device_class is DeviceClass.CUDA:
        kinds["Triton"] = _triton
    found: list[dict[str, Any]] = []
    for kind, make in kinds.items():
        with Pool(device, protocol) as pool:
            found.append({"kind": kind, **_measured(pool, make(problems, given.candidates))})
        note(f"{kind}: {found[-1]['per_s']:.2f} verdicts a second")
        save(f"throughput_{given.device}", given.out, device, protocol, kinds=found)
    print_table(
        ["candidates", "judged", "correct", "a second", "building: a second", "one verdict s",
         "timing part s", "bursts s"],
        [[
            row["kind"], str(len(row["judge_s"])), str(row["num_correct"]), f"{row['per_s']:.2f}",
            f"{row['building_per_s']:.2f}", f"{median(row['judge_s']):.2f}",
            f"{row['timing_s']:.2f}", f"{median(row['bursts_s']):.3f}",
        ] for row in found],
    )  # fmt: skip
    _print_device(device)


def _measured(pool: Pool, work: Work) -> dict[str, Any]:
    started = time.monotonic()
    for problem, source in work:
        judge(pool, problem, source)
    building_s = time.monotonic() - started
    started = time.monotonic()
    judgements = [
        pool.judge(problem, Candidate(problem_id=problem.id, source=source))
        for problem, source in work
    ]
    wall_s = time.monotonic() - started
    checks_s = [judge(pool, problem, source, timing=False).judge_s for problem, source in work]
    judge_s = [judgement.verdict.judge_s for judgement in judgements]
    return {
        "num_correct": sum(judgement.verdict.is_successful for judgement in judgements),
        "reasons": sorted({j.verdict.reason for j in judgements if j.verdict.reason}),
        "wall_s": wall_s, "per_s": len(work) / wall_s, "building_per_s": len(work) / building_s,
        "judge_s": judge_s, "checks_s": checks_s,
        "timing_s": median(a - b for a, b in zip(judge_s, checks_s, strict=True)),
        "bursts_s": [sum(s.burst_us for s in j.samples) * 1e-6 for j in judgements],
        "num_quads": [
            j.verdict.measurement.num_quads for j in judgements if j.verdict.measurement
        ],
    }  # fmt: skip


def _pytorch(problems: dict[str, Problem], count: int) -> Work:
    """Variants of `benchmarks.fidelity`, and those again under other names."""
    work = [
        (problems[case.problem], f"{case.source(problems[case.problem])}# {i // len(CASES)}\n")
        for i, case in ((i, CASES[i % len(CASES)]) for i in range(count))
    ]
    return sorted(work, key=lambda item: item[0].key)


def _triton(problems: dict[str, Problem], count: int) -> Work:
    """A few kernels in several block sizes, and those again under other names."""
    pairs = [(name, block) for name in EXPRESSIONS for block in BLOCKS]
    work = [
        (
            problems[name],
            TRITON.format(expression=EXPRESSIONS[name], block=block) + f"# {i // len(pairs)}\n",
        )
        for i, (name, block) in ((i, pairs[i % len(pairs)]) for i in range(count))
    ]
    return sorted(work, key=lambda item: item[0].key)


def _print_device(device: Device) -> None:
    print(f"on {device.kind}; each candidate in a process of its own")


if __name__ == "__main__":
    main()
