"""Tests that reports of a check are whole, and show hostile words to the letter."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from cudal1.cli.verdicts import check_reports
from cudal1.errors import ConfigError
from cudal1.services.checking.finding import Finding, State

HOSTILE = "incorrect: <b>|x|</b> ](javascript:1) ]]>\x1b[31m\x00"


def finding(state: State, reason: str = "1.500x where 1.500x was proven (+0.0%)") -> Finding:
    return Finding(
        record="kept/model.faster.json",
        problem="model.py",
        version="model.faster.py",
        device_kind="cpu",
        state=state,
        reason=reason,
        proven=1.5,
        speedup=1.49,
        detects=0.035,
        changed_versions=("torch 2.12.0 → 2.13.0",),
        took_s=3.0,
    )


FINDINGS = [finding(state) for state in State]


def test_junit_counts_failures_errors_and_skipped_ones() -> None:
    suite = ElementTree.fromstring(check_reports.junit_xml(FINDINGS))
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "3", "errors": "1", "skipped": "1"}
    cases = {
        case.findall("properties/property[@name='state']")[0].get("value"): case for case in suite
    }
    assert cases["slower"].find("failure") is not None
    assert cases["unjudged"].find("error") is not None
    assert cases["elsewhere"].find("skipped") is not None
    assert [child.tag for child in cases["fine"]] == ["properties", "system-out"]


def test_hostile_reasons_stay_text() -> None:
    findings = [finding(State.WRONG, HOSTILE)]
    suite = ElementTree.fromstring(check_reports.junit_xml(findings))
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "<b>|x|</b> ](javascript:1) ]]>" in (failure.text or "")
    table = check_reports.markdown(findings)
    assert "<b>" not in table
    assert "\\]\\(" in table or "\\](" in table
    (row,) = [line for line in table.splitlines() if line.startswith("| model")]
    assert row.replace("\\|", "").count("|") == len(check_reports.COLUMNS) + 1
    for text in (table, *check_reports.lines(findings)):
        assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_lines_say_what_a_check_finds_and_what_has_changed() -> None:
    *lines, count = check_reports.lines(FINDINGS)
    assert lines[0] == (
        "fine: kept/model.faster.json: model.py: 1.500x where 1.500x was proven (+0.0%); "
        "finds slowdowns from 3.5% on; since then: torch 2.12.0 → 2.13.0"
    )
    assert count == "6 proofs: 1 fine, 1 slower, 1 wrong, 1 changed, 1 elsewhere, 1 unjudged"


def test_a_summary_of_a_job_is_added_to_and_junit_is_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        check_reports.save(tmp_path / "summary", "a\n", appends=True)
        check_reports.save(tmp_path / "junit", "a\n")
    assert (tmp_path / "summary").read_text() == "a\na\n"
    assert (tmp_path / "junit").read_text() == "a\n"
    with pytest.raises(ConfigError, match="cannot be written"):
        check_reports.save(tmp_path, "a")
