"""Tests of the text and the JSON of a file of candidates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudal1.cli.options.settings import choose
from cudal1.cli.verdicts.outcome import Outcome
from cudal1.cli.verdicts.show_outcome import as_text, show_outcome
from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.verdict import Status, Verdict

SETTINGS = choose(None, "cpu", "cpu", None)
OUT = Path("answers.verdicts.jsonl")


def _judged(candidate: str) -> Judged:
    verdict = Verdict(
        problem_id="p",
        candidate_id=candidate,
        protocol_id="0123",
        device_kind="cpu",
        device_id="d",
        status=Status.CRASHED,
        reason="no",
        judged_at="now",
        judge_s=1.0,
    )
    return Judged(
        suite="own", revision="r", level=1, problem_id=1, problem="own/L1/01_x", verdict=verdict
    )


def _outcome(*candidates: str, num_rows: int, num_without: int = 0) -> Outcome:
    judged = [_judged(candidate) for candidate in candidates]
    return Outcome("cpu", num_rows, [], num_without, len(judged), judged)


def _shown(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    show_outcome(outcome, SETTINGS, OUT)
    lines = capsys.readouterr().out.splitlines()
    return {label: text for label, _, text in (line.partition("  ") for line in lines)}


def test_repeated_rows_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = _outcome("a", "b", num_rows=6, num_without=1)
    assert _shown(outcome, capsys)["repeated"].split(":")[0].strip() == "3 of 6 rows"
    assert json.loads(as_text(outcome, SETTINGS, OUT))["num_repeated"] == 3


@pytest.mark.parametrize(
    "outcome",
    [_outcome("a", "b", num_rows=2), _outcome(num_rows=2, num_without=2), _outcome(num_rows=0)],
)
def test_an_outcome_without_repeated_rows_does_not_mention_them(
    outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "repeated" not in _shown(outcome, capsys)
    assert json.loads(as_text(outcome, SETTINGS, OUT))["num_repeated"] == 0
