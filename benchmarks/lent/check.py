"""Import every program that a payload is made for, and print the versions that it runs on.

python -m benchmarks.lent.check [--device cpu|cuda]

An import that fails is named with its program. Exit code: 0 all can be imported, 1 not.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions

PROGRAMS = (
    "cudal1.cli.judge",
    "cudal1.cli.judging.many",
    "cudal1.cli.null_test",
    "cudal1.cli.doctor",
    "benchmarks.release.__main__",
    "benchmarks.judging.real_sizes",
    "benchmarks.timing.null_test",
    "benchmarks.judging.corpus",
    "benchmarks.judging.throughput",
    "benchmarks.lent.stacks",
)
"""Modules that run on a lent machine."""
SHOWN = ("torch", "triton", "numpy", "pydantic", "typer", "rich", "diskcache", "psutil", "pytest")


def main() -> None:
    """Import, and print versions."""
    parser = Parser(
        prog="python -m benchmarks.lent.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    given = parser.parse_args()
    failed = [said for name in PROGRAMS if (said := failure(name)) is not None]
    print(f"{cpu_name()}; {', '.join(f'{name} {v}' for name, v in versions(*SHOWN).items())}")
    print(f"{len(PROGRAMS) - len(failed)} of {len(PROGRAMS)} programs can be imported")
    print(*failed, sep="\n", end="\n" if failed else "")
    if given.device == "cuda":
        import torch

        for index in range(torch.cuda.device_count()):
            print(f"GPU {index}: {torch.cuda.get_device_name(index)}")
    sys.exit(bool(failed))


def failure(name: str) -> str | None:
    """Return why a module cannot be imported, in one line; None where it can."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        return f"{name}: {error}; pack its wheel (benchmarks.lent.pack, IMPORTED)"
    return None


if __name__ == "__main__":
    main()
