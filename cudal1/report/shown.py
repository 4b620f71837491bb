"""Lists the candidates that the page shows, so that the input need hold only their sources."""

from __future__ import annotations

from cudal1.report import gallery, problems
from cudal1.report.figures.bursts import closest_gain
from cudal1.report.inputs import ReportInput


def candidates(given: ReportInput) -> list[str]:
    """Return ids of the sections' best candidates, of the gallery's, and of the closest gain's.

    Their `candidates`, `samples`, `details` and `ancestors` need not be there yet.
    """
    shown = problems.with_sections(given), gallery.examples(given), closest_gain(given)
    return sorted({id_ for frame in shown for id_ in frame["candidate_id"].drop_nulls()})
