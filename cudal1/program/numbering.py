"""A program with numbers in place of the names that its source defines.

Names get numbers in the order in which they come. Each kind has its own numbers: names of the
module, of each function, of attributes of the source's own objects, and of parameters of its
functions in calls. Two programs that differ in names alone then read the same, and no others do.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Numbering(ast.NodeVisitor):
    """Numbers the names that a source defines, in the order in which they come.

    Args:
        tree: the source's syntax tree, made plain.
        bindings: its statements that bind names; a name without any is numbered alone.
        kept: attributes that have a meaning outside the source, and keep their names.
        of_self_alone: whether attributes keep their names on all objects but a method's own.
    """

    def __init__(
        self,
        tree: ast.Module,
        bindings: dict[str, list[ast.stmt]],
        *,
        kept: frozenset[str],
        of_self_alone: bool,
    ) -> None:
        self._of_self_alone = of_self_alone
        self._selves: list[str] = []
        """First parameters of the methods that are being visited, the innermost last."""
        self._bindings = bindings
        self._attributes = _own_attributes(tree) - kept
        self._numbers: dict[str, dict[str, str]] = defaultdict(dict)
        self._scopes: list[tuple[str, frozenset[str]]] = []
        self._num_scopes = 0
        self._needed: list[str] = []

    def program(
        self, entry: str, effects: Sequence[ast.stmt], others: Sequence[str]
    ) -> Iterator[str]:
        """Yield the class, all that it needs, in the order of need, and all effects.

        Other definitions follow, by name, that matter although the class does not need them.
        """
        self._global(entry)
        yield from self._needed_so_far(0)
        for node in effects:
            start = len(self._needed)
            yield self._text(node)
            yield from self._needed_so_far(start)
        for name in others:
            start = len(self._needed)
            self._global(name)
            yield from self._needed_so_far(start)

    def _needed_so_far(self, start: int) -> Iterator[str]:
        """Yield definitions from the given number on, and those that they need in turn."""
        while start < len(self._needed):
            for node in self._bindings[self._needed[start]]:
                yield self._text(node)
            start += 1

    def _text(self, node: ast.stmt) -> str:
        self.visit(node)
        return ast.dump(node, annotate_fields=False)

    def _global(self, name: str) -> str:
        if name not in self._numbers["global"]:
            self._needed.append(name)
        return self._numbered("global", name)

    def _numbered(self, kind: str, name: str) -> str:
        known = self._numbers[kind]
        return known.setdefault(name, f"<{kind} {len(known)}>")

    def _named(self, name: str) -> str:
        for kind, names in reversed(self._scopes):
            if name in names:
                return self._numbered(kind, name)
        return self._global(name) if name in self._bindings else name

    def _attribute(self, name: str) -> str:
        return self._numbered("attribute", name) if name in self._attributes else name

    # --- nodes -----------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        """Number a variable."""
        node.id = self._named(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        """Number a parameter."""
        node.arg = self._named(node.arg)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Number the name of a caught error."""
        node.name = node.name and self._named(node.name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        """Number names of the module."""
        node.names = [self._global(name) if name in self._bindings else name for name in node.names]

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        """Number names of the enclosing function."""
        node.names = [self._named(name) for name in node.names]

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Number an attribute that the source defines, and leave all others."""
        is_own = isinstance(node.value, ast.Name) and node.value.id in self._selves[-1:]
        self.visit(node.value)
        if is_own or not self._of_self_alone:
            node.attr = self._attribute(node.attr)

    def visit_Call(self, node: ast.Call) -> None:
        """Number the keywords of a call to a function of the source's own."""
        match node.func:
            case ast.Name(id=name) if name in self._bindings:
                kind = f"keyword of {name}"
            case _:
                kind = ""
        self.generic_visit(node)
        for keyword in node.keywords:
            if kind and keyword.arg is not None:
                keyword.arg = self._numbered(kind, keyword.arg).replace(kind, "keyword")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Number a class, and the attributes that it binds."""
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        node.name = self._named(node.name)
        for part in node.body:
            match part:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._selves.append(part.args.args[0].arg if part.args.args else "")
                    self._function(part, name=self._attribute(part.name))
                    self._selves.pop()
                case ast.Assign(targets=[ast.Name() as target]):
                    self.visit(part.value)
                    target.id = self._attribute(target.id)
                case _:
                    self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Number a function."""
        self._function(node, name=self._named(node.name))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Number an asynchronous function."""
        self._function(node, name=self._named(node.name))

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Number the names in a function without a name."""
        self._outside(node)
        with self._scope(node):
            self._arguments(node.args)
            self.visit(node.body)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, *, name: str) -> None:
        node.name = name
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._outside(node)
        with self._scope(node):
            self._arguments(node.args)
            for part in node.body:
                self.visit(part)

    def _outside(self, node: Function) -> None:
        """Number the expressions that are computed where a function is defined."""
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)

    def _arguments(self, given: ast.arguments) -> None:
        several = [each for each in (given.vararg, given.kwarg) if each is not None]
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *several):
            self.visit(each)

    @contextmanager
    def _scope(self, node: Function) -> Iterator[None]:
        self._num_scopes += 1
        self._scopes.append((f"local {self._num_scopes}", _locals(node)))
        yield
        self._scopes.pop()


def _locals(function: Function) -> frozenset[str]:
    """Return the names that a function binds, those of its comprehensions included."""
    found: set[str] = set()
    others: set[str] = set()
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                found.add(name)
            case ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                others.update(names)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                found.add(name)
                continue
            case ast.Lambda():
                continue
            case _:
                pass
        waiting += ast.iter_child_nodes(node)
    return frozenset(found - others)


def _own_attributes(tree: ast.Module) -> frozenset[str]:
    """Return the attributes that a source defines on its own objects, methods included."""
    found: set[str] = set()
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for part in owner.body:
            match part:
                case ast.FunctionDef(name=name, args=ast.arguments(args=[ast.arg(arg=own), *_])):
                    found.add(name)
                    found |= _stored_in(part, own)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    found.add(name)
                case _:
                    pass
    return frozenset(name for name in found if not name.startswith("__"))


def _stored_in(method: ast.FunctionDef, own: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == own
    }
