"""What the report stage has judged beside what providers wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.baseline import Baseline, as_candidate
from cudal1.candidate import Candidate
from cudal1.ledger import Ledger
from cudal1.params import Params
from cudal1.problem import Admission, DeviceClass, Problem, Split
from tasks import report
from tasks.stage import Stage

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")


class SeenBench:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def verdict(self, problem: Problem, candidate: Candidate) -> None:
        self.seen.append((problem.id, candidate.id))


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
