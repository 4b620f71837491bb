"""The successes of others that a training stage shows in its first prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from cudal1.selection.exemplar import Birth


@dataclass(frozen=True)
class History:
    """The successes that a stage may show before it has any of its own."""

    stages: tuple[str, ...] = ()
    """Names of stages: their successes are looked up in the ledger when a prompt is made."""
    births: Mapping[str, Sequence[Birth]] = field(default_factory=dict)
    """Further ones by problem, from a file."""
    programs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The programs of `births` by problem."""

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Return the history that `queries/history.sql` has written down."""
        births: dict[str, list[Birth]] = {}
        programs: dict[str, set[str]] = {}
        for row in rows:
            birth = Birth(candidate_id=row["candidate_id"], score=row["certified"])
            births.setdefault(row["problem_id"], []).append(birth)
            programs.setdefault(row["problem_id"], set()).add(row["program_id"])
        return cls((), births, {key: frozenset(found) for key, found in programs.items()})
