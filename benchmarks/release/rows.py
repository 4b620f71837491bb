"""Read the rows of a checkout of the authors' repository: references, kernels and claims."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.files.text_file import naming_utf8
from cudal1.problem import NULL_MARK
from cudal1.record import content_id

KERNELS_FOLDER = "optimized_cuda_code"
CUDA_GRAPH_FILE = Path("more_baselines/cuda_graph.json")
NO_CODE = ("", "None")
"""Texts of the release in place of missing code; seventeen rows of the H100's file claim a speedup
beside the second."""
Place = tuple[int, int]
"""A level and a number in it."""


class Which(StrEnum):
    """The sources of the release to judge, each against the reference of its row."""

    KERNELS = "kernels"
    """The released kernels."""
    CUDA_GRAPH = "cuda_graph"
    """Their baseline: each reference as a CUDA graph."""
    REFERENCES = "references"
    """Each reference against itself, which must gain nothing."""


class KernelRow(BaseModel):
    """A line of a GPU kind's file; further fields are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    level_id: int
    task_id: int
    ref_code: Annotated[str, Field(min_length=1)]
    custom_code: str | None = None
    score_default: float | None = None
    """Claimed speedup over the reference in PyTorch's eager mode."""
    score_cuda_graph: float | None = None
    """Claimed speedup over the reference as a CUDA graph."""


class GraphRow(BaseModel):
    """A line of the file of references as CUDA graphs; further fields are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    level_id: int
    task_id: int
    code: str | None = None


Row = TypeVar("Row", KernelRow, GraphRow)


@dataclass(frozen=True)
class Entry:
    """One source of the release and the reference that it claims to replace."""

    place: Place
    reference: str
    """Source in KernelBench's format, as a file of it is read."""
    source: str | None
    """Source that defines `ModelNew`; None where the release has no code."""
    claim: float | None
    """Claimed speedup over the reference in eager mode; None where there is none."""

    @property
    def name(self) -> str:
        """Return the name that `--rows` takes, such as `2:14`."""
        return named(self.place)

    @property
    def problem_id(self) -> str:
        """Return the id of the reference as a `Problem`: rows may share it."""
        return content_id(self.reference)

    @property
    def candidate_id(self) -> str:
        """Return the id of the source as a `Candidate`."""
        return Candidate(problem_id=self.problem_id, source=self.source or "").id


def named(place: Place) -> str:
    """Return a place as `--rows` takes it."""
    return f"{place[0]}:{place[1]}"


def read(checkout: Path, kind: str, which: Which) -> list[Entry]:
    """Return the entries of a GPU kind, by level and number, those without code included.

    Raises:
        ConfigError: a file is absent, or a line of it is no row.
    """
    rows = _kernel_rows(checkout, kind)
    if which is Which.KERNELS:
        sources = {place: row.custom_code for place, row in rows.items()}
    elif which is Which.REFERENCES:
        sources = {place: _as_candidate(row.ref_code) + NULL_MARK for place, row in rows.items()}
    else:
        graphs = _by_place(checkout / CUDA_GRAPH_FILE, GraphRow)
        sources = {
            place: None if row.code is None else _as_candidate(row.code)
            for place, row in graphs.items()
        }
    return [
        Entry(place, _as_read(row.ref_code), _as_read(sources.get(place)), _claim(row, which))
        for place, row in sorted(rows.items())
    ]


def revision(checkout: Path, kind: str) -> str:
    """Return a name of the content of the files that are read."""
    files = (_kernels_file(checkout, kind), checkout / CUDA_GRAPH_FILE)
    return content_id(*(_text(file) for file in files if file.exists()))


def chosen_places(text: str) -> set[Place]:
    """Return the places that `--rows` names, such as `1:1,2:14`.

    Raises:
        ConfigError: one of them is no place.
    """
    places: set[Place] = set()
    for word in filter(None, (word.strip() for word in text.split(","))):
        match = re.fullmatch(r"(\d+):(\d+)", word)
        if match is None:
            raise ConfigError(f"--rows {word}: must be LEVEL:NUMBER, such as 2:14")
        places.add((int(match[1]), int(match[2])))
    if not places:
        raise ConfigError(f"--rows {text!r}: it names no place; give LEVEL:NUMBER, such as 2:14")
    return places


def choose(
    entries: Sequence[Entry], *, places: Collection[Place] = (), levels: Collection[int] = ()
) -> list[Entry]:
    """Return the entries at some places, if any are given, and of some levels, if any are given.

    Raises:
        ConfigError: there is nothing at one of the places.
    """
    if absent := set(places).difference(entry.place for entry in entries):
        raise ConfigError(f"--rows {named(min(absent))}: the file has no such row")
    return [
        entry
        for entry in entries
        if (not places or entry.place in places) and (not levels or entry.place[0] in levels)
    ]


def _claim(row: KernelRow, which: Which) -> float | None:
    if which is Which.KERNELS:
        return row.score_default
    if which is Which.REFERENCES or not row.score_default or not row.score_cuda_graph:
        return None
    # the kernel's claims over both: their ratio is what the graph gains over eager mode
    return row.score_default / row.score_cuda_graph


def _kernel_rows(checkout: Path, kind: str) -> dict[Place, KernelRow]:
    file = _kernels_file(checkout, kind)
    if file.exists():
        return _by_place(file, KernelRow)
    kinds = sorted(path.stem for path in file.parent.glob("*.json"))
    if not kinds:
        raise ConfigError(
            f"{checkout}: no {KERNELS_FOLDER}/*.json in it; give --checkout a checkout of "
            "https://github.com/deepreinforce-ai/CUDA-L1"
        )
    raise ConfigError(f"--kind {kind}: must be of {', '.join(kinds)}")


def _kernels_file(checkout: Path, kind: str) -> Path:
    return checkout / KERNELS_FOLDER / f"{kind}.json"


def _by_place(file: Path, kind: type[Row]) -> dict[Place, Row]:
    rows = list(_rows(file, kind))
    places = Counter((row.level_id, row.task_id) for row in rows)
    for place, count in places.items():
        if count > 1:
            raise ConfigError(f"{file}: {count} rows of {named(place)}; give a whole checkout")
    return {(row.level_id, row.task_id): row for row in rows}


def _rows(file: Path, kind: type[Row]) -> Iterator[Row]:
    for number, line in enumerate(_text(file).splitlines(), start=1):
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


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{file}: cannot be read ({said}); give a whole checkout") from error


@overload
def _as_read(code: str) -> str: ...


@overload
def _as_read(code: str | None) -> str | None: ...


def _as_read(code: str | None) -> str | None:
    """Return a source as it is read from a file, None where there is none: ids are of that text."""
    if code is None or code.strip() in NO_CODE:
        return None
    return naming_utf8(code.replace("\r\n", "\n").replace("\r", "\n"))


def _as_candidate(code: str) -> str:
    """Return a module in which the class has the name of a candidate's class."""
    return re.sub(r"\bModel\b", "ModelNew", code)
