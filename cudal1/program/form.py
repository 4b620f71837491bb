"""The form of a source: its program with numbers for names, without what has no meaning.

Names that a source defines are numbered in the order in which they come. Imported names are written
in full. Comments, docstrings, annotations, and definitions that the entry does not need are left
out, unless they run code. Sources with different forms may do the same; two sources with one form
and one entry are the same program.

Threat: a source may be made to exhaust its reader. Only a limited length is parsed, and a source
that is too deep, or cannot be written down, has no form. A name that is imported as two things may
be either where it stands, so a source that has one has no form either.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1.program.numbering import Numbering

RUNNING = (
    ast.Call,
    ast.Await,
    ast.NamedExpr,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
"""Expressions that may do more than have a value."""
HOOKS = frozenset({"__init_subclass__", "__class_getitem__", "__set_name__"})
"""Methods of a source's own that classes and subscripts run without a call."""


@dataclass(frozen=True)
class Form:
    """The form of a source that is compared."""

    program: tuple[str, ...]
    packages: frozenset[str]
    """Packages that the source imports."""


def form_of(
    tree: ast.Module, entry: str, *, kept: frozenset[str], by_names: bool = False
) -> Form | None:
    """Return the form of the class `entry` with all that it needs; None where there is none.

    Args:
        tree: the source's syntax tree, which is changed.
        entry: name of the class.
        kept: attributes that have a meaning outside the source, and keep their names.
        by_names: whether a source is read as its author would: names of the module that are bound
            to the result of a call are numbered, too, and attributes of `self` alone.
    """
    try:
        imported = _imported(tree)
        if imported is None:
            return None
        full_names, packages = imported
        _Plain(full_names).visit(tree)
        bindings, effects = _sorted_out(tree.body)
        name = _defined_as(entry, bindings)
        if name not in bindings:
            return None
        running = _running(tree, bindings)
        if by_names:
            bindings = {**{each: [] for each in _stored(effects)}, **bindings}
        numbering = Numbering(tree, bindings, kept=kept, of_self_alone=by_names)
        program = numbering.program(name, effects, running)
        return Form(tuple(program), packages)
    except (RecursionError, ValueError, MemoryError):  # too deep, or a number of too many digits
        return None


def _imported(tree: ast.Module) -> tuple[dict[str, str], frozenset[str]] | None:
    """Return the full names of imports, by the source's names, and their packages.

    None where a name is imported as two things.
    """
    full_names: dict[str, set[str]] = defaultdict(set)
    packages: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.split(".")[0]
                    packages.add(first)
                    full_names[alias.asname or first].add(alias.name if alias.asname else first)
            case ast.ImportFrom(names=names):
                module = "." * node.level + (node.module or "")
                packages.add(module.split(".")[0])
                for alias in names:
                    full_names[alias.asname or alias.name].add(f"{module}.{alias.name}")
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case _:
                pass
    if any(len(meant) > 1 for meant in full_names.values()):
        return None
    found = {name: full for name, (full,) in full_names.items() if name not in bound}
    return found, frozenset(packages)


class _Plain(ast.NodeTransformer):
    """Removes parts without a meaning, and writes imported names in full."""

    def __init__(self, full_names: dict[str, str]) -> None:
        self._full_names = full_names
        self._known = set(full_names.values())

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Visit every node after its parts."""
        self.generic_visit(node)
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):  # may bind any name
                return node
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                return None
            case ast.If(
                test=ast.Compare(
                    ast.Name(id="__name__"), [ast.Eq()], [ast.Constant(value="__main__")]
                ),
                orelse=[],
            ):
                return None
            case ast.arg():
                node.annotation = _running_part(node.annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                node.returns = _running_part(node.returns)
                node.body = node.body or [ast.Pass()]
            case ast.ClassDef():
                node.body = node.body or [ast.Pass()]
            case ast.Name(id=name) if name in self._full_names:
                node.id = self._full_names[name]
            case ast.Attribute(ast.Name(id=base), attribute, ast.Load()) if base in self._known:
                self._known.add(f"{base}.{attribute}")
                return ast.Name(f"{base}.{attribute}", ast.Load())
            case ast.Call(func=ast.Name(id="super"), args=[ast.Name(id=name), ast.Name()]):
                node.args = node.args if "." in name else []
            case _:
                pass
        return node


def _sorted_out(body: Sequence[ast.stmt]) -> tuple[dict[str, list[ast.stmt]], list[ast.stmt]]:
    """Return statements that only bind names, by name, and all other statements."""
    bindings: dict[str, list[ast.stmt]] = {}
    effects: list[ast.stmt] = []
    for node in body:
        match node:
            case ast.FunctionDef(decorator_list=[]) | ast.ClassDef(decorator_list=[]):
                names = [node.name]
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_plain(value):
                names = [name]
            case _:
                names = []
                effects.append(node)
        for name in names:
            bindings.setdefault(name, []).append(node)
    return bindings, effects


def _stored(effects: Sequence[ast.stmt]) -> list[str]:
    """Return the names of the module that statements with effects bind by assignment."""
    return [
        target.id
        for node in effects
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def _is_plain(value: ast.AST | None) -> bool:
    return value is None or not any(isinstance(node, RUNNING) for node in ast.walk(value))


def _running_part(annotation: ast.expr | None) -> ast.expr | None:
    """Return the annotation if it runs code; otherwise None."""
    return None if _is_plain(annotation) else annotation


def _running(tree: ast.Module, bindings: dict[str, list[ast.stmt]]) -> list[str]:
    """Return the names with definitions that run code: they matter even if not needed."""
    has_hooks = any(isinstance(n, ast.FunctionDef) and n.name in HOOKS for n in ast.walk(tree))
    return [
        name
        for name, nodes in bindings.items()
        if has_hooks or not all(_only_binds(node) for node in nodes)
    ]


def _only_binds(node: ast.stmt) -> bool:
    """Return whether a definition does nothing but bind when it is run."""
    match node:
        case ast.Pass():
            return True
        case ast.Assign(targets=[ast.Name()], value=value):
            return _is_plain(value)
        case ast.FunctionDef(decorator_list=[], args=arguments, returns=returns):
            return _is_plain(arguments) and _is_plain(returns)
        case ast.ClassDef(decorator_list=[], keywords=[], bases=bases, body=body):
            return all(map(_is_plain, bases)) and all(map(_only_binds, body))
        case _:
            return False


def _defined_as(name: str, bindings: dict[str, list[ast.stmt]]) -> str:
    """Return the class behind an alias, or behind an empty class derived from it."""
    for _ in bindings:
        match bindings.get(name):
            case [ast.Assign(value=ast.Name(id=other))]:
                pass
            case [ast.ClassDef(bases=[ast.Name(id=other)], keywords=[], body=[ast.Pass()])]:
                pass
            case _:
                break
        if other not in bindings:
            break
        name = other
    return name
