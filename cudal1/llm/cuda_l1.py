"""Read a checkout of the CUDA-L1 authors' release: kernels for KernelBench, by GPU kind.

The release is github.com/deepreinforce-ai/CUDA-L1 (MIT licence). Nothing of it ships here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cudal1.errors import ConfigError
from cudal1.files.text_file import naming_utf8

KERNELS_FOLDER = "optimized_cuda_code"
NO_CODE = ("", "None")
"""Texts of the release in place of missing code; seventeen rows of the H100's file claim a speedup
beside the second."""
Place = tuple[int, int]
"""A level and a number in it."""


class PlacedRow(BaseModel):
    """A line of the release that is about one problem; further fields are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    level_id: int
    task_id: int


Row = TypeVar("Row", bound=PlacedRow)


class KernelRow(PlacedRow):
    """A line of a GPU kind's file."""

    ref_code: Annotated[str, Field(min_length=1)]
    custom_code: str | None = None
    score_default: float | None = None
    """Claimed speedup over the reference in PyTorch's eager mode."""
    score_cuda_graph: float | None = None
    """Claimed speedup over the reference as a CUDA graph."""


def named(place: Place) -> str:
    """Return a place as `--rows` takes it."""
    return f"{place[0]}:{place[1]}"


def kernel_rows(checkout: Path, kind: str) -> dict[Place, KernelRow]:
    """Return the rows of a GPU kind by place.

    Raises:
        ConfigError: the file is absent, or a line of it is no row.
    """
    file = kernels_file(checkout, kind)
    if file.exists():
        return by_place(file, KernelRow)
    kinds = sorted(path.stem for path in file.parent.glob("*.json"))
    if not kinds:
        raise ConfigError(
            f"{checkout}: no {KERNELS_FOLDER}/*.json in it; give --checkout a checkout of "
            "https://github.com/deepreinforce-ai/CUDA-L1"
        )
    raise ConfigError(f"--kind {kind}: must be of {', '.join(kinds)}")


def kernels_file(checkout: Path, kind: str) -> Path:
    """Return the place of a GPU kind's file."""
    return checkout / KERNELS_FOLDER / f"{kind}.json"


def by_place(file: Path, kind: type[Row]) -> dict[Place, Row]:
    """Return the rows of a file by place.

    Raises:
        ConfigError: it cannot be read, a line is no row of that kind, or two are of one place.
    """
    rows = list(_rows(file, kind))
    places = Counter((row.level_id, row.task_id) for row in rows)
    for place, count in places.items():
        if count > 1:
            raise ConfigError(f"{file}: {count} rows of {named(place)}; give a whole checkout")
    return {(row.level_id, row.task_id): row for row in rows}


def _rows(file: Path, kind: type[Row]) -> Iterator[Row]:
    for number, line in enumerate(text_of(file).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield kind.model_validate(json.loads(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ConfigError(
                f"{file}:{number}: {where}: {first['msg'].lower()}; give a whole checkout"
            ) from None
        except ValueError:
            raise ConfigError(
                f"{file}:{number}: not a line of JSON; give a whole checkout"
            ) from None


def text_of(file: Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{file}: cannot be read ({said}); give a whole checkout") from error


@overload
def as_read(code: str) -> str: ...


@overload
def as_read(code: str | None) -> str | None: ...


def as_read(code: str | None) -> str | None:
    """Return a source as it is read from a file, None where there is none: ids are of that text."""
    if code is None or code.strip() in NO_CODE:
        return None
    return naming_utf8(code.replace("\r\n", "\n").replace("\r", "\n"))
