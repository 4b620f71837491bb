"""Compute the numbers that stage `rl` logs of a step's answers, beside their rewards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from statistics import fmean

from cudal1.extract.sections import sections_of
from cudal1.program.identity import program_id
from cudal1.verdict import Status
from tasks.learning.questions import Given


def hacked(answers: Sequence[Given]) -> dict[str, float]:
    """Return the share of answers that cheat."""
    verdicts = [each.verdict for each in answers]
    return {"hacked": fmean(v is not None and v.status is Status.HACKED for v in verdicts)}


def whole(answers: Sequence[Given]) -> dict[str, float]:
    """Return the share of answers with analysis, design and code among those asked for them."""
    asked = [each for each in answers if each.question.asks_for_sections]
    if not asked:
        return {}
    return {"whole": fmean(sections_of(each.completion.text).is_whole for each in asked)}


def by_turn(answers: Sequence[Given], raw: Sequence[float]) -> dict[str, float]:
    """Return the mean raw reward of each turn."""
    turns: dict[int, list[float]] = {}
    for each, reward in zip(answers, raw, strict=True):
        turns.setdefault(each.question.turn, []).append(reward)
    return {f"reward_turn_{turn}": fmean(earned) for turn, earned in sorted(turns.items())}


def novelty(answers: Sequence[Given], known: Callable[[str], Collection[str]]) -> dict[str, float]:
    """Return the share of answers that are new, and the different programs of a group, in the mean.

    Args:
        answers: of one step.
        known: returns the programs of a problem that were known before the step. An answer with
            another program is new, unless an answer before it in the step has the same.
    """
    groups: dict[str, list[str]] = {}
    for each in answers:
        programs = groups.setdefault(each.completion.problem_id, [])
        if each.candidate is not None:
            programs.append(program_id(each.candidate.source))
    num_new = sum(
        len(set(programs).difference(known(problem_id))) for problem_id, programs in groups.items()
    )
    return {
        "new": num_new / len(answers),
        "distinct": fmean(len(set(programs)) for programs in groups.values()),
    }
