"""Seven teachers of different skill. They are rules with dice, NOT language models.

They exist so that the pipeline has real input without an API key: code of mixed quality in the
shape of a language model's answer. Some of it is faster than the reference, some slower, some
wrong, some cheating. Each teacher knows some families well and others not, so that none is best
everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cudal1.teachers.rule import Kind
from cudal1.teachers.rules.activations import ACTIVATIONS
from cudal1.teachers.rules.algebra import ALGEBRA
from cudal1.teachers.rules.attention import ATTENTION
from cudal1.teachers.rules.normalization import NORMALIZATION
from cudal1.teachers.rules.pointwise import POINTWISE
from cudal1.teachers.variants import Weights

_LIBRARY = tuple(rule.family for rule in (*NORMALIZATION, *ACTIVATIONS, *ATTENTION))
_ALGEBRA = tuple(rule.family for rule in ALGEBRA)
_POINTWISE = tuple(rule.family for rule in POINTWISE)
_LOOPS = ("row_loop", "list_cat", "loop_projection")


def _mix(
    reference: float, mid: float, fast: float, wrong: float, slow: float = 0.0
) -> dict[Kind, float]:
    return {
        Kind.REFERENCE: reference,
        Kind.MID: mid,
        Kind.FAST: fast,
        Kind.WRONG: wrong,
        Kind.SLOW: slow,
    }


@dataclass(frozen=True, slots=True)
class Style:
    """Probabilities of an answer's shapes; the rest is a plain code block."""

    sentence: float = 0.0
    """Probability of a sentence before the block."""
    sections: float = 0.0
    """Probability of the three sections of the contrastive prompt."""
    bare: float = 0.0
    """Probability of code without a fence."""
    cut: float = 0.0
    """Probability of an end in the middle, as at a token limit."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """A skill profile."""

    name: str
    description: str
    weights: Weights
    style: Style


def _only(
    families: tuple[str, ...], kinds: Mapping[Kind, float]
) -> dict[str, Mapping[Kind, float]]:
    return dict.fromkeys(families, kinds)


TEACHERS: Final[Mapping[str, Teacher]] = {
    teacher.name: teacher
    for teacher in (
        Teacher(
            "apprentice",
            "Often copies, sometimes improves, makes beginner's mistakes.",
            Weights(_mix(0.42, 0.28, 0.12, 0.18), broken=0.10),
            Style(sentence=0.2, bare=0.04, cut=0.04),
        ),
        Teacher(
            "cautious",
            "Changes little and is nearly always right; equal or slightly different speed.",
            Weights(_mix(0.45, 0.42, 0.07, 0.02, 0.04), broken=0.01),
            Style(sentence=0.1),
        ),
        Teacher(
            "librarian",
            "Knows the library: one call instead of a formula. Leaves algebra alone.",
            Weights(
                _mix(0.85, 0.10, 0.0, 0.05),
                by_family=_only(_LIBRARY, _mix(0.10, 0.10, 0.68, 0.10, 0.02)),
                broken=0.03,
            ),
            Style(sentence=0.4),
        ),
        Teacher(
            "algebraist",
            "Reorders and removes linear algebra; indifferent to everything else.",
            Weights(
                _mix(0.75, 0.15, 0.05, 0.05),
                by_family=_only(
                    (*_ALGEBRA, "affine_chain", "affine_chain_4", "polynomial"),
                    _mix(0.08, 0.10, 0.66, 0.16),
                ),
                broken=0.03,
            ),
            Style(sections=0.7),
        ),
        Teacher(
            "fuser",
            "Batches loops, runs pointwise chains in chunks or in place; sometimes cheats.",
            Weights(
                _mix(0.40, 0.35, 0.15, 0.10),
                by_family=_only((*_POINTWISE, *_LOOPS), _mix(0.05, 0.25, 0.60, 0.10))
                | _only(("chunked_chain",), _mix(0.10, 0.82, 0.0, 0.08)),
                family_preference={"chunked_chain": 2.0},
                cheat=0.04,
                broken=0.03,
            ),
            Style(sections=0.4, sentence=0.2),
        ),
        Teacher(
            "gambler",
            "Tries the fastest thing it can think of; often wrong, sometimes a cheat.",
            Weights(_mix(0.08, 0.10, 0.52, 0.24, 0.06), cheat=0.13, broken=0.08),
            Style(sentence=0.3, bare=0.03, cut=0.05),
        ),
        Teacher(
            "practitioner",
            "Knows layers and single operators: calls their functions, folds scales into weights.",
            Weights(_mix(0.15, 0.30, 0.45, 0.08, 0.02), broken=0.02, operators=True),
            Style(sentence=0.3, sections=0.3),
        ),
    )
}
