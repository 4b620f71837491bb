"""Loads the suites that a person names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass, Problem

NAMES = "shipped, kernelbench:FOLDER, robust-kbench:FOLDER or kernelbook:FILE"
SuiteOption = Annotated[
    str | None, typer.Option("--suite", metavar="SUITE", help=f"{NAMES}; shipped is the default")
]
SizesOption = Annotated[
    Path | None,
    typer.Option(
        "--sizes", metavar="FILE", help="Constants to replace in KernelBench's problems, as YAML"
    ),
]


def load_named(
    suite: str | None, device_class: DeviceClass, *, sizes: Path | None
) -> list[Problem]:
    """Return the problems of a suite, those of `kernelbench:FOLDER` in the given sizes.

    Raises:
        ConfigError: there is no such suite, or sizes are given for another than KernelBench.
        SuiteError: the folder holds no problems, or the sizes are none of theirs.
    """
    from cudal1.suite import kernelbench, kernelbook, loader, robust_kbench

    kind, _, folder = (suite or "shipped").partition(":")
    if sizes is not None and kind != "kernelbench":
        raise ConfigError(f"--sizes goes with --suite kernelbench:FOLDER; {kind} has its own")
    if kind == "shipped" and not folder:
        return loader.load_suite(device_class)
    if kind == "robust-kbench" and folder:
        named = "--suite robust-kbench:FOLDER"
        return robust_kbench.load(Path(folder), device_class=device_class, named=named)
    if kind == "kernelbook" and folder:
        named = "--suite kernelbook:FILE"
        return kernelbook.load(Path(folder), revision=None, device_class=device_class, named=named)
    if kind == "kernelbench" and folder:
        return kernelbench.load(
            Path(folder),
            revision=None,
            sizes=sizes,
            device_class=device_class,
            named="--suite kernelbench:FOLDER",
        )
    raise ConfigError(f"--suite {suite}: must be {NAMES}")
