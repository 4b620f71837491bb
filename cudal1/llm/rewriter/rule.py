"""A rule: what it recognises, and what each kind of teacher writes instead.

Patterns and replacements are Python statements; the last line of a replacement is the value. Both know
metavariables (see `matching`). Numbers are computed: with `_c1` = 2 and `_c2` = 3, `_c1 * _c2` is printed as 6.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from cudal1.llm.rewriter.terms import Term, Terms


class Kind(StrEnum):
    """What a rewrite is expected to be. A prior only: measurement decides."""

    REFERENCE = "reference"
    FAST = "fast"
    MID = "mid"
    SLOW = "slow"
    WRONG = "wrong"
    CHEAT = "cheat"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Template:
    """A replacement: statements, then the value."""

    steps: tuple[ast.stmt, ...]
    """Assignments and loops."""
    value: ast.expr
    text: str
    uses: Mapping[str, int]
    """Metavariable to how often it occurs."""

    @classmethod
    def parse(cls, text: str) -> Template:
        """From source text whose last line is an expression."""
        *before, last = ast.parse(text.strip()).body
        assert isinstance(last, ast.Expr), text
        assert all(isinstance(statement, ast.Assign | ast.For) for statement in before), text
        names = [n.id for s in (*before, last) for n in ast.walk(s) if isinstance(n, ast.Name)]
        return cls(tuple(before), last.value, text, Counter(n for n in names if n.startswith("_")))


@dataclass(frozen=True)
class Rule:
    """One idea, with its replacements by kind."""

    family: str
    patterns: tuple[str, ...]
    """Alternative spellings; each ends in the line that computes the result."""
    fast: tuple[str, ...] = ()
    mid: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The patterns' terms."""
        return tuple(_pattern(text) for text in self.patterns)

    @cached_property
    def templates(self) -> tuple[tuple[Kind, Template], ...]:
        """The replacements, in a fixed order."""
        kinds = ((Kind.FAST, self.fast), (Kind.MID, self.mid), (Kind.SLOW, self.slow), (Kind.WRONG, self.wrong))
        return tuple((kind, Template.parse(text)) for kind, texts in kinds for text in texts)


def _pattern(text: str) -> Term:
    terms = Terms(attributes={}, modules={}, metavariables=True)
    *before, last = ast.parse(text.strip()).body
    for statement in before:
        assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name), text
        terms.names[statement.targets[0].id] = terms.of(statement.value)
    assert isinstance(last, ast.Expr), text
    return terms.of(last.value)
