"""Questions of a training step and the answers to them, in one turn or several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cudal1.candidate import Candidate, Completion
from cudal1.problem import Problem
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import Prompt
from cudal1.selection.exemplar import Attempt
from cudal1.verdict import Verdict


@dataclass(frozen=True)
class Question:
    """The prompt of an answer, and the answer's place in its trajectory."""

    problem_id: str
    prompt: Prompt
    programs: frozenset[str]
    """Programs that earn nothing again: the reference, and what the prompt shows. Of a later turn
    they are all attempts, or an attempt that did not fit into the prompt could be sold twice."""
    island: int | None
    attempts: tuple[Attempt, ...] = ()
    """All earlier attempts of the trajectory; the prompt shows those that fit."""
    follows: int | None = None
    """Number of the answer before it among those of the step."""

    @property
    def turn(self) -> int:
        """The number of the answer in its trajectory, from 1."""
        return len(self.attempts) + 1

    @property
    def best_shown(self) -> float | None:
        """The best score that an answer is compared with; None where there is none."""
        scores = [each.score for each in self.attempts] or self.prompt.exemplar_scores
        return max(scores, default=None)

    @property
    def asks_for_sections(self) -> bool:
        """Return whether the prompt shows something to analyse; a plain one asks for code alone."""
        return self.prompt.num_shown > 0


@dataclass
class Given:
    """An answer of the current step; its verdict comes later."""

    question: Question
    completion: Completion
    candidate: Candidate | None
    verdict: Verdict | None = None
    """None also without a candidate."""


def programs_of(problem: Problem, sources: Iterable[str | None]) -> frozenset[str]:
    """Return the programs of a problem's reference and of some sources."""
    return frozenset(program_id(source) for source in (problem.as_candidate, *sources) if source)
