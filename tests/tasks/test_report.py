"""Tests of the report stage's own judgements beside providers' answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.baseline import Baseline, as_candidate
from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.ledger import Ledger
from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.protocol import PrecisionClass
from cudal1.settings.params import Params
from cudal1.verdict import Correctness, Properties, Verdict
from tasks import report
from tasks.stage import Stage
from tests.services.test_reviewing import VERDICT

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")


class SeenSource:
    """A source of verdicts that records the requested candidates."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def judge_possible(
        self, asked: Sequence[tuple[Problem, Candidate]], advance: Callable[[int], None]
    ) -> list[Any]:
        self.seen += [(problem.id, candidate.id) for problem, candidate in asked]
        return [self.says(candidate) for _, candidate in asked]

    def says(self, candidate: Candidate) -> Verdict | None:
        """Return a verdict; None for a large candidate."""
        if "large" in candidate.source:
            return None
        changes = {"problem_id": candidate.problem_id, "candidate_id": candidate.id}
        return VERDICT.model_copy(update=changes)


def _problem(name: str) -> Problem:
    return Problem(
        suite="cudal1",
        level=1,
        number=1,
        name=name,
        split=Split.TRAIN,
        device_class=DeviceClass.CPU,
        revision="1",
        source=f"class Model: '{name}'\n",
    )


@pytest.fixture
def compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Ledger, SeenSource]]:
    """Return a ledger and a source of verdicts after two problems met these baselines."""
    problems = [_problem("softmax"), _problem("gelu")]
    monkeypatch.setattr(report, "admitted_problems", lambda: problems)

    def compare(*baselines: Baseline) -> tuple[Ledger, SeenSource]:
        section = PARAMS.report.model_copy(update={"baselines": baselines})
        params = PARAMS.model_copy(update={"report": section})
        ledger, source = Ledger.open(tmp_path), SeenSource()
        ledger.begin("report")
        for problem in problems:
            ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        report._judge_baselines(Stage("report", None, params, "r"), ledger, source)  # pyright: ignore[reportArgumentType] - it is asked for verdicts alone
        return ledger, source

    return compare


def test_every_reference_is_judged_as_every_baseline(
    compared: Callable[..., tuple[Ledger, SeenSource]],
) -> None:
    ledger, source = compared(Baseline.COMPILE)
    wanted = {
        (problem.id, as_candidate(problem, Baseline.COMPILE).id)
        for problem in report.admitted_problems()
    }
    with ledger:
        assert set(source.seen) == wanted
        rows = ledger.sql("select problem_id, candidate_id from baselines").rows()
    assert set(rows) == wanted


def test_without_baselines_no_reference_is_judged(
    compared: Callable[..., tuple[Ledger, SeenSource]],
) -> None:
    ledger, source = compared()
    with ledger:
        assert not source.seen
        assert ledger.sql("from baselines").is_empty()


def test_the_null_test_covers_every_reference_that_can_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems = [_problem("softmax"), _problem("large"), _problem("gelu")]
    monkeypatch.setattr(report, "admitted_problems", lambda: problems)
    source: Any = SeenSource()
    found = report._null_test(source)
    assert [problem for problem, _ in source.seen] == [problem.id for problem in problems]
    assert found["problem_id"].to_list() == [problems[0].id, problems[2].id]
    assert found["certified"].to_list() == [4.0, 4.0]


def test_the_null_test_holds_every_column_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _problem("softmax")
    monkeypatch.setattr(report, "admitted_problems", lambda: [problem])
    exact = Correctness(num_inputs=9, stage=3, precision=PrecisionClass.STRICT)
    seen = Properties(follows_weights=True, deterministic=False)
    changes = {"problem_id": problem.id, "correctness": exact, "properties": seen}
    verdict = VERDICT.model_copy(update=changes)
    source: Any = SimpleNamespace(judge_possible=lambda *_: [verdict])
    (row,) = report._null_test(source).to_dicts()
    assert row == {
        "problem_id": problem.id,
        "candidate_id": VERDICT.candidate_id,
        "status": "correct",
        "precision": "strict",
        "speedup": 4.0,
        "certified": 4.0,
        "num_quads": 9,
        "bucket_variance": 0.0,
        "is_stable": True,
        "is_confirmed": None,
        **dict(seen),
    }


def test_without_a_null_test_there_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "admitted_problems", lambda: [_problem("large")])
    source: Any = SeenSource()
    with pytest.raises(SuiteError, match="no reference could be judged"):
        report._null_test(source)
