"""Tests of the whole pipeline, tiny: killed amid `filter` and amid `rl`, restarted, and counted."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

from cudal1.ledger import Ledger
from tasks.learning.curves import curve
from tests.journals import acknowledged, times_of, verdicts_in, whole_lines
from tests.project import TINY, Project, make_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

KILLED_AFTER = {"filter": 5, "rl": 3}
"""Number of verdicts in a stage's journal when the stage is killed."""
NUM_STEPS = TINY["rl"]["steps"]
LATER = (0, 6)
"""Fewest and most lines of the journal between reinforcement's first checkpoint and its kill, at
random."""


@dataclass(frozen=True)
class Interrupted:
    """Verdicts of a killed stage, each with the moment when it was made."""

    acknowledged: dict[str, str]
    """Verdicts in lines of the journal after which another line stands, so that their append
    returned."""
    written: dict[str, str]
    """Verdicts in whole lines: the acknowledged ones, and perhaps one that the kill interrupted."""
    before: dict[str, str]
    """Verdicts in the ledger, read after the kill."""
    after: dict[str, str]
    """Verdicts in the ledger after the restarted stage has ended."""
    num_judged_again: int
    """Number of verdicts that the restarted stage reports to have made."""

    @property
    def num_gained(self) -> int:
        """Return the number of verdicts that did not exist when the stage was killed."""
        return len(self.after.keys() - self.before.keys() - self.written.keys())

    @property
    def lost(self) -> list[tuple[str, str]]:
        """Return verdicts that were acknowledged and lost by the kill, or lost by the restart."""
        at_once = self.acknowledged.items() - self.before.items()
        return sorted(at_once | (self.written.items() | self.before.items()) - self.after.items())


def verdict_times(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return times_of(ledger.sql("from verdicts").to_dicts())


def kill_and_restart(
    project: Project, stage: str, far_enough: Callable[[list[bytes]], bool]
) -> Interrupted:
    """Kill a stage once its journal has enough whole lines, then run the stage to its end."""
    seen: list[bytes] = []

    def reached() -> bool:
        seen[:] = whole_lines(project.data, stage)
        return far_enough(seen)

    project.kill_when(reached, "dvc", "repro", "--single-item", stage)
    lines = whole_lines(project.data, stage)
    returned = verdicts_in([*acknowledged(seen), *acknowledged(lines)])
    written = verdicts_in([*seen, *lines])
    before = verdict_times(project.data)
    done = project.run("dvc", "repro", "--single-item", stage)
    assert done.returncode == 0, done.stdout
    again = project.metrics(stage)["num_judged"]
    return Interrupted(returned, written, before, verdict_times(project.data), again)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = make_project(tmp_path_factory.mktemp("project"))
    done = made.run("dvc", "repro", "generate")
    assert done.returncode == 0, done.stdout
    return made


@pytest.fixture(scope="module")
def interrupted_filter(project: Project) -> Interrupted:
    return kill_and_restart(
        project, "filter", lambda lines: len(verdicts_in(lines)) >= KILLED_AFTER["filter"]
    )


@pytest.fixture(scope="module")
def interrupted_rl(project: Project, interrupted_filter: Interrupted) -> Interrupted:
    done = project.run("dvc", "repro", "selfsup@r2")
    assert done.returncode == 0, done.stdout

    later, at_first = random.randint(*LATER), list[int]()

    def far_enough() -> bool:
        lines = whole_lines(project.data, "rl")
        saved = list((project.data / "work" / "rl").glob("*/checkpoint-*/cudal1.json"))
        if not at_first and saved and len(verdicts_in(lines)) >= KILLED_AFTER["rl"]:
            at_first.append(len(lines))
        return bool(at_first) and len(lines) >= at_first[0] + later

    project.kill_when(far_enough, "dvc", "repro", "--single-item", "rl")
    begun = time.time()

    def is_examined(_: list[bytes]) -> bool:
        policy = project.data / "policy" / "rl" / "tokenizer.json"  # written last
        return policy.exists() and policy.stat().st_mtime > begun

    return kill_and_restart(project, "rl", is_examined)


@pytest.fixture(scope="module")
def said(project: Project, interrupted_rl: Interrupted) -> str:
    """Return the log of the run that finishes the pipeline."""
    done = project.run("flows.pipeline")
    assert done.returncode == 0, done.stdout
    assert "report: data/report/index.html" in done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def finished(project: Project, said: str) -> Project:
    return project


def test_a_killed_filter_loses_no_verdict(interrupted_filter: Interrupted) -> None:
    assert len(interrupted_filter.written) >= KILLED_AFTER["filter"]
    assert interrupted_filter.lost == []


def test_a_killed_filter_makes_no_verdict_twice(interrupted_filter: Interrupted) -> None:
    assert interrupted_filter.num_judged_again == interrupted_filter.num_gained


def test_a_killed_reinforcement_loses_no_verdict(interrupted_rl: Interrupted) -> None:
    assert len(interrupted_rl.written) >= KILLED_AFTER["rl"]
    assert interrupted_rl.lost == []


def test_a_killed_reinforcement_makes_no_verdict_twice(
    project: Project, interrupted_rl: Interrupted
) -> None:
    with Ledger.read(project.data) as ledger:
        examined = ledger.sql(
            "select count(distinct candidate_id) as n from completions c join members m "
            "on m.kind = 'completions' and m.key = c.completion_id and m.stage = 'rl' "
            "where c.candidate_id is not null"
        ).to_dicts()[0]["n"]
    assert interrupted_rl.num_judged_again <= interrupted_rl.num_gained <= examined


def test_a_killed_reinforcement_has_each_step_once(
    project: Project, interrupted_rl: Interrupted
) -> None:
    with Ledger.read(project.data) as ledger:
        rows = ledger.sql(
            "select step, count(*) as n from rewards where stage = 'rl' group by step order by step"
        ).to_dicts()
    assert [(row["step"], row["n"]) for row in rows] == [(step, 4) for step in range(NUM_STEPS)]


def test_a_killed_reinforcement_is_one_curve_in_mlflow_without_duplicate_points(
    project: Project, interrupted_rl: Interrupted
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{project.data / 'mlflow.db'}")
    experiments = [each.experiment_id for each in client.search_experiments()]
    (run,) = client.search_runs(experiments, "tags.stage = 'rl'")
    points = [
        (name, point.step, point.value)
        for name in run.data.metrics
        if not name.startswith("heldout/")
        for point in client.get_metric_history(run.info.run_id, name)
    ]
    with Ledger.read(project.data) as ledger:
        kept = [ledger.query(name, stage="rl") for name in ("steps", "rising_bests")]
    rows = [
        (curve(name), step, value)
        for frame in kept
        for name, step, value in frame.select("name", "step", "value").rows()
    ]
    assert sorted(points) == sorted(rows)
    assert {step for name, step, _ in points if name == "trainer/loss"} == set(
        range(1, NUM_STEPS + 1)
    )
    timed = {step for name, step, _ in points if name == "seconds/step_s"}
    assert timed, "a kill behind a checkpoint costs that step's time, no more"


def test_a_second_run_does_nothing(finished: Project) -> None:
    done = finished.run("dvc", "repro", "--dry")
    assert done.returncode == 0
    assert "> python" not in done.stdout


def test_every_stage_leaves_its_product(finished: Project) -> None:
    expected = (
        "problems.parquet",
        "filter.parquet",
        "generate/fuser.parquet",
        "policy/base",
        "policy/sft",
        "policy/r1",
        "policy/r2",
        "policy/rl",
        "search/vanilla.parquet",
        "search/evolve.parquet",
        "transfer/cpu.parquet",
        "report/index.html",
        "report/summary.md",
        "ledger.duckdb",
        "mlflow.db",
    )
    assert [name for name in expected if not (finished.data / name).exists()] == []


def test_editing_one_provider_reruns_only_its_dependents(finished: Project) -> None:
    path = finished.folder / "params.yaml"
    before = path.read_text()
    try:
        finished.edit_params(
            lambda params: params["generate"]["providers"]["librarian"].update(teacher="cautious")
        )
        done = finished.run("dvc", "repro", "--dry", "filter")
    finally:
        path.write_text(before)
    ran = [line.split("> ")[1] for line in done.stdout.splitlines() if line.startswith("> ")]
    start = "python -I -X utf8 cudal1/start.py"
    assert ran == [f"{start} tasks.generate --item librarian", f"{start} tasks.filter"]


def test_the_ledger_is_rebuilt_from_shards(finished: Project) -> None:
    before = verdict_times(finished.data)
    for name in (".ledger.duckdb", "ledger.duckdb"):
        (finished.data / name).unlink()
    assert verdict_times(finished.data) == before


def test_the_best_policy_is_a_registered_model_version(finished: Project) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{finished.data / 'mlflow.db'}")
    version = client.get_model_version_by_alias("cudal1", "best")
    stages = ("sft", "selfsup@r1", "selfsup@r2", "rl")
    names = [stage.replace("@", "-") for stage in stages]
    marks = [finished.metrics(name)["heldout_mean_reward"] for name in names]
    assert finished.metrics(version.tags["stage"].replace("@", "-"))["heldout_mean_reward"] == max(
        marks
    )


def test_log_mlflow_and_page_show_the_same_findings(finished: Project, said: str) -> None:
    from mlflow import MlflowClient

    sentences = json.loads((finished.data / "report" / "findings.json").read_text("utf-8"))[
        "findings"
    ]
    client = MlflowClient(tracking_uri=f"sqlite:///{finished.data / 'mlflow.db'}")
    experiments = [each.experiment_id for each in client.search_experiments()]
    (whole,) = client.search_runs(experiments, "tags.whole = 'pipeline'")
    children = client.search_runs(experiments, f"tags.mlflow.parentRunId = '{whole.info.run_id}'")
    assert {run.data.tags["stage"] for run in children} >= {"sft", "selfsup@r1", "rl"}
    page = unescape((finished.data / "report" / "index.html").read_text("utf-8"))
    for sentence in sentences:
        assert sentence in whole.data.tags["mlflow.note.content"]
        assert sentence in page
        assert sentence in " ".join(said.split())
