"""Tests that the first successes of each problem and provider are kept, in any order of judging."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from cudal1.candidate import Candidate, Completion
from cudal1.errors import SuiteError
from cudal1.ledger import Ledger
from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.services import judging
from cudal1.settings.params import Params
from tasks import filter as stage_filter
from tasks import products
from tasks.stage import Stage
from tests.tasks.played import PlayedPool

pytestmark = pytest.mark.slow

SHIPPED = Params.load(Path(__file__).parents[2] / "params.yaml")
PROVIDER = "teacher"
PROBLEMS = [
    Problem(
        suite="toy",
        level=1,
        number=number,
        name=name,
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source=f"class Model: '{name}'\n",
    )
    for number, name in enumerate(("rows", "large"), start=1)
]
KEEP = 2


def source(number: int) -> str:
    return f"class ModelNew: ...  # {'wrong' if number % 2 else 'good'} {number}\n"


Run = Callable[[], dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the stage on six answers to each of two problems, every second one of them wrong."""
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("problems", run="r")
        for problem in PROBLEMS:
            ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        ledger.export()
        ledger.write_product("problems", tmp_path / "problems.parquet")
    name = f"generate@{PROVIDER}"
    with Ledger.open(tmp_path) as ledger:
        ledger.begin(name, run="r")
        for problem in PROBLEMS:
            for number in range(6):
                completion = Completion(
                    id=f"{problem.name} {number}",
                    stage=name,
                    provider=PROVIDER,
                    problem_id=problem.id,
                    prompt_id="p",
                    template_id="t",
                    attempt=number,
                    text="",
                    finish_reason="stop",
                )
                candidate = Candidate(problem_id=problem.id, source=source(number))
                ledger.add_completion(completion, candidate, None)
        ledger.export()
        ledger.write_product("generated", tmp_path / "generate" / f"{PROVIDER}.parquet", stage=name)
    monkeypatch.setattr("cudal1.services.judging.OneDevice", PlayedPool)
    monkeypatch.setattr(PlayedPool, "too_large", {PROBLEMS[1].id})
    for module in (products, stage_filter):
        monkeypatch.setattr(module, "DATA", tmp_path)
    params = SHIPPED.model_copy(
        update={
            "generate": SimpleNamespace(providers=[PROVIDER]),
            "filter": SimpleNamespace(keep=KEEP),
        }
    )
    return lambda: dict(stage_filter.judge_generated(Stage("filter", None, params, "r")))


def kept(folder: Path) -> set[str]:
    return set(pl.read_parquet(folder / "filter.parquet")["source"])


def test_a_problem_that_cannot_be_judged_costs_no_other(run: Run, tmp_path: Path) -> None:
    found = run()
    assert found["num_candidates"] == 12
    assert (found["num_judged"], found["num_refused"]) == (6, 6)
    assert (found["num_correct"], found["num_incorrect"], found["num_kept"]) == (3, 3, KEEP)
    assert kept(tmp_path) == {source(0), source(2)}, "the first ones"


def test_no_candidate_is_judged_twice(run: Run, tmp_path: Path) -> None:
    run()
    before = kept(tmp_path)
    found = run()
    assert (found["num_judged"], found["num_reused"]) == (0, 6)
    assert kept(tmp_path) == before


def test_the_kept_answers_do_not_depend_on_the_order_of_judging(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = judging.VerdictSource._each
    monkeypatch.setattr(
        judging.VerdictSource, "_each", lambda *args, **more: reversed(list(each(*args, **more)))
    )
    run()
    assert kept(tmp_path) == {source(0), source(2)}


def test_the_stage_fails_where_no_candidate_can_be_judged(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedPool, "too_large", {problem.id for problem in PROBLEMS})
    with pytest.raises(SuiteError, match="no candidate could be judged"):
        run()
