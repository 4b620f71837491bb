"""Read what the report shows: its five sentences and its headlines, for the log and for Prefect."""

from __future__ import annotations

import json
import os
from typing import Any

from tasks.stage import DATA

REPORT = DATA / "report"
REPORT_URL = "CUDAL1_REPORT_URL"
"""Environment variable with the address where `make prefect` serves the report.

A browser opens no file from a web page.
"""


def found() -> dict[str, Any]:
    """Return the report's `findings` and `headlines`; nothing where there is no report."""
    path = REPORT / "findings.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def markdown() -> str:
    """Return sentences, headlines and the page's address as Markdown; empty without a report."""
    said = found()
    if not said:
        return ""
    sentences = [f"{number}. {text}" for number, text in enumerate(said["findings"], 1)]
    rows = [
        f"| {tile['label']} | **{tile['value']}** | {tile['note']} |" for tile in said["headlines"]
    ]
    return "\n".join(
        [
            "# What this run shows",
            "",
            *sentences,
            "",
            "| | | |",
            "|---|--:|---|",
            *rows,
            "",
            f"The whole report: {address()} · policies and curves: `make mlflow`",
        ]
    )


def address() -> str:
    """Return a link to the page, where it is served; else its place."""
    page, url = REPORT / "index.html", os.environ.get(REPORT_URL)
    if not page.exists():
        return "not made yet"
    return f"[{page}]({url})" if url else f"`{page}`"
