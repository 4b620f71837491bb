"""Tests of the summary at the end of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.server.summary import print_summary

MARKS = {
    "heldout_success": 0.125,
    "heldout_mean_reward": 0.25,
    "heldout_mean_best_reward": 0.5,
    "heldout_num_answers": 8,
}


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "data" / "metrics"
    folder.mkdir(parents=True)
    (folder / "selfsup-r1.json").write_text(json.dumps(MARKS))
    return folder


def test_marks_of_a_finished_stage_are_shown(
    metrics: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (metrics.parent / "shards" / "selfsup@r1").mkdir(parents=True)
    print_summary()
    said = capsys.readouterr().out
    assert "self-supervised r1" in said
    assert "12.5%" in said


def test_the_shipped_run_s_marks_are_not_mistaken_for_ours(
    metrics: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert metrics.is_dir()
    print_summary()
    assert "12.5%" not in capsys.readouterr().out


def test_a_missing_report_is_not_named(metrics: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_summary()
    assert "report:" not in capsys.readouterr().out
    (metrics.parent / "report").mkdir()
    (metrics.parent / "report" / "index.html").touch()
    print_summary()
    assert "report:" in capsys.readouterr().out


def test_the_last_table_has_headline_and_null_test_and_the_findings_follow(
    metrics: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (metrics.parent / "report").mkdir()
    said = {
        "findings": ["rl is worse than r1 by 0.09 (0.01 to 0.17)."],
        "headlines": [
            {"label": "Mean speedup", "value": "1.50", "note": "measured again"},
            {"label": "Null test", "value": "1.00", "note": "none above 1.01"},
        ],
    }
    (metrics.parent / "report" / "findings.json").write_text(json.dumps(said))
    print_summary()
    shown = capsys.readouterr().out
    table, findings = shown.split("what this run shows:")
    assert "Mean speedup" in table
    assert "none above 1.01" in table
    assert "1. rl is worse than r1 by 0.09 (0.01 to 0.17)." in findings
    assert "took " in findings


def test_marks_have_their_intervals(metrics: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = {"heldout_success_low": 0.05, "heldout_success_high": 0.25}
    (metrics / "selfsup-r1.json").write_text(json.dumps({**MARKS, **ends}))
    (metrics.parent / "shards" / "selfsup@r1").mkdir(parents=True)
    print_summary()
    assert "12.5% (5.0% to 25.0%)" in capsys.readouterr().out
