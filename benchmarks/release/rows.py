"""Read the rows of a checkout of the authors' repository: references, kernels and claims."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.llm.cuda_l1 import (
    KernelRow,
    Place,
    PlacedRow,
    as_read,
    by_place,
    kernel_rows,
    kernels_file,
    named,
    text_of,
)
from cudal1.problem import NULL_MARK
from cudal1.record import content_id

CUDA_GRAPH_FILE = Path("more_baselines/cuda_graph.json")


class Which(StrEnum):
    """The sources of the release to judge, each against the reference of its row."""

    KERNELS = "kernels"
    """The released kernels."""
    CUDA_GRAPH = "cuda_graph"
    """Their baseline: each reference as a CUDA graph."""
    REFERENCES = "references"
    """Each reference against itself, which must gain nothing."""


class GraphRow(PlacedRow):
    """A line of the file of references as CUDA graphs."""

    code: str | None = None


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


def read(checkout: Path, kind: str, which: Which) -> list[Entry]:
    """Return the entries of a GPU kind, by level and number, those without code included.

    Raises:
        ConfigError: a file is absent, or a line of it is no row.
    """
    rows = kernel_rows(checkout, kind)
    if which is Which.KERNELS:
        sources = {place: row.custom_code for place, row in rows.items()}
    elif which is Which.REFERENCES:
        sources = {place: _as_candidate(row.ref_code) + NULL_MARK for place, row in rows.items()}
    else:
        graphs = by_place(checkout / CUDA_GRAPH_FILE, GraphRow)
        sources = {
            place: None if row.code is None else _as_candidate(row.code)
            for place, row in graphs.items()
        }
    return [
        Entry(place, as_read(row.ref_code), as_read(sources.get(place)), _claim(row, which))
        for place, row in sorted(rows.items())
    ]


def revision(checkout: Path, kind: str) -> str:
    """Return a name of the content of the files that are read."""
    files = (kernels_file(checkout, kind), checkout / CUDA_GRAPH_FILE)
    return content_id(*(text_of(file) for file in files if file.exists()))


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


def _as_candidate(code: str) -> str:
    """Return a module in which the class has the name of a candidate's class."""
    return re.sub(r"\bModel\b", "ModelNew", code)
