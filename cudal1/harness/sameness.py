"""Whether a candidate is the reference itself: the same program, names aside.

Both syntax trees are brought into one form. Names that a source gives itself are numbered in the
order in which they come; what it imports is written with its full name; comments, docstrings,
annotations, and definitions that the module does not need are left out, unless they run code.
Whatever else differs makes two sources different, though they may do the same.

Threat: a slow candidate that is taken for a copy earns 1.00, so what is left out must run nothing.
A fast one gains nothing by it, and a copy in disguise is measured as any candidate is. A source may
be made to exhaust its reader: only so much of it is parsed, and one that is too deep is no copy.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cudal1.harness.numbering import Numbering
from cudal1.python_file import parsed

REFERENCE, CANDIDATE = "Model", "ModelNew"
INERT = sys.stdlib_module_names | {"torch", "numpy"}
"""Packages that change nothing by being imported."""
NUM_CACHED = 64
"""References whose form is remembered: many candidates are held against each."""
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
    """What remains of a source."""

    program: tuple[str, ...]
    packages: frozenset[str]
    """That it imports."""


def is_copy(source: str, reference: str) -> bool:
    """Return whether `ModelNew` of one source is `Model` of the other, names aside."""
    mine, theirs = _form(source, CANDIDATE), _form_of_reference(reference)
    if mine is None or theirs is None:
        return False
    return mine.program == theirs.program and mine.packages <= theirs.packages | INERT


@lru_cache(NUM_CACHED)
def _form_of_reference(source: str) -> Form | None:
    return _form(source, REFERENCE)


def _form(source: str, entry: str) -> Form | None:
    """Return the form of the class `entry` with all that it needs; None where there is none."""
    tree = parsed(source)
    if tree is None:
        return None
    try:
        full_names, packages = _imported(tree)
        _Plain(full_names).visit(tree)
        bindings, effects = _sorted_out(tree.body)
        name = _defined_as(entry, bindings)
        if name not in bindings:
            return None
        program = Numbering(tree, bindings).program(name, effects, _running(tree, bindings))
        return Form(tuple(program), packages)
    except RecursionError:
        return None


def _imported(tree: ast.Module) -> tuple[dict[str, str], frozenset[str]]:
    """Return the full names of what a source imports, by its own, and their packages."""
    full_names: dict[str, str] = {}
    packages: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.split(".")[0]
                    packages.add(first)
                    full_names[alias.asname or first] = alias.name if alias.asname else first
            case ast.ImportFrom(names=names):
                module = "." * node.level + (node.module or "")
                packages.add(module.split(".")[0])
                full_names |= {a.asname or a.name: f"{module}.{a.name}" for a in names}
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case _:
                pass
    return {n: full for n, full in full_names.items() if n not in bound}, frozenset(packages)


class _Plain(ast.NodeTransformer):
    """Leaves out what means nothing, and writes the full name of what was imported."""

    def __init__(self, full_names: dict[str, str]) -> None:
        self._full_names = full_names
        self._known = set(full_names.values())

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Every node, after its parts."""
        self.generic_visit(node)
        match node:
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
    """Return statements that only bind names, by name, and those that may do anything else."""
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


def _is_plain(value: ast.AST | None) -> bool:
    return value is None or not any(isinstance(node, RUNNING) for node in ast.walk(value))


def _running_part(annotation: ast.expr | None) -> ast.expr | None:
    """Return an annotation that runs code, where it stands; no other one."""
    return None if _is_plain(annotation) else annotation


def _running(tree: ast.Module, bindings: dict[str, list[ast.stmt]]) -> list[str]:
    """Return the names whose definitions run code: they matter, needed or not."""
    has_hooks = any(isinstance(n, ast.FunctionDef) and n.name in HOOKS for n in ast.walk(tree))
    return [
        name
        for name, nodes in bindings.items()
        if has_hooks or not all(_only_binds(node) for node in nodes)
    ]


def _only_binds(node: ast.stmt) -> bool:
    """Return whether a definition does nothing else when it is run."""
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
    """Return the class behind a name that is another name of it, or an empty class over it."""
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
