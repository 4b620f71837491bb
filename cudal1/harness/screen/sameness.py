"""The recognition of copies: a candidate that is the reference's program, names aside.

Both syntax trees are brought into one form. Names that a source defines are numbered in the order
in which they come. Imported names are written in full. Comments, docstrings, annotations, and
definitions that the module does not need are left out, unless they run code. Any other difference
makes two sources different, though they may do the same.

Threat: a slow candidate that is taken for a copy earns 1.00, so the parts that are left out must
run nothing. A fast one gains nothing by it, and a copy in disguise is measured as any candidate is.
A source may be made to exhaust its reader: only a limited length is parsed, and a source that is
too deep is no copy. A name that is imported as two things may be either where it stands, so a
source that has one is no copy. Other files of a source must be the reference's own.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cudal1.files import source_files
from cudal1.files.python_file import parsed
from cudal1.harness.screen.numbering import Numbering

REFERENCE, CANDIDATE = "Model", "ModelNew"
INERT = sys.stdlib_module_names | {"torch", "numpy"}
"""Packages that change nothing when they are imported."""
NUM_CACHED = 64
"""Number of references with a cached form: many candidates are compared with each."""
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


def is_copy(source: str, reference: str) -> bool:
    """Return whether `ModelNew` of one source is `Model` of the other, names aside."""
    (source, beside), (reference, beside_reference) = map(source_files.cut, (source, reference))
    if beside != beside_reference:
        return False
    mine, theirs = _form(source, CANDIDATE), _form_of_reference(reference)
    if mine is None or theirs is None:
        return False
    return mine.program == theirs.program and mine.packages <= theirs.packages | INERT


@lru_cache(NUM_CACHED)
def _form_of_reference(source: str) -> Form | None:
    return _form(source, REFERENCE)


def _form(source: str, entry: str) -> Form | None:
    """Return the form of the class `entry` with all that it needs; None without the class."""
    tree = parsed(source)
    if tree is None:
        return None
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
        program = Numbering(tree, bindings).program(name, effects, _running(tree, bindings))
        return Form(tuple(program), packages)
    except RecursionError:
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
