"""The rule of each table for facts that were published more than once.

The rules say what `inserting.on_conflict` says of a database. Rows with the same unit stand for one
fact, and one publication's rows hold: those of the lowest rank, and among equal ranks the earliest
or the latest publication.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudal1.ledger.inserting import VERDICT_KEY

_HAS_FAILED = "starts_with(finish_reason, 'error: ')::integer"


@dataclass(frozen=True)
class Rule:
    """A choice of one among several publications of a fact."""

    unit: tuple[str, ...]
    """Columns that name what holds as a whole."""
    rank: str = "0"
    """SQL; the lowest holds."""
    is_latest: bool = False
    """Among equal ranks the latest publication holds, not the earliest."""
    state: tuple[str, ...] = ()
    """Columns that may change: where they differ, a later publication is worth while."""

    def summary(self, rows: str, *more: str) -> str:
        """Return SQL of `rank` and `state` of each unit in some rows.

        Args:
            rows: SQL of a table.
            more: columns that tell units apart, too.
        """
        by = ", ".join((*more, *self.unit))
        state = f"bit_xor(hash({', '.join(self.state)}))" if self.state else "0"
        return f"select {by}, min({self.rank}) as rank, {state} as state from {rows} group by {by}"


FACTS = {
    "problems": Rule(
        ("problem_id",),
        is_latest=True,
        state=("admitted", "rejection", "revision", "split", "invariants"),
    ),
    "mutants": Rule(
        ("problem_id",),
        is_latest=True,
        state=("mutant", "killed", "family", "num_inputs", "precision"),
    ),
    "protocols": Rule(("protocol_id",)),
    "completions": Rule(
        ("completion_id",),
        _HAS_FAILED,
        True,
        ("finish_reason", "candidate_id", "no_candidate_reason"),
    ),
    "candidates": Rule(
        ("candidate_id",), "(program_id is null)::integer + (techniques is null)::integer"
    ),
    "verdicts": Rule(VERDICT_KEY),
    "tries": Rule(("request_id", "sent_at"), "(outcome = 'sent')::integer"),
    "reviews": Rule(("review_id",), _HAS_FAILED, True, ("finish_reason", "is_cheat", "kind")),
    "rulings": Rule(("candidate_id",), "-epoch(ruled_at::timestamp)"),
    "hack_cases": Rule(("case_id",)),
    "baselines": Rule(("candidate_id",)),
    "runs": Rule(
        ("stage", "started_at"), is_latest=True, state=("num_starts", "ended_at", "num_facts")
    ),
}
"""Rules of tables of facts."""
WITH_VERDICTS = {
    "timing_samples": (*VERDICT_KEY, "session", "quad", "position", "role"),
    "timing_spreads": (*VERDICT_KEY, "session", "role"),
    "hack_flags": (*VERDICT_KEY, "kind", "source"),
}
"""Order of tables that are published beside their verdicts, and hold where their verdict does."""
OF_STAGES = {
    "members": Rule(("stage", "kind", "key"), is_latest=True),
    "rewards": Rule(("stage", "step", "completion_id"), is_latest=True),
    "training_steps": Rule(("stage", "step", "name"), is_latest=True),
}
"""Rules of tables of which a writer states each stage as a whole: the latest statement holds."""
TABLES = (*FACTS, *WITH_VERDICTS, *OF_STAGES)
"""All tables that are published."""
