"""A sizes file: constants to replace, by device class and problem, and the held-out problems.

Problems are named by folder and file, such as `level1/13_matmul`. The replacing is
`cudal1.problem.resize`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from cudal1.errors import SuiteError
from cudal1.files.text_file import read_yaml
from cudal1.problem import DeviceClass
from cudal1.record import Record

Constant = int | float | str | bool | None | list[int] | list[float] | list[str]


class Sizes(Record):
    """The content of a sizes file."""

    # strict: `n: 1e3` or `n: "64"` is not silently made an integer
    model_config = ConfigDict(strict=True)

    cpu: dict[str, dict[str, Constant]] = Field(default_factory=dict)
    """Top-level constants and their values on a CPU, by problem."""
    cuda: dict[str, dict[str, Constant]] = Field(default_factory=dict)
    """Top-level constants and their values on a CUDA device, by problem."""
    heldout: list[str] = Field(default_factory=list)
    """Problems that are never trained on."""
    nothing_to_gain: list[str] = Field(default_factory=list)
    """Problems that serve as controls: an honest speedup stays near 1."""

    def of(self, device_class: DeviceClass, name: str) -> dict[str, Constant]:
        """Return the constants to replace in a problem; none when the file names none."""
        return (self.cuda if device_class is DeviceClass.CUDA else self.cpu).get(name, {})

    def named(self) -> set[str]:
        """Return every problem that the file mentions."""
        return {*self.cpu, *self.cuda, *self.heldout, *self.nothing_to_gain}


def load_sizes(path: Path) -> Sizes:
    """Read and check a sizes file.

    Raises:
        SuiteError: it cannot be read, or its content is not that of a sizes file.
    """
    content = read_yaml(path, raising=SuiteError)
    if not isinstance(content, dict):
        raise SuiteError(f"{path}: must map a device class to problems and their constants")
    try:
        return Sizes.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SuiteError(f"{path}: {where}: {first['msg']}") from error


def refuse_unknown(sizes: Sizes, known: Collection[str], *, where: Path) -> None:
    """Refuse a sizes file with unknown problems; a typo must not go unnoticed.

    Raises:
        SuiteError: the file mentions a problem that the suite does not have.
    """
    unknown = sorted(sizes.named() - set(known))
    if unknown:
        raise SuiteError(f"{where}: no such problem: {', '.join(unknown[:5])}")
