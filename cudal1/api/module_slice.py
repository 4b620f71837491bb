"""The part of a module that some of its names need, as a source of its own.

A class that is judged stands in a module with other things: the call that asks for the verdict,
tests, a training loop. Its source is what it needs of that module, and nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MAIN_GUARD = "__name__"
"""A top-level `if` that asks for this name is the module's program."""


@dataclass(frozen=True)
class Statement:
    """A top-level statement of a module."""

    text: str
    binds: frozenset[str]
    """Names that it defines."""
    changes: frozenset[str]
    """Names of objects that it changes, or calls a method of: `torch` in
    `torch.set_default_dtype(…)`."""
    uses: frozenset[str]
    """Names that it, or a function in it, reads."""
    is_always_kept: bool = False
    """True for imports that may define any name, or change the language."""


def needed_by(source: str, names: Iterable[str]) -> list[Statement]:
    """Return the top-level statements that the names need, directly or through others, in order.

    A statement is needed if it defines a needed name, or changes the object of one. Imports keep
    the needed names alone.

    Raises:
        SyntaxError: the source is no Python.
    """
    statements = list(_statements(source))
    needed = set(names)
    kept: set[int] = {i for i, each in enumerate(statements) if each.is_always_kept}
    waiting = True
    while waiting:
        found = {
            i
            for i, each in enumerate(statements)
            if i not in kept and (each.binds | each.changes) & needed
        }
        kept |= found
        waiting = bool(found)
        for i in found:
            needed |= statements[i].uses
    return [statements[i] for i in sorted(kept)]


def joined(statements: Sequence[Statement]) -> str:
    """Return the statements as one source, each once, and imports from `__future__` first."""
    texts = list(dict.fromkeys(each.text for each in statements))
    texts.sort(key=lambda text: not text.startswith("from __future__"))
    return "\n\n".join(texts) + "\n"


def _statements(source: str) -> Iterator[Statement]:
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and MAIN_GUARD in _used(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node)
            continue
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        text = "".join(lines[first - 1 : node.end_lineno]).rstrip()
        yield Statement(text, frozenset(_bound(node)), frozenset(_changed(node)), _used(node))


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Statement]:
    """Yield an import for each name, so that each can be left out alone."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            alone: ast.stmt = ast.Import([alias])
        else:
            alone = ast.ImportFrom(node.module, [alias], node.level)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        binds = frozenset({alias.asname or alias.name.partition(".")[0]})
        is_kept = is_future or alias.name == "*"
        yield Statement(ast.unparse(alone), binds, frozenset(), frozenset(), is_kept)


def _used(node: ast.AST) -> frozenset[str]:
    return frozenset(
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    )


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement defines in the module's own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names of objects that a simple statement changes, or calls a method of."""
    targets: list[ast.expr] = []
    match node:
        case ast.Assign():
            targets = node.targets
        case ast.AugAssign() | ast.AnnAssign():
            targets = [node.target]
        case ast.Delete():
            targets = node.targets
        case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
            targets = [called]
        case _:
            pass
    for target in targets:
        inner: ast.expr = target
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name) and inner is not target:
            yield inner.id
