"""Statements of the reviewer and of people about candidates, as the ledger stores and finds them.

`views.sql` decides which of them hold: views `words`, `vetoes` and `judged`.
"""

from __future__ import annotations

from cudal1.billing import Try
from cudal1.candidate import Candidate
from cudal1.hack_case import HackCase
from cudal1.ledger import rows
from cudal1.ledger.store import Store
from cudal1.review import Review, Ruling
from cudal1.verdict import FlagSource, HackFlag

RULINGS = "hacks"
"""Name of the shard that holds people's rulings."""


class Reviews(Store):
    """The part of the ledger that holds later opinions on verdicts."""

    def begin_rulings(self) -> None:
        """Start a run for a person's rulings, which has all earlier ones: no stage owns them."""
        self.begin(RULINGS)
        for row in self._rows("select candidate_id from rulings"):
            self._adopt("rulings", row["candidate_id"])

    def add_review(self, review: Review, paid: Try | None = None) -> None:
        """Note the reviewer's answer; an answer replaces a failed request."""
        batches = [rows.batch_of_review(review)]
        self._append(*batches, *([] if paid is None else [rows.batch_of_try(paid)]))

    def add_case(self, case: HackCase) -> None:
        """Note a cheat that ships with cudal1; cheats that are confirmed here are rulings."""
        self._append(rows.batch_of_case(case))

    def add_ruling(self, ruling: Ruling) -> None:
        """Note a person's decision about a candidate; the latest holds."""
        self._append(rows.batch_of_ruling(ruling))

    def veto(self, candidate: Candidate) -> HackFlag | None:
        """Return the cheat that a person or the reviewer saw in a candidate; None without one.

        All statements about the candidate become the stage's, whatever they say: together they
        decide.
        """
        for row in self._rows(
            "select 'reviews' as kind, review_id as key from reviews where candidate_id = ? "
            "union all select 'rulings', candidate_id from rulings where candidate_id = ? "
            "or code_id in (select code_id from reviews where candidate_id = ?)",
            candidate.id,
            candidate.id,
            candidate.id,
        ):
            self._adopt(row["kind"], row["key"])
        found = self._rows("select * from vetoes where candidate_id = ?", candidate.id)
        if not found:
            return None
        row = found[0]
        source = FlagSource(row["source"])
        return HackFlag(kind=row["kind"], source=source, evidence=row["evidence"])

    def reviews(self, candidate: Candidate, *, reviewer_id: str) -> list[Review]:
        """Return a reviewer's earlier statements on a candidate, in the order of its attempts."""
        found = self._rows(
            "select * from reviews where candidate_id = ? and reviewer_id = ? order by attempt",
            candidate.id,
            reviewer_id,
        )
        for row in found:
            self._adopt("reviews", row["review_id"])
        return [rows.review_of(row) for row in found]

    def remark(self, candidate: Candidate) -> str | None:
        """Return the latest words of a reviewer that let a candidate pass; None without any.

        They become the stage's, since its next prompt shows them.
        """
        found = self._rows(
            "select review_id, evidence from reviews where candidate_id = ? and is_cheat = false "
            "order by attempt desc, review_id limit 1",
            candidate.id,
        )
        for row in found:
            self._adopt("reviews", row["review_id"])
        return found[0]["evidence"] if found else None

    def has_review(self, review_id: str) -> bool:
        """Return whether a review is stored; if so it becomes the stage's, too."""
        found = self._rows("select 1 from reviews where review_id = ?", review_id)
        if found:
            self._adopt("reviews", review_id)
        return bool(found)

    def has_opinions(self) -> bool:
        """Return whether the ledger holds any review or ruling."""
        return bool(self._rows("select 1 where exists (from reviews) or exists (from rulings)"))

    def was_judged(self, problem_id: str) -> bool:
        """Return whether the ledger holds any review or ruling on a problem's candidates."""
        found = self._rows(
            "select 1 where exists (from reviews where problem_id = ?) or exists "
            "(from rulings join candidates using (candidate_id) where problem_id = ?)",
            problem_id,
            problem_id,
        )
        return bool(found)

    def ruling_on(self, candidate: Candidate, *, code_id: str) -> Ruling | None:
        """Return a person's ruling on a candidate, or else the latest on the same code."""
        found = self._rows(
            "select * from rulings where candidate_id = ? or code_id = ? "
            "order by candidate_id = ? desc, ruled_at desc limit 1",
            candidate.id,
            code_id,
            candidate.id,
        )
        return rows.ruling_of(found[0]) if found else None

    def opinion_on(self, code_id: str, *, reviewer_id: str | None) -> Review | None:
        """Return a veto of the code by any reviewer, or else this reviewer's opinion; else None."""
        found = self._rows(
            "select * from reviews where code_id = ? and (is_cheat or reviewer_id = ?) "
            "and is_cheat is not null order by is_cheat desc, review_id limit 1",
            code_id,
            reviewer_id,
        )
        return rows.review_of(found[0]) if found else None

    def cases(self) -> list[HackCase]:
        """Return all cheats that the reviewer may be shown, by id; confirmed ones are unchanged."""
        return [rows.case_of(row) for row in self._rows("select * from cases order by case_id")]
