"""The report: tables, figures, one HTML page and a Markdown summary, from frames that it is given.

`cudal1.report.publish.publish` writes them; it draws charts, so it is imported where it is called.
"""

from __future__ import annotations

from cudal1.report.inputs import Provenance, ReportInput

__all__ = ["Provenance", "ReportInput"]
