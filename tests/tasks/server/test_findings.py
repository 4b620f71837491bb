"""Tests that Prefect is shown what the report says, with a link where its page is served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.server import findings as module
from tasks.server.findings import REPORT_URL, found, markdown

SAID = {
    "findings": ["The best is r1.", "rl is worse than r1 by 0.09 (0.01 to 0.17)."],
    "headlines": [{"label": "Null test", "value": "1.00", "note": "none above 1.01"}],
}


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "REPORT", tmp_path)
    monkeypatch.delenv(REPORT_URL, raising=False)
    return tmp_path


def test_without_a_report_there_is_nothing_to_show(report: Path) -> None:
    assert (found(), markdown()) == ({}, "")


def test_sentences_headlines_and_the_page_are_shown(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (report / "findings.json").write_text(json.dumps(SAID))
    (report / "index.html").touch()
    assert "2. rl is worse than r1 by 0.09 (0.01 to 0.17)." in markdown()
    assert "| Null test | **1.00** | none above 1.01 |" in markdown()
    assert f"The whole report: `{report / 'index.html'}`" in markdown()
    monkeypatch.setenv(REPORT_URL, "http://127.0.0.1:4201/index.html")
    assert f"[{report / 'index.html'}](http://127.0.0.1:4201/index.html)" in markdown()
