"""All rules, grouped by topic."""

from __future__ import annotations

from typing import Final

from cudal1.teachers.rule import Rule
from cudal1.teachers.rules.activations import ACTIVATIONS
from cudal1.teachers.rules.algebra import ALGEBRA
from cudal1.teachers.rules.attention import ATTENTION
from cudal1.teachers.rules.knobs import KNOBS
from cudal1.teachers.rules.modules import MODULES
from cudal1.teachers.rules.normalization import NORMALIZATION
from cudal1.teachers.rules.operators import OPERATORS
from cudal1.teachers.rules.pointwise import POINTWISE

RULES: Final[tuple[Rule, ...]] = (
    *NORMALIZATION,
    *ACTIVATIONS,
    *ALGEBRA,
    *ATTENTION,
    *POINTWISE,
    *KNOBS,
)
"""Rules for formulas and algebra, which six teachers know."""
ALL_RULES: Final[tuple[Rule, ...]] = (*RULES, *MODULES, *OPERATORS)
"""The same, and rules for single operators and layers, which the practitioner knows, too."""
