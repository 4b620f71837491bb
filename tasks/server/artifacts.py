"""Artifacts of a flow run in Prefect: what the report shows, and a link to its page."""

from __future__ import annotations

import os

from prefect.artifacts import create_link_artifact, create_markdown_artifact

from tasks.server.findings import REPORT_URL, markdown


def show_findings() -> None:
    """Attach the report's sentences and headlines to the flow run, and a link to its page."""
    said = markdown()
    if not said:
        return
    create_markdown_artifact(said, key="findings", description="what this run shows")
    if url := os.environ.get(REPORT_URL):
        create_link_artifact(url, link_text="the report", key="report", description="its page")
