"""Loads the suites that a person names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass, Problem

SuiteOption = Annotated[
    str | None,
    typer.Option("--suite", metavar="SUITE", help="shipped (the default) or kernelbench:FOLDER"),
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
    """Return the problems of `shipped`, or of `kernelbench:FOLDER` in the given sizes.

    Raises:
        ConfigError: the suite is neither, or sizes are given for a suite that has its own.
        SuiteError: the folder holds no problems, or the sizes are none of theirs.
    """
    from cudal1.suite import kernelbench, loader

    kind, _, folder = (suite or "shipped").partition(":")
    if kind == "shipped" and not folder:
        if sizes is not None:
            raise ConfigError("--sizes goes with --suite kernelbench:FOLDER; shipped has its own")
        return loader.load_suite(device_class)
    if kind == "kernelbench" and folder:
        return kernelbench.load(
            Path(folder),
            revision=None,
            sizes=sizes,
            device_class=device_class,
            named="--suite kernelbench:FOLDER",
        )
    raise ConfigError(f"--suite {suite}: must be shipped or kernelbench:FOLDER")
