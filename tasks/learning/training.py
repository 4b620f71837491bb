"""Send the numbers of training steps to ledger, MLflow, plot and progress, for training stages.

The ledger takes them at once, and again when a step is made again after a kill. MLflow cannot take
a number back, so it gets a step's numbers when a later checkpoint exists: then the step is never
made again. A stage's run in MLflow ends where its run in the ledger does, with the export. A stage
that is killed earlier goes on in the same run, whatever it was doing.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.problem import Problem, Split
from cudal1.prompts.prompt import answer_text, generation_prompt
from cudal1.services.judging import device_facts
from cudal1.settings.params import Params
from cudal1.settings.rl_params import RlParams
from cudal1.tracking import registry
from cudal1.tracking import runs as tracking
from cudal1.train.checkpoints import TRAINER_STATE, latest_checkpoint
from cudal1.train.group import group
from cudal1.train.sampling.server import vllm_python
from cudal1.train.sft import Pair
from cudal1.train.trainable import Asked, faults
from tasks.learning.curves import curve
from tasks.learning.origin import origin
from tasks.products import admitted_problems
from tasks.progress import progress
from tasks.stage import DATA, PIPELINE, Stage

OF_CHECKPOINTS = frozenset({"validation_success", "validation_mean_reward"})
"""Numbers of the steps that have a checkpoint (`tasks.learning.checkpoints`)."""


def refuse_unready(stage: Stage, *, vllm_server: str | None = None) -> None:
    """Refuse a training that this machine cannot do as `scale` says, before all else.

    Raises:
        ConfigError, DeviceError, TrainingError: what is missing, and the remedy.
    """
    device_facts(stage.params)
    group.refuse_unready(stage.params.scale, vllm_server)


def refuse_untrainable(stage: Stage, policy: Path, reinforced: Mapping[str, RlParams]) -> None:
    """Refuse what stage `rl` could not train, before anything is paid for or takes long.

    A vLLM server may still be absent: it can only be started when stage 2 has made its policy.

    Args:
        stage: the stage that is running, at the latest the one that trains.
        policy: the folder of the policy that is trained, or that the trained one comes from.
        reinforced: settings of stage `rl` by their places in params.yaml.

    Raises:
        ConfigError: what cannot be trained, with the remedies.
        TrainingError: the folder holds no policy.
    """
    if any(rl.vllm_server is not None for rl in reinforced.values()):
        vllm_python()
    asked = Asked(admitted_problems(Split.TRAIN), device_facts(stage.params))
    if found := faults(policy, stage.params, reinforced, asked):
        raise ConfigError(". ".join(found))


def pair(params: Params, problem: Problem, source: str) -> Pair:
    """Return what a policy learns: a candidate's source as the answer to its problem's prompt."""
    asked = generation_prompt(problem, style=params.policy.prompts, facts=device_facts(params))
    return asked.as_chat(), answer_text(source)


class Steps:
    """A sink for the numbers of each training step.

    Args:
        ledger: keeps them, under the stage that it runs.
        run: gets them when they are final.
        advance: gets the number of steps by which training has come on.
        checkpoint: the last step that a whole checkpoint holds, if there is one.
    """

    def __init__(
        self,
        ledger: Ledger,
        run: tracking.Run,
        advance: Callable[[int], None],
        checkpoint: Callable[[], int | None],
    ) -> None:
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
            self.tell(before=saved)  # the saved step itself may get further numbers

    def tell(self, *, before: int | None = None) -> None:
        """Send MLflow all steps that it does not have, or those before one.

        A step's best speedup of each problem that it has raised is sent with its numbers.
        """
        values: dict[int, dict[str, float]] = {}
        for question in ("steps", "rising_bests"):
            for row in self._ledger.query(question, stage=self._ledger.stage).to_dicts():
                if row["step"] > self._run.last_step and (before is None or row["step"] < before):
                    values.setdefault(row["step"], {})[curve(row["name"])] = row["value"]
        for step in sorted(values):
            self._run.log(step, values[step])


def policy_stages(params: Params) -> list[str]:
    """Return the stages of the pipeline that train a policy, in their order."""
    return ["sft", *(f"selfsup@{name}" for name in params.selfsup.rounds), "rl"]


@contextmanager
def tracked(
    stage: Stage,
    ledger: Ledger,
    *,
    section: str | None = None,
    policy: str | None = None,
    whole: str = PIPELINE,
    init: str,
    registers: bool = True,
) -> Generator[tracking.Run]:
    """Yield a training stage's run in MLflow, for the training and later work with the policy.

    At the end the policy is kept, plot and shard are written. A policy that `registers` becomes a
    version, and the best version of the pipeline gets the alias `best`.

    Args:
        stage: the stage that trains.
        ledger: the ledger that the stage has begun.
        section: of params.yaml, with the settings of the training; by default the stage's own.
        policy: name of the policy's folder; by default the stage's item, or the section.
        whole: the run in MLflow that this one is drawn inside of.
        init: name of the policy that the training starts from.
        registers: whether the policy may become the champion.
    """
    section = section or stage.name.split("@")[0]
    folder = DATA / "policy" / (policy or stage.item or section)
    if ledger.query("steps", stage=stage.name).is_empty():
        # the stage was killed between its export and its end, so the origin of these checkpoints is
        # unknown
        shutil.rmtree(stage.work, ignore_errors=True)
    settings = getattr(stage.params, section).model_dump(mode="json")
    tags = origin(stage)
    with tracking.Run(
        DATA,
        stage.name,
        key=stage.run,
        params=settings,
        name=f"{stage.name.replace('@', ' ')}: {settings['steps']} steps from {init}",
        whole=whole,
        tags=tags,
    ) as run:
        yield run
        run.log_checkpoint(folder)
        if registers:
            registry.register(DATA, registry.MODEL_NAME, folder)
            registry.point_to_best(
                DATA, registry.MODEL_NAME, stages=policy_stages(stage.params), terms=tags["terms"]
            )
        _write_plot(stage, ledger)
        ledger.export()  # last, since a stage that is killed after it begins anew


@contextmanager
def training(
    stage: Stage, ledger: Ledger, run: tracking.Run, *, steps: int, last_file: str = TRAINER_STATE
) -> Generator[Steps]:
    """Yield a sink for a stage's numbers while a progress bar counts its steps.

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
    """Write `data/plots/STAGE.csv` for `dvc plots show`, a row a step.

    Numbers of a run's end, without a loss, are no step, and few steps have a checkpoint's marks:
    gaps would be drawn as zeros.
    """
    rows: dict[int, dict[str, float]] = {}
    for row in ledger.query("steps", stage=stage.name).to_dicts():
        rows.setdefault(row["step"], {"step": row["step"]})[row["name"]] = row["value"]
    rows = {step: row for step, row in rows.items() if "loss" in row}
    names = sorted({name for row in rows.values() for name in row} - {"step"} - OF_CHECKPOINTS)
    path = DATA / "plots" / f"{stage.name.replace('@', '-')}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["step", *names], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows[step] for step in sorted(rows))
