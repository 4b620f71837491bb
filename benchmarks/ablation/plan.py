"""Read the plan of the experiment: a YAML file beside this module, or another one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import Field

from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass
from cudal1.record import Record
from cudal1.selection.contrast import Sampling
from cudal1.settings.params import TrainingParams
from cudal1.settings.rl_params import RlParams
from cudal1.settings.settings_file import read_settings

FOLDER = Path(__file__).parent


class Row(StrEnum):
    """The rows of the table, in the order of the paper's ablation."""

    VANILLA = "vanilla"
    EVOLVE = "evolve"
    SFT = "sft"
    SELFSUP = "selfsup"
    GRPO = "grpo-none"
    RANDOM = "grpo-random"
    ISLAND = "grpo-island"
    BUCKET = "grpo-bucket"

    @property
    def sampling(self) -> Sampling:
        """Return the rule that chooses its exemplars; the frozen policy's use buckets, too."""
        if self is Row.EVOLVE:
            return Sampling.BUCKET
        return Sampling(self.removeprefix("grpo-")) if self.is_reinforced else Sampling.NONE

    @property
    def is_reinforced(self) -> bool:
        """Return whether its weights come from stage 3."""
        return self.startswith("grpo-")


class Group(StrEnum):
    """The three kinds of problems."""

    TRAIN = "train"
    VALIDATION = "validation"
    """For choosing settings: reserved combinations, drawn with a seed of their own."""
    HELDOUT = "heldout"
    """For the table. Nothing is chosen by them."""


class JudgeKind(StrEnum):
    """The judge of an answer."""

    HARNESS = "harness"
    SIMULATED = "simulated"
    """Made-up speeds (`benchmarks.ablation.simulated`): to rehearse, never to claim."""


class ProblemsPlan(Record):
    """The choice of problems."""

    knobs: tuple[str, ...]
    """Operations with a knob."""
    num_knobs: int = Field(ge=1, le=2)
    """Knobs of a problem, each with its own sizes."""
    others: tuple[str, ...]
    """Operations that the rest of a problem is drawn from."""
    num_others: int = Field(ge=1, le=2)
    counts: dict[Group, int]
    seeds: dict[Group, int]


class TeachingPlan(Record):
    """The data of stage 1, and the first exemplars."""

    teachers: tuple[str, ...]
    num_problems: int = Field(gt=0)
    """Number of the first training problems that are taught."""
    attempts: int = Field(gt=0)
    """Answers of each teacher to each of them."""
    seed: int


class SelfsupPlan(TrainingParams):
    """The settings of stage 2."""

    rounds: int = Field(gt=0)
    """Rounds; each asks the policy of the round before it."""
    num_problems: int = Field(gt=0)
    """Number of the first training problems that are asked. It is more than were taught, since a
    policy's own answers to those bring little news (docs/log/2026-11-26-kernelbench-h100.md)."""
    num_samples: int = Field(gt=0)
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)

    @property
    def names(self) -> list[str]:
        """Return the names of the rounds' policies; the last one's is the row's."""
        earlier = [f"{Row.SELFSUP.value}-round{number}" for number in range(1, self.rounds)]
        return [*earlier, Row.SELFSUP.value]


class ExamPlan(Record):
    """The settings of a row's exam; every row gets equally many answers."""

    groups: tuple[Group, ...]
    num_problems: int = Field(gt=0)
    """Most problems of each group: the first ones."""
    rounds: int = Field(ge=2)
    """Rounds. The first is plain for every row; later prompts show what the row's own rule chooses.
    """
    answers_per_round: int = Field(gt=0)
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    seed: int


class Plan(Record):
    """The whole experiment."""

    title: str
    device: DeviceClass
    judge: JudgeKind
    protocol: str
    """Protocol of the harness; the simulated judge has none, and has its own noise."""
    max_new_tokens: int = Field(gt=0)
    max_prompt_tokens: int = Field(gt=0)
    """Most tokens of a prompt; a longer prompt loses its worst exemplar."""
    batch_size: int = Field(gt=0)
    """Answers sampled at a time."""
    problems: ProblemsPlan
    teaching: TeachingPlan
    sft: TrainingParams
    selfsup: SelfsupPlan
    replay: float = Field(ge=0)
    """Contrastive prompts of pretraining's kind, with made-up scores, for each pair of stages 1 and
    2. On plain prompts alone a small policy forgets within a dozen steps how scores are read, which
    a large one does not."""
    rl: RlParams
    """Settings of every reinforced row; `sampling` is the row's, `seed` is added to the run's."""
    exam: ExamPlan
    seeds: tuple[int, ...] = Field(min_length=1)
    """Seeds of training and sampling. The base policy is the same for all."""
    portions: tuple[tuple[Row, ...], ...]
    """Rows in portions: a portion is trained and examined with every seed before the next one."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return all rows."""
        return tuple(row for portion in self.portions for row in portion)


def load(name_or_path: str) -> Plan:
    """Return a shipped plan, by name, or the YAML file at a path.

    Raises:
        ConfigError: there is none, or it says something that a plan cannot say.
    """
    shipped = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    path = FOLDER / f"{name_or_path}.yaml" if name_or_path in shipped else Path(name_or_path)
    if not path.suffix:
        raise ConfigError(f"no plan {name_or_path}: give one of {', '.join(shipped)}, or a file")
    return read_settings(path, Plan, remedy=f"give one of {', '.join(shipped)}, or a file")
