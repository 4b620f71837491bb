"""The suites that a person names."""

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


def load_named(suite: str | None, device_class: DeviceClass) -> list[Problem]:
    """The problems of `shipped` or of `kernelbench:FOLDER`.

    Raises:
        ConfigError: it is neither.
        SuiteError: the folder holds no problems.
    """
    from cudal1.suite import kernelbench, loader

    kind, _, folder = (suite or "shipped").partition(":")
    if kind == "shipped" and not folder:
        return loader.load_suite(device_class)
    if kind == "kernelbench" and folder:
        return kernelbench.load(Path(folder), revision=None, sizes=None, device_class=device_class)
    raise ConfigError(f"--suite {suite}: must be shipped or kernelbench:FOLDER")
