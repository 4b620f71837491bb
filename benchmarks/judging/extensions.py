"""Time the compiling of inline extensions: by the builder, and by a plain process beside it.

python -m benchmarks.judging.extensions [--device cuda] [--count 6]

Distinct extensions of one problem, in C++ or, for a GPU, in CUDA, are compiled from an empty
folder: the first alone, the second alone, then the rest side by side. Each is then judged untimed,
which must find it built. Plain is `python -c` of another extension, in a process of its own that
has PyTorch's defaults. It comes last, so that a run that is cut off has our figures.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import chosen, note, options, print_table, save, shipped
from cudal1.candidate import Candidate
from cudal1.harness.builds.builder import Builder, num_idle
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.shared import places
from cudal1.problem import DeviceClass
from cudal1.verdict import Verdict

PROBLEM = "level1/08_silu"
CPP = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ours = load_inline(
    "ours_{number}", functions=["run"],
    cpp_sources="torch::Tensor run(torch::Tensor x) {{ return x * x.sigmoid(); }} // {number}",
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.run(x)
"""
CUDA = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void silu(const float* x, float* y, long n) {{
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / (1.0f + expf(-x[i]));
}}

torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    long n = x.numel(), size = 128 + 32 * {number};
    silu<<<(n + size - 1) / size, size>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}}
"""
ours = load_inline(
    "ours_{number}", functions=["run"], cuda_sources=SOURCE,
    cpp_sources="torch::Tensor run(torch::Tensor x);",
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.run(x.contiguous())
'''


def main() -> None:
    """Measure, print a table, and write results/extensions_DEVICE.json."""
    parser = options("extensions", __doc__)
    parser.add_argument("--count", type=int, default=6, help="extensions, at least three")
    parser.add_argument("--workers", type=int, help="side by side; default: as the builder has it")
    given = parser.parse_args()
    device, protocol = chosen(given)
    problem = shipped(device)[PROBLEM]
    source = CUDA if device.device_class is DeviceClass.CUDA else CPP
    candidates = [
        Candidate(problem_id=problem.id, source=source.format(number=number))
        for number in range(given.count)
    ]
    found: list[dict[str, Any]] = []
    workers = given.workers or max(1, num_idle([device]))

    def keep(judged: list[Verdict], plain_s: float | None = None) -> None:
        save(
            f"extensions_{given.device}",
            given.out,
            device,
            protocol,
            plain_s=plain_s,
            num_workers=workers,
            builds=found,
            verdicts=[
                {"status": v.status, "reason": v.reason, "judge_s": v.judge_s} for v in judged
            ],
        )

    with (
        tempfile.TemporaryDirectory() as folder,
        Builder([device], protocol, Path(folder), num_workers=workers) as builder,
        Pool(device, protocol) as pool,
    ):
        for batch in (candidates[:1], candidates[1:2], candidates[2:]):
            started = time.monotonic()
            futures = [builder.begin(problem, candidate) for candidate in batch]
            failures = [future.result() for future in futures]
            wall_s = time.monotonic() - started
            found.append(
                {
                    "num": len(batch),
                    "wall_s": wall_s,
                    "each_s": wall_s / len(batch),
                    "failures": [str(failure.reason) for failure in failures if failure],
                    "num_bytes": [len(builder.content(each)) for each in batch],
                }
            )
            note(f"{len(batch)}: {wall_s:.1f} s")
            keep([])
        judged = [
            pool.judge(problem, each, timing=False, built=builder.content(each)).verdict
            for each in candidates
        ]
    keep(judged)
    plain_s = _plain(source.format(number=given.count))
    keep(judged, plain_s)
    print_table(
        ["extensions", "side by side", "wall s", "s each", "plain s", "plain / each"],
        [
            [
                str(row["num"]),
                str(min(workers, row["num"])),
                f"{row['wall_s']:.1f}",
                f"{row['each_s']:.1f}",
                f"{plain_s:.1f}",
                f"{plain_s / row['each_s']:.2f}",
            ]
            for row in found
        ],
    )
    note(
        f"judged: {', '.join(v.status for v in judged)}; "
        f"{', '.join(f'{v.judge_s:.1f}' for v in judged)} s"
    )


def _plain(source: str) -> float:
    """Return the seconds of a process that imports the source, beyond one that imports PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        times: list[float] = []
        for text in ("import torch.utils.cpp_extension", source):
            started = time.monotonic()
            subprocess.run(
                [sys.executable, "-c", text],
                check=True,
                stdout=subprocess.DEVNULL,
                env={"PATH": f"/usr/local/cuda/bin:{places.PATH}", "TORCH_EXTENSIONS_DIR": folder},
            )
            times.append(time.monotonic() - started)
    return times[1] - times[0]


if __name__ == "__main__":
    main()
