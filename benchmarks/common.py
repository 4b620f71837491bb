"""Share options, machine names, tables and result files among benchmarks of the harness.

They import the harness, the suite and records only, so that a GPU machine needs no more than torch,
pydantic and yaml to run them.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions
from cudal1.candidate import Candidate
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol
from cudal1.settings import protocols
from cudal1.settings.scale import ScaleParams, WeightsKind
from cudal1.suite import loader
from cudal1.verdict import Verdict

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
VERSIONS = ("torch", "triton", "numpy", "pydantic")
ONE_PROCESS = ScaleParams(
    processes=1,
    sharded=False,
    micro_batch=None,
    dtype=WeightsKind.FLOAT32,
    checkpointing=False,
    adapter=None,
)


def options(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark of the harness."""
    parser = Parser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--protocol", help="a name or a YAML file; default: the device's")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    return parser


def chosen(given: argparse.Namespace) -> tuple[Device, EvalProtocol]:
    """Return the device and the protocol that options ask for."""
    return find_device(DeviceClass(given.device)), protocols.load(given.protocol or given.device)


def shipped(device: Device) -> dict[str, Problem]:
    """Return the shipped suite in the device's sizes, by names such as `level1/08_silu`."""
    return {
        f"level{problem.level}/{problem.number:02d}_{problem.name}": problem
        for problem in loader.load_suite(device.device_class)
    }


def own(name: str, source: str, device: Device) -> Problem:
    """Return a problem that a benchmark made."""
    return Problem(
        suite="benchmark",
        level=1,
        number=1,
        name=name,
        split=Split.TRAIN,
        revision="benchmark",
        device_class=device.device_class,
        source=source,
    )


def judge(pool: Pool, problem: Problem, source: str, *, timing: bool = True) -> Verdict:
    """Return the verdict on a source."""
    return pool.judge(
        problem, Candidate(problem_id=problem.id, source=source), timing=timing
    ).verdict


def save(name: str, folder: Path, device: Device, protocol: EvalProtocol, **content: Any) -> None:
    """Write the raw numbers, with a description of the machine, to `folder/name.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        "benchmark": name,
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(device),
        "protocol_id": protocol.id,
        "protocol": protocol.model_dump(mode="json"),
        **content,
    }
    text = json.dumps(found, indent=1)
    for place in (sys.prefix, str(ROOT)):  # the checkout's place is private
        text = text.replace(place, ".")
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def machine(device: Device) -> dict[str, object]:
    """Return names and versions that figures depend on."""
    found: dict[str, object] = {
        "device": device.kind,
        "cpu": cpu_name(),
        "kernel": platform.release(),
        "versions": versions(*VERSIONS),
    }
    if device.device_class is DeviceClass.CUDA:
        import torch

        found |= {"cuda": torch.version.cuda, "driver": device.driver}
    return found


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns, the first to the left and the others to the right."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())


def note(line: str) -> None:
    """Print a line that shows progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
