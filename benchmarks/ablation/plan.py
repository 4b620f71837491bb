"""What the experiment is asked to do: a YAML file beside this module, or anybody's."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import Field

from cudal1.contrast import Sampling
from cudal1.errors import ConfigError
from cudal1.params import RlParams, TrainingParams
from cudal1.problem import DeviceClass
from cudal1.record import Record
from cudal1.settings_file import read_settings

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
        """Whose exemplars its prompts show; those of the frozen policy too come from buckets."""
        if self is Row.EVOLVE:
            return Sampling.BUCKET
        return Sampling(self.removeprefix("grpo-")) if self.is_reinforced else Sampling.NONE

    @property
    def is_reinforced(self) -> bool:
        """Whether its weights come from stage 3."""
        return self.startswith("grpo-")


class Group(StrEnum):
    """The three kinds of problems."""

    TRAIN = "train"
    VALIDATION = "validation"
    """For choosing settings: combinations that are reserved, drawn with a seed of their own."""
    HELDOUT = "heldout"
    """For the table. Nothing is chosen by them."""


class JudgeKind(StrEnum):
    """Who says what an answer is worth."""

    HARNESS = "harness"
    SIMULATED = "simulated"
    """Made-up speeds (`benchmarks.ablation.simulated`): to rehearse, never to claim."""


class ProblemsPlan(Record):
    """Which problems."""

    knobs: tuple[str, ...]
    """Operations with a knob."""
    num_knobs: int = Field(ge=1, le=2)
    """Of a problem, each with its own sizes."""
    others: tuple[str, ...]
    """What the rest of a problem is drawn from."""
    num_others: int = Field(ge=1, le=2)
    counts: dict[Group, int]
    seeds: dict[Group, int]


class TeachingPlan(Record):
    """What stage 1 learns from, and the first exemplars."""

    teachers: tuple[str, ...]
    num_problems: int = Field(gt=0)
    """The first of the training problems."""
    attempts: int = Field(gt=0)
    """Answers of each teacher to each of them."""
    seed: int


class SelfsupPlan(TrainingParams):
    """Stage 2."""

    rounds: int = Field(gt=0)
    """Each asks the policy that the one before it left."""
    num_problems: int = Field(gt=0)
    """The first of the training problems: of more than were taught, since there is little news in
    a policy's own answers to those (docs/LOG.md, 2026-11-26)."""
    num_samples: int = Field(gt=0)
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)

    @property
    def names(self) -> list[str]:
        """Of the policies that the rounds leave; the last one's is the row's."""
        earlier = [f"{Row.SELFSUP.value}-round{number}" for number in range(1, self.rounds)]
        return [*earlier, Row.SELFSUP.value]


class ExamPlan(Record):
    """How a row is examined; every row gets as many answers."""

    groups: tuple[Group, ...]
    num_problems: int = Field(gt=0)
    """Of each group, at most: the first ones."""
    rounds: int = Field(ge=2)
    """The first is plain for every row; later prompts show what the row's own rule chooses."""
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
    """Of the harness; the simulated judge has none, and its noise is its own."""
    max_new_tokens: int = Field(gt=0)
    max_prompt_tokens: int = Field(gt=0)
    """A longer prompt loses its worst exemplar."""
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
    """Of every reinforced row; `sampling` is the row's, `seed` is added to the run's."""
    exam: ExamPlan
    seeds: tuple[int, ...] = Field(min_length=1)
    """Of training and sampling. The base policy is the same for all."""
    portions: tuple[tuple[Row, ...], ...]
    """The rows: a portion is trained and examined with every seed before the next one."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        return tuple(row for portion in self.portions for row in portion)


def load(name_or_path: str) -> Plan:
    """A plan that ships, by name, or the YAML file at a path.

    Raises:
        ConfigError: there is none, or it says something that a plan cannot say.
    """
    shipped = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    path = FOLDER / f"{name_or_path}.yaml" if name_or_path in shipped else Path(name_or_path)
    if not path.suffix:
        raise ConfigError(f"no plan {name_or_path}: give one of {', '.join(shipped)}, or a file")
    return read_settings(path, Plan, remedy=f"give one of {', '.join(shipped)}, or a file")
