"""Measure what a call costs through `cudal1.apply`, beside a call of the version itself.

python -m benchmarks.keeping.overhead [--repeats 1000] [--out DIR]

Original and version return their input, so that nothing but the call is timed. *Bare* is
`version(x)`, a module's call. *Applied* is `module(x)` after `apply`, once the version is in use.
Both are timed in turns; the least of many repeats counts, because other programs only ever add
time. The overhead is the difference.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

import torch

import cudal1
from benchmarks.common import chosen, note, options, print_table, save
from cudal1.applying import records
from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.kept import SUFFIX, Kept, Proof, class_source_id
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol, Mode
from cudal1.record import content_id
from cudal1.suite.loader import load_file
from cudal1.verdict import Properties, Status, Verdict

PROGRAM = """import torch
from torch import nn


class Original(nn.Module):
    def __init__(self):
        super().__init__()
        {parts}

    def forward(self, {arguments}):
        return x
"""
PROBLEM = """import torch
from {module} import Original as Model


def get_inputs():
    return [torch.randn({shape}) for _ in range({count})]


def get_init_inputs():
    return []
"""
WEIGHT = "self.weight = nn.Parameter(torch.rand(64))"
LINEARS = "; ".join(f"self.{name} = nn.Linear(8, 8, bias=False)" for name in "abc")
CASES = {
    "no weights": ("pass", "x", 1),
    "a weight, as RMSNorm": (WEIGHT, "x", 1),
    "three Linears, as a gated MLP": (LINEARS, "x", 1),
    "a weight, two arguments": (WEIGHT, "x, y", 2),
}
"""Parts of the module, arguments, and how many, by what they stand for."""
SHAPE = "2, 16, 64"
CALLS = 500
"""Calls of one repeat: a fraction of a time slice, so that some repeats are not interrupted."""


def main() -> None:
    """Time both, print a table, and write results/apply_overhead_cpu.json."""
    parser = options("keeping.overhead", __doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    given = parser.parse_args()
    device, protocol = chosen(given)
    logging.disable(logging.INFO)
    rows = [timed(name, number, protocol, given.repeats) for number, name in enumerate(CASES)]
    save(
        f"apply_overhead_{given.device}",
        given.out,
        device,
        protocol,
        calls=CALLS,
        repeats=given.repeats,
        load=os.getloadavg()[0],
        rows=rows,
    )
    print_table(
        ["module", "bare ns", "applied ns", "overhead ns", "ratio"],
        [
            [
                row["module"],
                *(f"{row[key]:.0f}" for key in ("bare_ns", "applied_ns", "overhead_ns")),
                f"{row['ratio']:.2f}",
            ]
            for row in rows
        ],
    )


@torch.no_grad()
def timed(name: str, number: int, protocol: EvalProtocol, repeats: int) -> dict[str, Any]:
    """Return the times of a call of one kind of module, in ns."""
    parts, arguments, count = CASES[name]
    with tempfile.TemporaryDirectory(prefix="cudal1-overhead-") as made:
        folder = Path(made)
        program = f"overhead_program_{number}"
        (folder / f"{program}.py").write_text(PROGRAM.format(parts=parts, arguments=arguments))
        sys.path.insert(0, made)
        original = __import__(program).Original
        sys.path.remove(made)
        source = PROGRAM.format(parts=parts, arguments=arguments).replace("Original", "ModelNew")
        write(folder, program, source, count, protocol, original)
        module = original().eval()
        applied = cudal1.apply(module, folder)
        assert "" in applied.swapped, applied.refused
    inputs = [torch.randn(2, 16, 64) for _ in range(count)]
    module(*inputs)  # decides
    dispatcher = module.forward.__self__
    (kind,) = dispatcher.kinds
    version = kind.run.__self__
    assert version is not module
    call = f"module({', '.join(f'x{i}' for i in range(count))})"
    names = {f"x{i}": each for i, each in enumerate(inputs)}
    timers = [timeit.Timer(call, globals={"module": each, **names}) for each in (version, module)]
    taken: list[list[float]] = [[], []]
    for _ in range(repeats):
        for place, timer in zip(taken, timers, strict=True):
            place.append(timer.timeit(CALLS) / CALLS * 1e9)
    bare, through = map(min, taken)
    note(f"{name}: {through - bare:.0f} ns")
    return {
        "module": name,
        "bare_ns": round(bare, 1),
        "applied_ns": round(through, 1),
        "overhead_ns": round(through - bare, 1),
        "ratio": round(through / bare, 3),
    }


def write(
    folder: Path, program: str, source: str, count: int, protocol: EvalProtocol, original: type
) -> None:
    """Write a record with a made-up verdict: nothing is judged here, only called."""
    text = PROBLEM.format(module=program, shape=SHAPE, count=count)
    (folder / "model.py").write_text(text, encoding="utf-8")
    problem = load_file(folder / "model.py", device_class=DeviceClass.CPU)
    kept = Kept(
        version="model.faster.py",
        candidate_source_id=content_id(source),
        replaces=f"{program}:Original",
        replaces_source_id=class_source_id(inspect.getsource(original)),
        proofs=(
            Proof(
                problem="model.py",
                problem_id=problem.id,
                device_class=DeviceClass.CPU,
                inputs=(f"float32[{SHAPE}]",) * count,
                protocol=protocol.model_copy(update={"mode": Mode.EVAL}),
                verdict=made_up(problem, source),
                versions={},
            ),
        ),
    )
    path = records.write(folder, "model", source, kept)
    assert path.name.endswith(SUFFIX)


def made_up(problem: Problem, source: str) -> Verdict:
    """Return a verdict that lets `apply` use the source."""
    candidate = Candidate(problem_id=problem.id, source=source)
    return Verdict(
        problem_id=problem.id,
        candidate_id=candidate.id,
        protocol_id="none",
        device_kind="cpu",
        device_id="none",
        status=Status.CORRECT,
        measurement=Measurement(
            baseline=Baseline.EAGER,
            speedup=1.0,
            certified=1.0,
            alpha=0.01,
            num_quads=0,
            bucket_medians=(),
            bucket_variance=0.0,
            is_stable=True,
            reference_us=1.0,
            candidate_us=1.0,
        ),
        properties=Properties(follows_weights=True, fresh_outputs=True, leaves_inputs=True),
        judged_at="2026-11-30T00:00:00+00:00",
        judge_s=0.0,
    )


if __name__ == "__main__":
    main()
