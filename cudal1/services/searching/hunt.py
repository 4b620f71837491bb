"""The state of a search for one problem: finds, failures, trajectories."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1.candidate import Candidate, Completion
from cudal1.llm.provider import Request
from cudal1.problem import Problem
from cudal1.prompts.prompt import DeviceFacts, Paragraph, PromptStyle
from cudal1.selection.contrast import ContrastParams, Sampling
from cudal1.selection.exemplar import Attempt, Exemplar
from cudal1.selection.failures import Failure
from cudal1.settings.params import MethodKind


@dataclass(frozen=True)
class Plan:
    """Settings that decide the questions of a search."""

    stage: str
    """The stage that asks; the ledger files answers under it."""
    method: MethodKind
    sampling: Sampling
    contrast: ContrastParams
    answers_per_round: int
    """Number of answers to each problem in a round."""
    prompts: PromptStyle
    seed: int
    facts: DeviceFacts
    behind: tuple[Paragraph, ...] = ()
    """Paragraphs that stand behind each prompt: a profile of the reference, wishes."""


@dataclass
class Trajectory:
    """The attempts of one trajectory so far, the newest last."""

    attempts: list[Attempt] = field(default_factory=list[Attempt])
    last: str | None = None
    """The newest answer."""


@dataclass
class Hunt:
    """One problem, and a search's finds for it so far."""

    problem: Problem
    found: list[Exemplar] = field(default_factory=list[Exemplar])
    """Successes in the order of their answers; a repeated source is listed again."""
    rewards: list[float] = field(default_factory=list[float])
    """Certified speedup of each answer in their order, 0 for a failure."""
    failures: list[Failure] = field(default_factory=list[Failure])
    """Failures that prompts may show, in the order of their answers."""
    trajectories: dict[int, Trajectory] = field(default_factory=dict[int, Trajectory])
    """Trajectories of method `refine`, by the place of their answers in a round."""
    num_failed: int = 0
    """Requests without an answer; they are asked again when the search runs again."""
    is_exhausted: bool = False
    """True if the provider has no more answers."""


@dataclass(frozen=True)
class Asked:
    """A request, with its hunt and the island of its exemplars, or its trajectory."""

    hunt: Hunt
    request: Request
    island: int | None = None
    trajectory: Trajectory | None = None


@dataclass(frozen=True)
class Answered:
    """An answer that is in the ledger, with the candidate that was found in it."""

    hunt: Hunt
    completion: Completion
    candidate: Candidate | None
    """None where the answer has no code, and where there is no answer."""
    island: int | None = None
    trajectory: Trajectory | None = None
