"""Questions of a training step and the answers to them, in one turn or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudal1.candidate import Candidate, Completion
from cudal1.problem import Problem
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import Prompt
from cudal1.selection.exemplar import Attempt, Exemplar
from cudal1.verdict import Verdict


@dataclass(frozen=True)
class Question:
    """The prompt of an answer, and the answer's place in its trajectory."""

    problem_id: str
    prompt: Prompt
    programs: frozenset[str]
    """Programs that the prompt shows, the reference's too."""
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


def programs_of(
    problem: Problem, prompt: Prompt, given: Sequence[Exemplar | Attempt]
) -> frozenset[str]:
    """Return the programs that a prompt shows: the reference's, and those of what it was given."""
    shown = [each.source for each in given if each.candidate_id in prompt.exemplar_ids]
    return frozenset(program_id(source) for source in (problem.as_candidate, *shown) if source)
