"""Tests of the choice among a training's checkpoints, with played policies and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.services.judging import verdict_source
from tasks import examine
from tasks.learning.checkpoints import CHECKPOINTS, keep_best, validation_problems
from tasks.stage import DATA, Stage
from tests.tasks.learning.test_world import DOCKETS, PROBLEMS, STAGE, FakeQueue, says
from tests.tasks.test_examine import Parrot


class Kept:
    """A stand-in for the stage's run in MLflow."""

    def __init__(self) -> None:
        self.marks: Mapping[int, Mapping[str, float]] = {}

    def mark_checkpoints(self, marks: Mapping[int, Mapping[str, float]]) -> None:
        self.marks = marks


@pytest.fixture(autouse=True)
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    DOCKETS.clear()
    monkeypatch.setattr("cudal1.services.judging.JudgingQueue", FakeQueue)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open(DATA) as opened:
        opened.begin("rl", run="r")
        yield opened


def checkpoint(step: int, *speeds: str) -> None:
    """Write a checkpoint with a policy that gives an answer of each speed, in order."""
    folder = STAGE.work / f"policy-{step}"
    folder.mkdir(parents=True)
    (folder / "answers").write_text(" ".join(speeds))


def load(folder: Path) -> Any:
    text = (folder / "answers").read_text()
    parrot = Parrot(*map(says, text.split()))
    parrot.id = text
    return parrot


def with_rl(**changed: Any) -> Stage:
    rl = STAGE.params.rl.model_copy(update=changed)
    return replace(STAGE, params=STAGE.params.model_copy(update={"rl": rl}))


def kept(ledger: Ledger, run: Any, *, load: Callable[[Path], Any] = load) -> dict[str, Any]:
    stage = with_rl(validation_samples=1)
    with verdict_source(ledger, stage.params) as judge:
        return keep_best(
            stage,
            ledger,
            judge,
            run,
            init=Path("init"),
            out=Path("out"),
            problems=PROBLEMS,
            load=load,
        )


def test_the_checkpoint_with_the_best_mean_reward_is_kept(ledger: Ledger) -> None:
    checkpoint(5, "2.0", "1.0")
    checkpoint(10, "2.0", "3.0")
    checkpoint(12, "1.0", "crashes")
    assert kept(ledger, Kept()) == {"kept_step": 10, "validation_reward": 2.5}
    assert Path("out/answers").read_text() == "2.0 3.0"


def test_the_last_of_equal_checkpoints_is_kept(ledger: Ledger) -> None:
    checkpoint(5, "2.0", "1.0")
    checkpoint(10, "1.0", "2.0")
    assert kept(ledger, Kept())["kept_step"] == 10


def test_marks_of_each_checkpoint_are_in_the_run_and_in_the_ledger(ledger: Ledger) -> None:
    checkpoint(5, "2.0", "1.0")
    checkpoint(10, "2.0", "3.0")
    run = Kept()
    kept(ledger, run)
    assert {step: each["mean_reward"] for step, each in run.marks.items()} == {5: 1.5, 10: 2.5}
    rows = ledger.query("steps", stage="rl").to_dicts()
    found = {row["step"]: row["value"] for row in rows if row["name"] == "validation_mean_reward"}
    assert found == {5: 1.5, 10: 2.5}


def test_after_a_kill_no_answer_is_sampled_again(ledger: Ledger) -> None:
    checkpoint(5, "2.0", "1.0")
    kept(ledger, Kept())
    again: list[Parrot] = []

    def watched(folder: Path) -> Any:
        again.append(load(folder))
        return again[-1]

    assert kept(ledger, Kept(), load=watched)["kept_step"] == 5
    assert [parrot.num_asked for parrot in again] == [[0, 0]]


def test_answers_of_checkpoints_are_not_those_of_the_training(ledger: Ledger) -> None:
    checkpoint(5, "2.0", "1.0")
    kept(ledger, Kept())
    providers = ledger.sql("select distinct provider from completions")["provider"].to_list()
    assert providers == [CHECKPOINTS]


def test_problems_of_the_training_choose_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "admitted_problems", lambda split: PROBLEMS)
    found = validation_problems(with_rl(validation_problems=5), lambda _: 1, trained=PROBLEMS[:1])
    assert found == PROBLEMS[1:]


def test_a_training_on_all_problems_is_told_to_leave_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "admitted_problems", lambda split: PROBLEMS)
    with pytest.raises(
        ConfigError, match=r"lower rl\.num_problems, or set rl\.validation_problems"
    ):
        validation_problems(with_rl(validation_problems=5), lambda _: 1, trained=PROBLEMS)


def test_without_validation_problems_the_last_step_stays(ledger: Ledger) -> None:
    assert validation_problems(with_rl(validation_problems=0), lambda _: 1, trained=[]) == []
