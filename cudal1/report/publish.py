"""Writes the report: page, summary, findings, and a figure on its own for the README."""

from __future__ import annotations

import json
from pathlib import Path

from cudal1.report.figures.figures import speedup_figure
from cudal1.report.figures.theme import standalone
from cudal1.report.findings import findings
from cudal1.report.headline import headlines, numbers
from cudal1.report.inputs import ReportInput
from cudal1.report.page import page_html
from cudal1.report.summary import summary_markdown

PAGE, SUMMARY, FIGURE, FINDINGS = "index.html", "summary.md", "speedups.svg", "findings.json"


def publish(given: ReportInput, folder: Path) -> dict[str, float | int]:
    """Write page, summary, `findings.json` and `speedups.svg`; return the headline numbers.

    Equal input makes equal bytes. The figure is absent while no candidate has succeeded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(page_html(given), encoding="utf-8")
    (folder / SUMMARY).write_text(summary_markdown(given), encoding="utf-8")
    said = {
        "findings": findings(given),
        "headlines": [tile.model_dump() for tile in headlines(given)],
    }
    text = json.dumps(said, indent=2, ensure_ascii=False)
    (folder / FINDINGS).write_text(text + "\n", encoding="utf-8")
    figure = speedup_figure(given, width=560, height=260)
    if figure is None:
        (folder / FIGURE).unlink(missing_ok=True)
    else:
        (folder / FIGURE).write_text(standalone(figure.svg), encoding="utf-8")
    return numbers(given)
