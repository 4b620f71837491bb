"""What the report stage has judged beside what providers wrote."""

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
from cudal1.params import Params
from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.protocol import PrecisionClass
from cudal1.verdict import Correctness, Properties, Verdict
from tasks import report
from tasks.stage import Stage
from tests.tasks.test_reviewing import VERDICT

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")


class SeenBench:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def judge_possible(
        self, asked: Sequence[tuple[Problem, Candidate]], advance: Callable[[int], None]
    ) -> list[Any]:
        self.seen += [(problem.id, candidate.id) for problem, candidate in asked]
        return [self.says(candidate) for _, candidate in asked]

    def says(self, candidate: Candidate) -> Verdict | None:
        """Of large ones, nothing."""
        if "large" in candidate.source:
            return None
        changes = {"problem_id": candidate.problem_id, "candidate_id": candidate.id}
        return VERDICT.model_copy(update=changes)


def _problem(name: str) -> Problem:
    return Problem(
        suite="cudal1", level=1, number=1, name=name, split=Split.TRAIN,
        device_class=DeviceClass.CPU, revision="1", source=f"class Model: '{name}'\n",
    )  # fmt: skip


@pytest.fixture
def compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Ledger, SeenBench]]:
    """A ledger and a bench after two problems were compared with these baselines."""
    problems = [_problem("softmax"), _problem("gelu")]
    monkeypatch.setattr(report, "admitted_problems", lambda: problems)

    def compare(*baselines: Baseline) -> tuple[Ledger, SeenBench]:
        section = PARAMS.report.model_copy(update={"baselines": baselines})
        params = PARAMS.model_copy(update={"report": section})
        ledger, bench = Ledger.open(tmp_path), SeenBench()
        ledger.begin("report")
        for problem in problems:
            ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        report._judge_baselines(Stage("report", None, params, "r"), ledger, bench)  # pyright: ignore[reportArgumentType] - it is asked for verdicts alone
        return ledger, bench

    return compare


def test_every_reference_is_judged_in_every_way(
    compared: Callable[..., tuple[Ledger, SeenBench]],
) -> None:
    ledger, bench = compared(Baseline.COMPILE)
    wanted = {
        (problem.id, as_candidate(problem, Baseline.COMPILE).id)
        for problem in report.admitted_problems()
    }
    with ledger:
        assert set(bench.seen) == wanted
        rows = ledger.sql("select problem_id, candidate_id from baselines").rows()
    assert set(rows) == wanted


def test_without_baselines_nothing_is_judged(
    compared: Callable[..., tuple[Ledger, SeenBench]],
) -> None:
    ledger, bench = compared()
    with ledger:
        assert not bench.seen
        assert ledger.sql("from baselines").is_empty()


def test_the_null_test_is_of_every_reference_that_can_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems = [_problem("softmax"), _problem("large"), _problem("gelu")]
    monkeypatch.setattr(report, "admitted_problems", lambda: problems)
    bench: Any = SeenBench()
    found = report._null_test(bench)
    assert [problem for problem, _ in bench.seen] == [problem.id for problem in problems]
    assert found["problem_id"].to_list() == [problems[0].id, problems[2].id]
    assert found["certified"].to_list() == [4.0, 4.0]


def test_the_null_test_tells_all_that_tables_show_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _problem("softmax")
    monkeypatch.setattr(report, "admitted_problems", lambda: [problem])
    exact = Correctness(num_inputs=9, stage=3, precision=PrecisionClass.STRICT)
    seen = Properties(follows_weights=True, deterministic=False)
    changes = {"problem_id": problem.id, "correctness": exact, "properties": seen}
    verdict = VERDICT.model_copy(update=changes)
    bench: Any = SimpleNamespace(judge_possible=lambda *_: [verdict])
    (row,) = report._null_test(bench).to_dicts()
    assert row == {
        "problem_id": problem.id, "candidate_id": VERDICT.candidate_id, "status": "correct",
        "precision": "strict", "speedup": 4.0, "certified": 4.0, "num_quads": 9,
        "bucket_variance": 0.0, "is_stable": True, "is_confirmed": None,
        **dict(seen),
    }  # fmt: skip


def test_without_any_null_test_there_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "admitted_problems", lambda: [_problem("large")])
    bench: Any = SeenBench()
    with pytest.raises(SuiteError, match="no reference could be judged"):
        report._null_test(bench)
