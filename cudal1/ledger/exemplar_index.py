"""The successes that prompts choose exemplars from, kept in memory while a stage adds to them.

Reinforcement asks at each rollout for all successes of a problem. The plain query
(`queries/births.sql`) reads whole tables, so it runs once, for all problems. After it, only
candidates with new facts are looked up again, by indexes. The answers equal those of the plain
query at each moment: tests/ledger/test_exemplar_index.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cudal1.ledger.rows import Batch, verdict_key
from cudal1.selection.exemplar import Birth

FEW = 500
"""Number of changed candidates that are looked up one by one; if more change, the plain query runs
again."""
Find = Callable[..., list[dict[str, Any]]]
"""A function that returns the rows of a query with `?` for parameters."""


@dataclass(frozen=True)
class Wanted:
    """The conditions on successes that count."""

    device_kind: str
    protocol_id: str
    stages: tuple[str, ...]
    running: str
    attempts_per_step: int


class ExemplarIndex:
    """All births that a stage may draw exemplars from, kept up to date."""

    def __init__(self, wanted: Wanted, plain: pl.DataFrame, find: Find) -> None:
        """Take the plain query's answer in `plain`, and a function that looks up rows in `find`."""
        self.wanted = wanted
        self._find = find
        self._frames = plain.partition_by("problem_id", as_dict=True)
        self._known: dict[str, dict[str, list[Birth]]] = {}
        self._changed: set[str] = set()
        self._vetoed: set[str] = set()
        self._vetoes_changed = True
        self.is_stale = False
        """True if the plain query must run again."""

    def hear(self, batches: Iterable[Batch]) -> None:
        """Note that batches are about to be inserted."""
        for batch in batches:
            match batch.table:
                case "completions":
                    self._answers_change(_column(batch, "completion_id"))
                    self._change(found for found in _column(batch, "candidate_id") if found)
                case "verdicts":
                    self._change(_column(batch, "candidate_id"))
                case "reviews":
                    self._vetoes_changed = True
                    self._change(_column(batch, "candidate_id"))
                case "rulings":  # a ruling holds for the same code under any name
                    self.is_stale = True

    def hear_use(self, kind: str, key: str) -> None:
        """Note that the stage uses a fact that was in the ledger already."""
        if kind == "verdicts":
            self._change([key.split("/", 1)[0]])
        elif kind == "completions":
            self._answers_change([key])

    def of(self, problem_id: str, used: Collection[tuple[str, str]]) -> list[Birth]:
        """Return the births of a problem's successes, in the order of the plain query.

        Args:
            problem_id: the problem.
            used: kind and key of facts that the running stage uses; the database may lack some.
        """
        if self._changed:
            self._look_up(used)
        births = self._of_problem(problem_id)
        return [birth for candidate in sorted(births) for birth in births[candidate]]

    def _of_problem(self, problem_id: str) -> dict[str, list[Birth]]:
        if problem_id not in self._known:
            found: dict[str, list[Birth]] = {}
            frame = self._frames.pop((problem_id,), None)
            for row in [] if frame is None else frame.to_dicts():
                found.setdefault(row["candidate_id"], []).append(_birth(row))
            self._known[problem_id] = found
        return self._known[problem_id]

    def _change(self, candidates: Iterable[str]) -> None:
        self._changed.update(candidates)
        self.is_stale = self.is_stale or len(self._changed) > FEW

    def _answers_change(self, completion_ids: Sequence[str]) -> None:
        """Note changes of answers and of the candidates found in them earlier."""
        marks = _marks(completion_ids)
        found = self._find(
            f"select candidate_id from completions where completion_id in ({marks})",
            *completion_ids,
        )
        self._change(row["candidate_id"] for row in found if row["candidate_id"])

    def _look_up(self, used: Collection[tuple[str, str]]) -> None:
        """Look up changed candidates. A query has one condition: an index serves no other query."""
        changed = sorted(self._changed)
        self._changed.clear()
        if self._vetoes_changed:
            found = self._find("select candidate_id from vetoes")
            self._vetoed = {row["candidate_id"] for row in found}
            self._vetoes_changed = False
        verdicts, answers = self._found("verdicts", changed), self._found("completions", changed)
        scores = self._scores(verdicts)
        problems = {row["candidate_id"]: row["problem_id"] for row in verdicts}
        keys = {"verdicts": {key for _, key in scores.values()}}
        keys["completions"] = {row["completion_id"] for row in answers}
        uses = self._uses(keys, used)
        births: dict[str, set[Birth]] = {}
        for row in answers:
            certified, key = scores.get(row["candidate_id"], (None, ""))
            is_used = ("verdicts", key) in uses and ("completions", row["completion_id"]) in uses
            if certified is not None and is_used:
                born = row["attempt"] // self.wanted.attempts_per_step
                is_ours = row["stage"] == self.wanted.running
                values = {**row, "certified": certified, "born": born if is_ours else None}
                births.setdefault(row["candidate_id"], set()).add(_birth(values))
        for candidate_id, problem_id in problems.items():
            known = self._of_problem(problem_id)
            known.pop(candidate_id, None)
            if candidate_id in births:
                known[candidate_id] = sorted(births[candidate_id], key=_place)

    def _scores(self, verdicts: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, str]]:
        """Return the certified speedup and the verdict's key of each success."""
        wanted = self.wanted
        scores: dict[str, tuple[float, str]] = {}
        for row in verdicts:
            of = (row["device_kind"], row["protocol_id"])
            is_success = row["status"] == "correct" and row["candidate_id"] not in self._vetoed
            if (
                is_success
                and row["certified"] is not None
                and of == (wanted.device_kind, wanted.protocol_id)
            ):
                key = verdict_key(row["candidate_id"], *of)
                scores[row["candidate_id"]] = (row["certified"], key)
        return scores

    def _found(self, table: str, candidates: Sequence[str]) -> list[dict[str, Any]]:
        return self._find(
            f"select {_COLUMNS[table]} from {table} where candidate_id in ({_marks(candidates)})",
            *candidates,
        )

    def _uses(
        self, keys: Mapping[str, set[str]], used: Collection[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """Return those of these facts that the stages use."""
        flat = sorted(set().union(*keys.values()))
        found = self._find(
            f"select stage, kind, key from members where key in ({_marks(flat)})", *flat
        )
        uses = {(r["kind"], r["key"]) for r in found if r["stage"] in self.wanted.stages}
        if self.wanted.running in self.wanted.stages:
            uses |= {(kind, key) for kind, of in keys.items() for key in of if (kind, key) in used}
        return uses


_COLUMNS = {
    "verdicts": "candidate_id, problem_id, device_kind, protocol_id, status, certified",
    "completions": "completion_id, candidate_id, stage, attempt, island",
}


def _birth(row: Mapping[str, Any]) -> Birth:
    return Birth(
        candidate_id=row["candidate_id"],
        score=row["certified"],
        born=row["born"],
        island=row["island"],
    )


def _place(birth: Birth) -> tuple[int, int]:
    """Return the sort key of the plain query: None comes before the first."""
    return (-1 if birth.born is None else birth.born, -1 if birth.island is None else birth.island)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values)) or "null"


def _column(batch: Batch, name: str) -> list[Any]:
    place = batch.columns.index(name)
    return [row[place] for row in batch.rows]
