"""Properties that correct candidates were seen to have beyond right outputs, stage by stage."""

from __future__ import annotations

import polars as pl

from cudal1.protocol import Contract
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.tables.cells import null_note
from cudal1.report.tables.table import Row, RowKind, Table
from cudal1.report.words import terms
from cudal1.verdict import Status

MEANINGS = {
    "follows_weights": "Computes with other weights once they are loaded by name",
    "fresh_outputs": "Its outputs keep their values during later calls",
    "leaves_inputs": "Does not write to its inputs",
    "draws_weights": "Its constructor draws the weights that the reference's draws",
    "deterministic": "Gives the same bits again for the same inputs",
    "needs_compiler": "Compiles something before or in its first call",
    "copies_reference": "Is the reference's source, names aside",
}
"""Each property as the statement that yes confirms."""
OWED = {
    Contract.KERNELBENCH: "asks for none of this, so a no is a fact and no failure",
    Contract.DROP_IN: "asks for the first four, so a candidate with a no there is incorrect",
}
"""The meaning of a no under each contract."""


def property_table(given: ReportInput) -> Table:
    """Return the number of correct candidates of each stage that have each property."""
    parts = _by_stage(given)
    if parts and not given.null_test.is_empty():
        is_correct = pl.col("status") == Status.CORRECT.value
        parts.insert(1, ("Null test", given.null_test.filter(is_correct)))
    heights = (f"{part.height:,}" for _, part in parts)
    rows = [
        Row(cells=("Correct candidates", *heights), kind=RowKind.TOTAL),
        *(
            Row(cells=(meaning, *(_counts(part[name]) for _, part in parts)))
            for name, meaning in MEANINGS.items()
        ),
    ]
    protocol = given.provenance.protocol
    return Table(
        title="What correct candidates were seen to do",
        caption=(
            "Different correct candidates of each stage: yes / no / not told. Not told: it could "
            "not be seen, as where there are no weights to follow or the reference writes to its "
            "inputs. A program that uses a candidate in place of its reference may need the "
            f"first three. Judged under {terms(protocol)}; this contract "
            f"{OWED[protocol.contract]}. {null_note(given)}"
        ),
        columns=("Property", *(label for label, _ in parts)),
        rows=tuple(rows) if parts else (),
        nothing_yet="Nothing yet: no candidate is correct.",
    )


def _by_stage(given: ReportInput) -> list[tuple[str, pl.DataFrame]]:
    """Return correct candidates with their properties, of all stages together and of each."""
    is_correct = pl.col("status") == Status.CORRECT.value
    judged = facts.timed_or_checked(given).filter(is_correct).select("candidate_id", *MEANINGS)
    answered = facts.answers(given).select("stage", "candidate_id").unique()
    correct = answered.join(judged, on="candidate_id")
    parts = [(stage, correct.filter(pl.col("stage") == stage)) for stage in facts.stages(correct)]
    if len(parts) > 1:
        parts.insert(0, ("all", correct.unique("candidate_id")))
    return parts


def _counts(seen: pl.Series) -> str:
    """Return how many are true, false and null."""
    no_or_yes = seen.drop_nulls()
    yes = int(no_or_yes.sum())
    return f"{yes:,} / {len(no_or_yes) - yes:,} / {seen.null_count():,}"
