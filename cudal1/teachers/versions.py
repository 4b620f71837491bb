"""Single-assignment form: the third value of `x` is the version `x@3`.

Statements that cannot be followed (loops that carry state, in-place changes) are opaque: they are
always printed, and the names that they assign are pinned, that is, never renamed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1.teachers.statements import assigned, groups, is_docstring, is_plain, plain_parts
from cudal1.teachers.trees import Node, rebuilt, stored


@dataclass(slots=True)
class Definition:
    """One statement of `forward`."""

    targets: tuple[str, ...]
    """Versions that the statement assigns; none for `return` and opaque statements."""
    value: ast.expr | None
    """Expression that it computes, in versions; None when opaque."""
    verbatim: tuple[ast.stmt, ...] = ()
    """Statements to print while no part of it is rewritten; empty: `targets = value`."""
    is_return: bool = False


def number_versions(
    body: Sequence[ast.stmt], arguments: Sequence[str]
) -> tuple[list[Definition], frozenset[str]]:
    """Return the definitions of a function's body, and the pinned names."""
    numbering = _Numbering(list(groups([s for s in body if not is_docstring(s)])), arguments)
    return numbering.definitions, frozenset(numbering.pinned)


class _Numbering:
    """Numbers the versions of variables while it reads statements."""

    def __init__(
        self,
        grouped: Sequence[tuple[tuple[ast.stmt, ...], ast.expr | None]],
        arguments: Sequence[str],
    ) -> None:
        self.definitions: list[Definition] = []
        self.current: dict[str, str] = {}
        self.count: dict[str, int] = {}
        self.pinned: set[str] = set()
        for statements, value in grouped:
            if value is None and not is_plain(statements[0]):
                self.pinned |= assigned(statements[0])
        for argument in arguments:
            self.assign(argument)
        for statements, value in grouped:
            self.add(statements, value)

    def assign(self, name: str) -> str:
        """Return a new version of a name, or the name itself when it is pinned."""
        if name in self.pinned:
            return name
        number = self.count[name] = self.count.get(name, -1) + 1
        version = f"{name}@{number}"
        self.current[name] = version
        return version

    def add(self, statements: tuple[ast.stmt, ...], value: ast.expr | None) -> None:
        """Add the definition that a group of statements makes."""
        first = statements[0]
        nothing = frozenset[str]()
        if value is not None:
            match first:
                case ast.Assign(targets=[ast.Name(id=name)]):
                    inner = frozenset(assigned(statements[1]) | {name})
                    copies = tuple(self.rename(s, inner) for s in statements)
                    definition = Definition((), self.rename(value, nothing), copies)
                    definition.targets = (self.assign(name),)
                case _:
                    raise AssertionError("groups start with an assignment to a name")
        elif isinstance(first, ast.Return) and first.value is not None:
            definition = Definition((), self.rename(first.value, nothing), is_return=True)
        elif is_plain(first) and not stored(first) & self.pinned:
            target, expression = plain_parts(first)
            definition = Definition((), self.rename(expression, nothing))
            names = [target] if isinstance(target, ast.Name) else target.elts
            definition.targets = tuple(self.assign(n.id) for n in names if isinstance(n, ast.Name))
        else:
            bound = frozenset(assigned(first) | self.pinned)
            definition = Definition((), None, (self.rename(first, bound),))
        self.definitions.append(definition)

    def rename(self, node: Node, bound: frozenset[str]) -> Node:
        """Return a copy in which variables are versions."""
        if isinstance(node, ast.Name):
            name = node.id if node.id in bound else self.current.get(node.id, node.id)
            return type(node)(id=name, ctx=node.ctx)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            bound = bound.union(*(stored(generator.target) for generator in node.generators))
        if isinstance(node, ast.Lambda):
            bound = bound | {a.arg for a in node.args.args}
        return rebuilt(node, lambda part: self.rename(part, bound))
