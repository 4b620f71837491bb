"""The report: tables, figures, one HTML page and a Markdown summary, from the frames it is given.

`cudal1.report.publish.publish` writes the report. It draws charts, so it is imported only where it
is called.
"""

from __future__ import annotations

from cudal1.report.inputs import Provenance, ReportInput

__all__ = ["Provenance", "ReportInput"]
