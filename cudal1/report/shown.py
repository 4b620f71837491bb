"""Which candidates the page shows: whoever fills in the input fetches those sources alone."""

from __future__ import annotations

from cudal1.report import gallery, problems
from cudal1.report.bursts import closest_gain
from cudal1.report.inputs import ReportInput


def candidates(given: ReportInput) -> list[str]:
    """Ids of the best candidates that have a section, of the gallery's, and of the closest gain.

    Their `candidates`, `samples`, `details` and `ancestors` need not be there yet.
    """
    shown = problems.with_sections(given), gallery.examples(given), closest_gain(given)
    return sorted({id_ for frame in shown for id_ in frame["candidate_id"].drop_nulls()})
