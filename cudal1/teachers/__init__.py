"""Provider `rewriter`: seven rule-based teachers that rewrite a reference's syntax tree.

It is NOT a language model or a judge. A rewrite's label (fast, mid, slow, wrong) is a prior;
measurement decides. Nothing here runs code or imports torch.

    source → program (versions, terms) → places and options (rules) → variant → answer text
"""

from __future__ import annotations

from cudal1.teachers.answers import rewrite
from cudal1.teachers.rule import Kind
from cudal1.teachers.teachers import TEACHERS
from cudal1.teachers.variants import Choice, Rewrite, Weights, compose, places, variant, with_cheat

__all__ = [
    "TEACHERS",
    "Choice",
    "Kind",
    "Rewrite",
    "Weights",
    "compose",
    "places",
    "rewrite",
    "variant",
    "with_cheat",
]
