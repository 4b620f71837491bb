"""All rules, grouped by topic."""

from __future__ import annotations

from typing import Final

from cudal1.teachers.rule import Rule
from cudal1.teachers.rules.activations import ACTIVATIONS
from cudal1.teachers.rules.algebra import ALGEBRA
from cudal1.teachers.rules.attention import ATTENTION
from cudal1.teachers.rules.knobs import KNOBS
from cudal1.teachers.rules.normalization import NORMALIZATION
from cudal1.teachers.rules.pointwise import POINTWISE

RULES: Final[tuple[Rule, ...]] = (
    *NORMALIZATION,
    *ACTIVATIONS,
    *ALGEBRA,
    *ATTENTION,
    *POINTWISE,
    *KNOBS,
)
