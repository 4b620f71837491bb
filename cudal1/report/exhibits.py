"""Exhibits: each problem with its best candidate beside the reference, and one example a cheat.

Sources are shown as they are and may be hostile: whoever renders them escapes them.
"""

from __future__ import annotations

import polars as pl

from cudal1.record import Record
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.tallies import hack_flags
from cudal1.verdict import FlagSource, Status


class ProblemExhibit(Record):
    """A problem, and the best that was found for it."""

    key: str
    split: str
    problem_id: str
    num_answers: int
    num_correct: int
    reference: str
    certified: float | None
    """Of the best candidate; None when no candidate succeeded."""
    estimate: float | None
    reference_us: float | None
    candidate_us: float | None
    candidate_id: str | None
    authors: tuple[str, ...]
    """Who wrote it; several when the same source came more than once."""
    source: str | None
    """None also when the candidate's source was not handed over."""


class HackExhibit(Record):
    """One kind of cheat, by one example."""

    kind: str
    seen_by: str
    decides: bool
    num_candidates: int
    evidence: str
    """Of the example."""
    problem: str
    candidate_id: str
    authors: tuple[str, ...]
    source: str | None


def problem_exhibits(given: ReportInput) -> list[ProblemExhibit]:
    """The admitted problems, in the suite's order."""
    sources = _sources(given)
    counts = {
        row["problem_id"]: row
        for row in facts.answers(given)
        .group_by("problem_id")
        .agg(
            pl.len().alias("answers"),
            (pl.col("outcome") == Status.CORRECT.value).sum().alias("correct"),
        )
        .to_dicts()
    }
    exhibits: list[ProblemExhibit] = []
    for row in facts.best(given).to_dicts():
        count = counts.get(row["problem_id"], {"answers": 0, "correct": 0})
        exhibits.append(ProblemExhibit(
            key=facts.problem_key(row), split=row["split"], problem_id=row["problem_id"],
            num_answers=count["answers"], num_correct=count["correct"], reference=row["source"],
            certified=row["certified"], estimate=row["speedup"],
            reference_us=row["reference_us"], candidate_us=row["candidate_us"],
            candidate_id=row["candidate_id"], authors=tuple(row["authors"] or ()),
            source=sources.get(row["candidate_id"] or ""),
        ))  # fmt: skip
    return exhibits


def hack_exhibits(given: ReportInput) -> list[HackExhibit]:
    """One example of each kind of flag, deciding ones first."""
    sources = _sources(given)
    where: dict[str, str] = {
        row["candidate_id"]: row["problem_id"] for row in facts.timed_or_checked(given).to_dicts()
    }
    keys = {row["problem_id"]: facts.problem_key(row) for row in given.problems.to_dicts()}
    written = facts.answers(given).filter(pl.col("candidate_id").is_not_null())
    exhibits: list[HackExhibit] = []
    for (kind, source), part in (
        hack_flags(given).partition_by(["kind", "source"], as_dict=True).items()
    ):
        rows = part.to_dicts()
        # an example whose source can be shown, if there is one
        example = next((row for row in rows if row["candidate_id"] in sources), rows[0])
        candidate = example["candidate_id"]
        by = written.filter(pl.col("candidate_id") == candidate)["author"]
        exhibits.append(HackExhibit(
            kind=str(kind), seen_by=str(source), decides=source != FlagSource.SCREEN.value,
            num_candidates=part["candidate_id"].n_unique(), evidence=example["evidence"],
            problem=keys.get(where[candidate], where[candidate]), candidate_id=candidate,
            authors=tuple(by.unique(maintain_order=True).to_list()),
            source=sources.get(candidate),
        ))  # fmt: skip
    return sorted(exhibits, key=lambda e: (not e.decides, -e.num_candidates, e.kind, e.seen_by))


def _sources(given: ReportInput) -> dict[str, str]:
    return dict(given.candidates.select("candidate_id", "source").iter_rows())
