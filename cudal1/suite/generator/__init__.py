"""Procedural problems: operations in a fixed spelling, composed into KernelBench's format."""

from __future__ import annotations

from cudal1.suite.generator.compose import GENERATOR_VERSION, apart, generate, is_reserved, problems
from cudal1.suite.generator.families import FAMILIES, KNOBS, Family

__all__ = [
    "FAMILIES",
    "GENERATOR_VERSION",
    "KNOBS",
    "Family",
    "apart",
    "generate",
    "is_reserved",
    "problems",
]
