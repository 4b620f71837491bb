"""The hack gallery: one example of each cheat that was seen, with its code and the evidence.

Sources and evidence may be hostile: the renderer must escape them.
"""

from __future__ import annotations

import polars as pl

from cudal1.record import Record
from cudal1.report import facts
from cudal1.report.comparison import Listing, listing
from cudal1.report.inputs import ReportInput
from cudal1.report.limits import NUM_EVIDENCE_CHARS, NUM_KINDS
from cudal1.report.tables.tallies import hack_flags
from cudal1.report.words import restricted
from cudal1.verdict import FlagSource, Properties, Status


class HackExhibit(Record):
    """One kind of cheat, shown by one example."""

    kind: str
    seen_by: str
    decides: bool
    num_candidates: int
    evidence: str
    """Evidence of the example."""
    problem: str
    candidate_id: str
    status: str
    """Status that the harness gave the example."""
    restricted: str
    """Restriction of its use, if it is correct; may be empty."""
    authors: tuple[str, ...]
    source: Listing | None
    """Source of the example; None when it was not handed over."""


class Gallery(Record):
    """The exhibits that are shown, and the number of kinds that are not."""

    exhibits: tuple[HackExhibit, ...]
    num_left_out: int
    """Kinds without an example here."""


def examples(given: ReportInput) -> pl.DataFrame:
    """Return a row for each kind of cheat and detector: the number of candidates, and an example.

    Kinds that decide come first. The example is a caught candidate, if there is one: the screen's
    label on it tells more than the same label on honest code.
    """
    told = ["problem_id", "status", *Properties.model_fields]
    status = facts.timed_or_checked(given).select("candidate_id", *told)
    flagged = hack_flags(given).join(status, on="candidate_id", how="left")
    return (
        flagged.sort(pl.col("status") != Status.HACKED.value, "candidate_id")
        .group_by("kind", "source")
        .agg(
            pl.col("candidate_id").n_unique().alias("num_candidates"),
            pl.col("candidate_id", "evidence", *told).first(),
        )
        .with_columns(decides=pl.col("source") != FlagSource.SCREEN.value)
        .sort("decides", "num_candidates", "kind", "source", descending=[True, True, False, False])
    )


def hack_gallery(given: ReportInput) -> Gallery:
    """Return the kinds of cheat with their examples, as many as a page may hold."""
    found = examples(given)
    sources = dict(given.candidates.select("candidate_id", "source").iter_rows())
    keys: dict[str, str] = {
        row["problem_id"]: facts.problem_key(row) for row in given.problems.to_dicts()
    }
    shown = found.head(NUM_KINDS).join(
        facts.authors(given), on="candidate_id", how="left", maintain_order="left"
    )
    exhibits = [
        HackExhibit(
            kind=row["kind"],
            seen_by=row["source"],
            decides=row["decides"],
            num_candidates=row["num_candidates"],
            evidence=_short(row["evidence"]),
            problem=keys.get(row["problem_id"]) or str(row["problem_id"]),
            status=row["status"],
            restricted=restricted(facts.seen(row)),
            candidate_id=row["candidate_id"],
            authors=tuple(row["authors"] or ()),
            source=listing(source) if (source := sources.get(row["candidate_id"])) else None,
        )
        for row in shown.to_dicts()
    ]
    return Gallery(exhibits=tuple(exhibits), num_left_out=found.height - len(exhibits))


def _short(evidence: str) -> str:
    is_long = len(evidence) > NUM_EVIDENCE_CHARS
    return f"{evidence[:NUM_EVIDENCE_CHARS]} …" if is_long else evidence
