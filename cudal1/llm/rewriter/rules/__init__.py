"""All rules, grouped by what they are about."""

from __future__ import annotations

from typing import Final

from cudal1.llm.rewriter.rule import Rule
from cudal1.llm.rewriter.rules.activations import ACTIVATIONS
from cudal1.llm.rewriter.rules.algebra import ALGEBRA
from cudal1.llm.rewriter.rules.attention import ATTENTION
from cudal1.llm.rewriter.rules.knobs import KNOBS
from cudal1.llm.rewriter.rules.normalization import NORMALIZATION
from cudal1.llm.rewriter.rules.pointwise import POINTWISE

RULES: Final[tuple[Rule, ...]] = (
    *NORMALIZATION, *ACTIVATIONS, *ALGEBRA, *ATTENTION, *POINTWISE, *KNOBS,
)  # fmt: skip
