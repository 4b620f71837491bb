"""Progress: how much better an answer is than what its prompt showed, and rewards for that.

A prompt shows exemplars with their scores, or the reference alone with a score of 1. An answer that
repeats what is shown has learned nothing, so under every form but the paper's a copy earns 0.
Copies are told by their programs (`cudal1.program.identity`).

The paper rewards the certified speedup (2.4.4), which a copy of the best exemplar earns in full.
The other forms are ours. `marginal` pays for the best of a group, as estimators of max@k do (Tang
et al. 2025, arXiv 2503.19595).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

IMPROVED = 1.05
"""Ratio to the best score shown from which on an answer is progress: less may be chance."""
REFERENCE_SCORE = 1.0
"""Score of the reference, which every prompt shows."""


class RewardForm(StrEnum):
    """The reward of an answer."""

    SPEEDUP = "speedup"
    """Its certified speedup, copies too (the paper's)."""
    RATIO = "ratio"
    """Its certified speedup over the best score that the prompt showed."""
    MARGIN = "margin"
    """The part of its ratio above 1. An answer that is correct and no faster than what was shown
    earns a little (`CORRECT`), so that a group without progress still tells right from wrong."""
    RANK = "rank"
    """The share of the other answers to the prompt that it beats; ties count half."""
    MARGINAL = "marginal"
    """The loss of the group's best ratio without it, and a little for being correct."""


CORRECT = 0.1
"""Reward of an answer that is correct and adds nothing, under `margin` and `marginal`."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one answer to a prompt."""

    speedup: float
    """Certified speedup; 0 for a failure."""
    best_shown: float | None
    """Score of the best exemplar in its prompt; None: the prompt showed the reference alone."""
    is_copy: bool
    """True if it is the program of an exemplar, or of the reference."""

    @property
    def ratio(self) -> float:
        """Its speedup over the best score that was shown; 0 for a failure or a copy."""
        shown = REFERENCE_SCORE if self.best_shown is None else self.best_shown
        return 0.0 if self.is_copy else self.speedup / max(shown, REFERENCE_SCORE)

    @property
    def is_progress(self) -> bool:
        """Return whether it beats the best that was shown by more than chance."""
        return self.ratio >= IMPROVED


def rewards(form: RewardForm, group: Sequence[Outcome]) -> list[float]:
    """Return the rewards of the answers of one group and turn, before smoothing."""
    ratios = [answer.ratio for answer in group]
    match form:
        case RewardForm.SPEEDUP:
            return [answer.speedup for answer in group]
        case RewardForm.RATIO:
            return ratios
        case RewardForm.MARGIN:
            return [_with_floor(ratio, ratio - 1.0) for ratio in ratios]
        case RewardForm.RANK:
            return [_rank(ratio, ratios) for ratio in ratios]
        case RewardForm.MARGINAL:
            return [
                _with_floor(ratio, ratio - max([1.0, *ratios[:i], *ratios[i + 1 :]]))
                for i, ratio in enumerate(ratios)
            ]


def _with_floor(ratio: float, gained: float) -> float:
    return CORRECT + max(0.0, gained) if ratio > 0 else 0.0


def _rank(ratio: float, ratios: Sequence[float]) -> float:
    """Return the share of the others that it beats; a failure or a copy beats nothing."""
    if ratio == 0 or len(ratios) < 2:
        return 0.0
    beaten = sum((ratio > other) + 0.5 * (ratio == other) for other in ratios) - 0.5
    return beaten / (len(ratios) - 1)


def shares(answers: Sequence[Outcome]) -> dict[str, float]:
    """Return the numbers of answers to prompts with exemplars, by name; none without such answers.

    `copied` and `progressed` are shares of these answers; `over_best` is the mean of their ratios.
    """
    shown = [answer for answer in answers if answer.best_shown is not None]
    if not shown:
        return {}
    return {
        "copied": fmean(answer.is_copy for answer in shown),
        "progressed": fmean(answer.is_progress for answer in shown),
        "over_best": fmean(answer.ratio for answer in shown),
    }
