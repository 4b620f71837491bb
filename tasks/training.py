"""What the training stages share: a step's numbers go to ledger, MLflow, plot and progress.

The ledger takes them at once, and again when a step is made again after a kill. MLflow cannot take
a number back, so it gets a step's when a checkpoint behind it stands: then nobody makes it again.
A stage's run in MLflow ends where its run in the ledger does, with the export: a stage that is
killed before goes on in the same run, whatever it was doing.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from cudal1 import tracking
from cudal1.ledger import Ledger
from cudal1.params import Params
from cudal1.problem import Problem
from cudal1.prompt import answer_text, generation_prompt
from cudal1.train import group
from cudal1.train.checkpoints import TRAINER_STATE, latest_checkpoint
from cudal1.train.sft import Pair
from tasks.judging import device_facts
from tasks.progress import progress
from tasks.stage import DATA, Stage


def refuse_unready(stage: Stage, *, vllm_server: str | None = None) -> None:
    """Nothing, unless this machine cannot train as `scale` says; asked before all else.

    Raises:
        ConfigError, DeviceError, TrainingError: what is missing, and the remedy.
    """
    device_facts(stage.params)
    group.refuse_unready(stage.params.scale, vllm_server)


def pair(params: Params, problem: Problem, source: str) -> Pair:
    """What a policy learns from: a candidate's source as the answer to its problem's prompt."""
    asked = generation_prompt(problem, style=params.policy.prompts, facts=device_facts(params))
    return asked.as_chat(), answer_text(source)


class Steps:
    """Takes the numbers of each training step.

    Args:
        ledger: keeps them, under the stage that it runs.
        run: is told of them when they are final.
        advance: is told by how many steps training has come on.
        checkpoint: the last step that a whole checkpoint holds, if there is one.
    """

    def __init__(
        self, ledger: Ledger, run: tracking.Run, advance: Callable[[int], None],
        checkpoint: Callable[[], int | None],
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._run = run
        self._advance = advance
        self._checkpoint = checkpoint
        self._last = 0
        self._told: int | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of one step."""
        self._ledger.add_steps(step, values)
        self._advance(max(0, step - self._last))
        self._last = max(step, self._last)
        saved = self._checkpoint()
        if saved is not None and saved != self._told:
            self._told = saved
            self.tell(before=saved)  # of the saved step itself more may be said

    def tell(self, *, before: int | None = None) -> None:
        """Tell MLflow of all steps, or of those before one, that it has not heard of.

        Besides their numbers, of each problem's best speedup where a step has raised it.
        """
        values: dict[int, dict[str, float]] = {}
        for question in ("steps", "rising_bests"):
            for row in self._ledger.query(question, stage=self._ledger.stage).to_dicts():
                if row["step"] > self._run.last_step and (before is None or row["step"] < before):
                    values.setdefault(row["step"], {})[row["name"]] = row["value"]
        for step in sorted(values):
            self._run.log(step, values[step])


@contextmanager
def tracked(stage: Stage, ledger: Ledger, *, alias: str | None = None) -> Generator[tracking.Run]:
    """A training stage's run in MLflow: its training, and what it does with the policy afterwards.

    At the end the policy is kept and, with an `alias`, registered; plot and shard are left.
    """
    section = stage.name.split("@")[0]
    policy = DATA / "policy" / (stage.item or section)
    if ledger.query("steps", stage=stage.name).is_empty():
        # killed between its export and its end: what made these checkpoints is not known any more
        shutil.rmtree(stage.work, ignore_errors=True)
    settings = getattr(stage.params, section).model_dump(mode="json")
    with tracking.Run(DATA, stage.name, key=stage.run, params=settings) as run:
        yield run
        run.log_checkpoint(policy)
        if alias is not None:
            tracking.register(DATA, tracking.MODEL_NAME, policy, alias=alias)
        _write_plot(stage, ledger)
        ledger.export()  # last: whoever is killed after it begins anew


@contextmanager
def training(
    stage: Stage, ledger: Ledger, run: tracking.Run, *, steps: int, last_file: str = TRAINER_STATE
) -> Generator[Steps]:
    """What takes the numbers of a stage's training while a progress bar counts its steps.

    A checkpoint in `stage.work` is whole when `last_file` is in it.
    """

    def checkpoint() -> int | None:
        found = latest_checkpoint(stage.work, last_file=last_file)
        return None if found is None else int(found.name.split("-")[1])

    with progress(f"{stage.name} steps", steps) as advance:
        taken = Steps(ledger, run, advance, checkpoint)
        yield taken
        taken.tell()


def _write_plot(stage: Stage, ledger: Ledger) -> None:
    """Leave `data/plots/STAGE.csv` for `dvc plots show`: a row a step.

    What a run says at its end, without a loss, is no step: its gaps would be drawn as zeros.
    """
    rows: dict[int, dict[str, float]] = {}
    for row in ledger.query("steps", stage=stage.name).to_dicts():
        rows.setdefault(row["step"], {"step": row["step"]})[row["name"]] = row["value"]
    rows = {step: row for step, row in rows.items() if "loss" in row}
    names = sorted({name for row in rows.values() for name in row} - {"step"})
    path = DATA / "plots" / f"{stage.name.replace('@', '-')}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["step", *names])
        writer.writeheader()
        writer.writerows(rows[step] for step in sorted(rows))
