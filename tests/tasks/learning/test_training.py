"""Tests of a training stage's plots, of its points in MLflow, and of the cost of a kill."""

from __future__ import annotations

import csv
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.errors import ConfigError, CudaL1Error
from cudal1.ledger import Ledger
from cudal1.settings.params import Params
from cudal1.tracking import registry
from cudal1.tracking import runs as tracking
from cudal1.train.checkpoints import TRAINER_STATE, latest_checkpoint
from cudal1.train.group import group
from cudal1.train.policy import EMBEDDED
from tasks import policy, rl, selfsup, sft
from tasks.learning import training
from tasks.learning.training import Steps, _write_plot
from tasks.night import challenger, champion, tuned
from tasks.stage import Stage

PARAMS = Params.load(Path(__file__).parents[3] / "params.yaml")


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Return the plot of three steps, of a checkpoint's marks, and of the totals that follow."""
    monkeypatch.setattr("tasks.learning.training.DATA", tmp_path)
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("selfsup@r1")
        for step in (15, 5, 10):
            ledger.add_steps(step, {"loss": 1.0 / step, "entropy": 0.5})
        ledger.add_steps(16, {"entropy": 0.4, "total_flos": 1e12})
        ledger.add_steps(10, {"validation_success": 1.0, "validation_mean_reward": 2.0})
        _write_plot(Stage(name="selfsup@r1", item="r1", params=PARAMS, run="r"), ledger)
    with (tmp_path / "plots" / "selfsup-r1.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_a_plot_has_one_row_per_step_in_order(drawn: list[dict[str, str]]) -> None:
    assert [row["step"] for row in drawn] == ["5", "10", "15"]


def test_a_plot_has_no_gaps_that_would_be_drawn_as_zeros(drawn: list[dict[str, str]]) -> None:
    assert set(drawn[0]) == {"step", "loss", "entropy"}
    assert all(value for row in drawn for value in row.values())


class Run:
    """A stand-in for a run in MLflow that holds its points."""

    def __init__(self, last_step: int = -1) -> None:
        self.points: list[tuple[int, float]] = []
        self.last_step = last_step

    def log(self, step: int, values: dict[str, float]) -> None:
        self.points.append((step, values["trainer/loss"]))
        self.last_step = max(step, self.last_step)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path) as opened:
        opened.begin("rl", run="r")
        yield opened


def steps_of(ledger: Ledger, run: Run, saved: list[int | None]) -> Steps:
    return Steps(ledger, run, lambda _: None, lambda: saved[-1])  # pyright: ignore[reportArgumentType]


def test_a_step_goes_to_mlflow_once_a_checkpoint_behind_it_stands(ledger: Ledger) -> None:
    run, saved = Run(), [None]
    steps = steps_of(ledger, run, saved)
    heard: list[int] = []
    for step in range(1, 8):
        saved.append(step if step in (3, 6) else saved[-1])
        steps.log(step, {"loss": float(step)})
        heard.append(len(run.points))
    assert heard == [0, 0, 2, 2, 2, 5, 5]
    steps.tell()
    assert run.points == [(step, float(step)) for step in range(1, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("killed_after", range(1, 10))
@pytest.mark.parametrize("was_told", [True, False])
def test_steps_repeated_after_a_kill_are_no_second_points(
    ledger: Ledger, killed_after: int, was_told: bool
) -> None:
    """After a kill at any moment, the curve has the restarted run's values for repeated steps."""
    run, saved = Run(), [None]
    steps = steps_of(ledger, run, saved)
    for step in range(1, killed_after + 1):
        steps.log(step, {"loss": float(step)})
        if step % 3 == 0 and (was_told or step < killed_after - 2):
            saved.append(step)
    kept = saved[-1] or 0
    again = Run(run.last_step)
    again.points = run.points
    steps = steps_of(ledger, again, saved)
    for step in range(kept + 1, 10):
        steps.log(step, {"loss": float(-step)})
    steps.tell()
    expected = [(step, float(step if step <= kept else -step)) for step in range(1, 10)]
    assert again.points == expected


def test_values_logged_after_a_steps_checkpoint_are_not_lost(ledger: Ledger) -> None:
    """The parts of a step's time are such values."""
    found: list[dict[str, float]] = []

    class Hears(Run):
        def log(self, step: int, values: dict[str, float]) -> None:
            found.append(values)
            super().log(step, values)

    steps = steps_of(ledger, Hears(), [1])
    steps.log(1, {"loss": 1.0})
    steps.log(1, {"train_s": 2.0})
    steps.tell()
    assert found == [{"trainer/loss": 1.0, "seconds/train_s": 2.0}]


BODIES = {
    "sft": sft.fine_tune,
    "selfsup": selfsup.teach_itself,
    "rl": rl.train,
    "tuned": tuned.fine_tune,
    "challenger": challenger.train,
}
ABSENT = "http://127.0.0.1:9"
NUM_STEPS, SAVED_EVERY = 5, 2


def stage_of(name: str) -> Stage:
    return Stage(name=name, item="r1" if name == "selfsup" else None, params=PARAMS, run="r")


def fake_trainer(
    _: Path, out: Path, pairs: object, settings: object, *, work: Path, on_log: Callable[..., None]
) -> int:
    """Make the steps that no checkpoint holds, and leave a policy."""
    saved = latest_checkpoint(work)
    for step in range(1 if saved is None else int(saved.name.split("-")[1]) + 1, NUM_STEPS + 1):
        on_log(step, {"loss": 1.0 / step})
        if step % SAVED_EVERY == 0 or step == NUM_STEPS:
            (work / f"checkpoint-{step}").mkdir(parents=True)
            (work / f"checkpoint-{step}" / TRAINER_STATE).touch()
    out.mkdir(parents=True, exist_ok=True)
    (out / "weights").touch()
    return 0


def fine_tune(patch: pytest.MonkeyPatch, examine: Callable[..., Mapping[str, float]]) -> None:
    """Run stage `sft` in this folder, without a policy and problems."""
    patch.setattr(sft, "refuse_unready", lambda _: None)
    patch.setattr(sft, "refuse_untrainable", lambda *_: None)
    patch.setattr(sft, "_pairs", lambda _: [])
    patch.setattr(sft, "train_sft", fake_trainer)
    patch.setattr(sft, "examine", examine)
    patch.setattr(training, "origin", lambda _: {"terms": "these"})
    sft.fine_tune(stage_of("sft"))


def killed_while_it_examines() -> None:
    fine_tune(pytest.MonkeyPatch(), lambda *_: os.kill(os.getpid(), signal.SIGKILL))  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_a_stage_killed_during_its_examination_resumes_its_run_with_each_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    code = f"from {__name__} import killed_while_it_examines as run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == -signal.SIGKILL
    monkeypatch.chdir(tmp_path)
    fine_tune(monkeypatch, lambda *_: {})
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'data' / 'mlflow.db'}")
    experiments = [each.experiment_id for each in client.search_experiments()]
    (run,) = client.search_runs(experiments, "tags.stage = 'sft'")
    assert run.info.status == "FINISHED"
    points = client.get_metric_history(run.info.run_id, "trainer/loss")
    made = [(step, 1.0 / step) for step in range(1, NUM_STEPS + 1)]
    assert [(point.step, point.value) for point in points] == made
    with Ledger.read(tmp_path / "data") as ledger:
        kept = ledger.query("steps", stage="sft")
    assert list(zip(kept["step"], kept["value"], strict=True)) == made


def test_checkpoints_with_steps_that_the_ledger_has_forgotten_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that was killed between its export and its end is a new run of the ledger."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "register", lambda *_, **__: 1)
    monkeypatch.setattr(registry, "point_to_best", lambda *_, **__: 1)
    monkeypatch.setattr(tracking, "Run", lambda *_, **__: nullcontext(Kept([])))
    for _ in range(2):  # no call has marked the work as done
        fine_tune(monkeypatch, lambda *_: {})
    with Ledger.read(tmp_path / "data") as ledger:
        assert ledger.query("steps", stage="sft").height == NUM_STEPS


class Kept(Run):
    """A stand-in for a stage's run in MLflow that records its events in order."""

    def __init__(self, happened: list[str]) -> None:
        super().__init__()
        self._happened = happened

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self._happened.append("finished")

    def mark(self, _: Mapping[str, float]) -> None:
        self._happened.append("marked")

    def log_checkpoint(self, _: Path) -> None:
        self._happened.append("kept")


@pytest.mark.parametrize("name", BODIES)
def test_a_run_in_mlflow_finishes_once_no_interruptible_work_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The export waits for that moment, too: a stage begins anew after it."""
    happened: list[str] = []
    modules = [sys.modules[BODIES[name].__module__], rl]

    def says(what: str, answer: Any = None) -> Callable[..., Any]:
        return lambda *_, **__: (happened.append(what), answer)[1]

    judge = SimpleNamespace(num_judged=0, num_reused=0, get_ready=says("ready"))
    stand_ins: dict[str, Any] = {
        "refuse_unready": lambda *_, **__: None,
        "refuse_untrainable": lambda *_, **__: None,
        "train_sft": says("trained", 0),
        "train_grpo": says("trained"),
        "examine": lambda *given: (happened.append(f"examined by {given[3:]}"), {})[1],
        "_pairs": lambda *_: [None],
        "_own_answers": lambda *_: [SimpleNamespace(verdict=None)],
        "Sampler": lambda _: None,
        "token_counter": lambda _: None,
        "_mean_rewards": lambda *_, **__: {},
        "fitting_problems": lambda *_, **__: [SimpleNamespace(id=str(i)) for i in range(999)],
        "verdict_source": lambda *_, **__: nullcontext(judge),
        "validation_problems": lambda *_, **__: [],
        "keep_best": says("chosen", {}),
        "ContrastiveWorld": lambda *_, **__: SimpleNamespace(end_step=lambda: None, problem_ids=[]),
        "current_night": lambda: SimpleNamespace(number=1, whole="night 1"),
        "product": lambda path: [] if "history" in path.name else [{"is_new": True}],
    }
    for module in modules:
        for what, stand_in in stand_ins.items():
            if hasattr(module, what):
                monkeypatch.setattr(module, what, stand_in)
    monkeypatch.setattr(tracking, "Run", lambda *_, **__: Kept(happened))
    monkeypatch.setattr(training, "origin", lambda _: {"terms": "these"})
    monkeypatch.setattr(registry, "register", says("registered"))
    monkeypatch.setattr(registry, "point_to_best", says("compared"))
    monkeypatch.setattr(Ledger, "export", says("exported"))
    monkeypatch.chdir(tmp_path)
    BODIES[name](stage_of(name))
    is_reinforced = name in ("rl", "challenger")
    ready = ["ready"] if is_reinforced else []
    examined = f"examined by {(judge,) if is_reinforced else ()}"
    marks = [] if name == "tuned" else [examined, "marked"]
    work = [*ready, "trained", *(["chosen"] if is_reinforced else []), *marks, "kept"]
    registered = ["registered", "compared"] if name in ("sft", "selfsup", "rl") else []
    assert happened == [*work, *registered, "exported", "finished"]


def first_complaint(name: str, params: Params, folder: Path) -> str:
    """Return the complaint of a stage that has nothing at all: no problem, no policy, no ledger."""
    stage = dataclasses.replace(stage_of(name), params=params)
    with pytest.raises(CudaL1Error) as raised:
        BODIES[name](stage)
    assert list(folder.iterdir()) == []
    return str(raised.value)


@pytest.mark.parametrize("name", BODIES)
def test_too_few_gpus_are_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(group, "_visible_gpus", lambda: ["0"])
    scale = PARAMS.scale.model_copy(update={"processes": 2})
    said = first_complaint(name, PARAMS.model_copy(update={"scale": scale}), tmp_path)
    assert said == "scale.processes: 2, but there are 1 GPUs; lower it"


def test_an_absent_vllm_server_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    section = PARAMS.rl.model_copy(update={"vllm_server": ABSENT})
    said = first_complaint("rl", PARAMS.model_copy(update={"rl": section}), tmp_path)
    assert said.startswith(f"rl.vllm_server: {ABSENT} does not answer")
    assert "start it as docs/training/how-to.md says" in said


def leave_untrainable(folder: Path) -> None:
    """Put a policy without chat template, and without weights, where the stage looks for it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        shutil.copy(EMBEDDED / name, folder)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')


FIRST_TO_SEE = {
    "policy": (policy.bring_policy, "base"),
    "sft": (sft.fine_tune, "base"),
    "selfsup": (selfsup.teach_itself, "sft"),
    "rl": (rl.train, PARAMS.rl.init),
    "champion": (champion.bring_champion, "champion"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST_TO_SEE)
def test_a_policy_that_rl_cannot_train_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    body, kind = FIRST_TO_SEE[name]
    leave_untrainable(tmp_path / "data" / "policy" / kind)
    for brings in (registry, policy.policy):
        monkeypatch.setattr(brings, "bring", lambda *_, **__: None)
    monkeypatch.setattr(champion, "current_night", lambda: SimpleNamespace(champion=1, number=1))
    monkeypatch.setattr("tasks.learning.training.admitted_problems", lambda _: [])
    with pytest.raises(ConfigError, match="has no chat template; take another policy"):
        body(stage_of(name))
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["policy"], "no ledger"


def test_an_absent_environment_for_vllm_is_refused_before_the_first_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server itself is started later, when stage 2 has made the policy that it serves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(policy.policy, "bring", lambda *_, **__: None)
    section = PARAMS.rl.model_copy(update={"vllm_server": ABSENT})
    stage = dataclasses.replace(
        stage_of("policy"), params=PARAMS.model_copy(update={"rl": section})
    )
    with pytest.raises(ConfigError, match=r"no \.venv-vllm/bin/python; run `make vllm`"):
        policy.bring_policy(stage)
    assert list(tmp_path.iterdir()) == []
