"""Tests that the pages of an audit show its result, and nothing without one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.release import page, summary
from benchmarks.release.findings import Finding
from cudal1.errors import ConfigError
from cudal1.protocol import PrecisionClass
from cudal1.verdict import Status
from tests.benchmarks.test_release import finding, verdict


def result(rows: list[Finding]) -> dict[str, Any]:
    """Return an audit's result with these rows, all of the released kernels."""
    walls = summary.walls([], [], rows, [], [])
    return {
        "kind": "h100",
        "machine": {"device": "NVIDIA H100", "versions": {"torch": "2.11.0"}},
        "harness_version": "21",
        "measured": "2026-11-28",
        "protocol_id": "x",
        "protocol": {"max_claim": 100.0, "alpha": 0.01},
        "revision": "abc",
        "sources": {"kernels": {**summary.summarise(rows), "walls": walls}},
    }


ROWS = [
    finding(1, 4.0, judged=verdict(certified=1.5), in_classes={PrecisionClass.STRICT: True}),
    finding(2, 10.0, judged=verdict(Status.INCORRECT)),
]


def test_the_page_names_the_judged_sources_and_the_machine() -> None:
    said = page.page(result(ROWS), name="release_h100.json")
    for word in ("NVIDIA H100", "PyTorch 2.11.0", "harness version 21", "`abc`", "2026-11-28"):
        assert word in said
    assert "benchmarks/results/release_h100.json" in said
    assert "with 99% confidence in each" in said
    assert "| outputs of another kind | 1 | 1 | 1:2 |" in said


def test_readme_shows_claims_beside_certified_speedups_by_level() -> None:
    said = page.block(result(ROWS))
    assert "| all | 2 | 7.00 | 1 | 1 | 1 | 0 | 1.50 | 4.00 |" in said
    assert "(docs/release.md)" in said


def test_the_text_between_the_marks_is_replaced() -> None:
    text = f"before\n{page.BEGIN}\n{page.END}\nafter\n"
    once = page.between_marks(text, "one")
    assert once == f"before\n{page.BEGIN}\none\n{page.END}\nafter\n"
    assert page.between_marks(once, "two") == once.replace("one", "two")
    assert page.between_marks(once, "") == text


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ConfigError, match="put both where it goes"):
        page.between_marks("no marks\n", "one")


def test_pages_show_the_committed_result_or_nothing() -> None:
    readme = page.README.read_text(encoding="utf-8")
    if not page.RESULT.exists():
        assert not page.PAGE.exists()
        assert page.between_marks(readme, "") == readme
        return
    found = json.loads(page.RESULT.read_text(encoding="utf-8"))
    assert page.PAGE.read_text(encoding="utf-8") == page.page(found, name=page.RESULT.name)
    assert page.between_marks(readme, page.block(found)) == readme
