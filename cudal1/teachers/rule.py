"""A rule: the code that it recognises, and the replacements of each kind.

Patterns and replacements are Python statements; the last line of a replacement is the value. Both
know metavariables (see `matching`). Numbers are computed: with `_c1` = 2 and `_c2` = 3, `_c1 * _c2`
is printed as 6.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from cudal1.teachers.terms import Term, Terms


class Kind(StrEnum):
    """The expected quality of a rewrite; a prior only, measurement decides."""

    REFERENCE = "reference"
    FAST = "fast"
    MID = "mid"
    SLOW = "slow"
    WRONG = "wrong"
    CHEAT = "cheat"
    BROKEN = "broken"


@dataclass(frozen=True)
class Template:
    """A replacement; parsed when it is first used."""

    text: str

    @cached_property
    def steps(self) -> tuple[ast.stmt, ...]:
        """The assignments and loops before the value."""
        before = self._body[:-1]
        assert all(isinstance(statement, ast.Assign | ast.For) for statement in before), self.text
        return tuple(before)

    @cached_property
    def value(self) -> ast.expr:
        """The expression of the last line."""
        last = self._body[-1]
        assert isinstance(last, ast.Expr), self.text
        return last.value

    @cached_property
    def uses(self) -> Mapping[str, int]:
        """The number of times that each metavariable occurs."""
        names = (n.id for s in self._body for n in ast.walk(s) if isinstance(n, ast.Name))
        return Counter(name for name in names if name.startswith("_"))

    @cached_property
    def _body(self) -> list[ast.stmt]:
        return ast.parse(self.text).body


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
        kinds = (
            (Kind.FAST, self.fast),
            (Kind.MID, self.mid),
            (Kind.SLOW, self.slow),
            (Kind.WRONG, self.wrong),
        )
        return tuple((kind, Template(text.strip())) for kind, texts in kinds for text in texts)


def _pattern(text: str) -> Term:
    terms = Terms(attributes={}, modules={}, metavariables=True)
    *before, last = ast.parse(text.strip()).body
    for statement in before:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                terms.names[name] = terms.of(value)
            case _:
                raise AssertionError(f"a pattern's lines before the last assign to names: {text}")
    assert isinstance(last, ast.Expr), text
    return terms.of(last.value)
