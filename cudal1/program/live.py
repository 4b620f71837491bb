"""The code of a source that its entry class can reach, by when it runs.

A technique counts only in code that runs. Left out are definitions that the class does not need,
code behind a condition that is never true, code after a return, and handlers of exceptions, which
run where the rest has failed. Names are followed without scopes, so code may be taken for live that
is not; no verdict depends on it.

Threat: a source may be made to exhaust its reader. Each definition is visited twice at most.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

Function = ast.FunctionDef | ast.AsyncFunctionDef
_ALWAYS = ("forward", "__call__")
"""Methods of a class that run when an object of it is called."""
_AT_FIRST = ("__init__", "__new__", "__post_init__", "reset_parameters")
"""Methods that run when an object is made."""


OTHER_LANGUAGES = ("numba.", "cutlass.", "tilelang.", "warp.", "helion.")
"""Beginnings of the decorators of kernels in other languages than Triton."""
_TRITON = ("triton.jit", "triton.runtime.jit.jit")


class When(IntEnum):
    """The time at which code runs."""

    CALLED = 0
    """In each call of the module."""
    MADE = 1
    """Once, as the source is imported or an object is made."""


@dataclass
class Live:
    """The reachable code of a source, node by node, without nodes that cannot run."""

    called: list[ast.AST] = field(default_factory=list)
    """Nodes that run in calls."""
    made: list[ast.AST] = field(default_factory=list)
    """Nodes that run before the first call."""
    functions: dict[str, Function] = field(default_factory=dict)
    """Reachable functions and methods by name."""
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    """Reachable classes by name."""
    kept: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    """Values that reachable code assigns to attributes, by the attribute's name."""
    named: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    """Values that reachable code assigns to variables, by the variable's name."""
    full: dict[str, str] = field(default_factory=dict)
    """Full names of imported names."""
    read: set[str] = field(default_factory=set)
    """Attributes that code reads in calls."""
    mentioned: set[str] = field(default_factory=set)
    """Names and attributes that reachable code reads."""

    @property
    def nodes(self) -> Iterator[ast.AST]:
        """All reachable nodes."""
        yield from self.called
        yield from self.made

    def dotted(self, node: ast.AST) -> str:
        """Return the full dotted name of an expression; empty for an expression of another kind."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.full.get(node.id, node.id), *reversed(parts)])

    def is_triton(self, function: Function) -> bool:
        """Return whether a function is a kernel, or a part of one, in Triton."""
        return any(self.dotted(_bare(each)) in _TRITON for each in function.decorator_list)

    def is_other_kernel(self, function: Function) -> bool:
        """Return whether a function is a kernel in another language."""
        return any(
            self.dotted(_bare(each)).startswith(OTHER_LANGUAGES) for each in function.decorator_list
        )


def live_code(tree: ast.Module, entry: str) -> Live:
    """Return the code that the class `entry` reaches; empty where there is no such class.

    Args:
        tree: the source's syntax tree, which is changed.
        entry: name of the class.

    Raises:
        RecursionError: the tree is too deep.
    """
    _Pruned(_never_true(tree)).visit(tree)
    return _Reach(tree).of(entry)


def _never_true(tree: ast.Module) -> frozenset[str]:
    """Return attributes that the source only ever sets to False."""
    values: dict[str, set[object]] = defaultdict(set)
    plain: set[int] = set()
    for node in ast.walk(tree):  # statements come before their parts
        match node:
            case ast.Assign(
                targets=[ast.Attribute(attr=name) as target], value=ast.Constant(value=value)
            ):
                plain.add(id(target))
                values[name].add(value)
            case ast.Attribute(attr=name, ctx=ast.Store()) if id(node) not in plain:
                values[name].add("?")
            case _:
                pass
    return frozenset(name for name, found in values.items() if found and found <= {False})


class _Pruned(ast.NodeTransformer):
    """Removes what cannot run, handlers of exceptions, and texts without effect."""

    def __init__(self, never_true: frozenset[str]) -> None:
        self._never_true = never_true

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit the parts of a node, then cut its lists of statements where control leaves."""
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, _until_left(body))
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Replace a condition that is known by what it chooses."""
        known = self._known(node.test)
        if known is None:
            return self.generic_visit(node)
        chosen = node.body if known else node.orelse
        found: list[ast.stmt] = []
        for each in chosen:
            visited = self.visit(each)
            found += visited if isinstance(visited, list) else [visited] if visited else []
        return found

    def visit_Try(self, node: ast.Try) -> ast.AST:
        """Remove handlers."""
        node.handlers = []
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove texts without effect, such as docstrings."""
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def _known(self, test: ast.expr) -> bool | None:
        match test:
            case ast.Constant(value=value):
                return bool(value)
            case ast.Name(id="TYPE_CHECKING"):
                return False
            case ast.Attribute(attr=name) if name in self._never_true:
                return False
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = self._known(operand)
                return None if known is None else not known
            case ast.BoolOp(op=ast.And(), values=values):
                return False if any(self._known(each) is False for each in values) else None
            case ast.Compare(left=ast.Name(id="__name__")):
                return False
            case _:
                return None


def _bare(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _until_left(body: list[ast.stmt]) -> list[ast.stmt]:
    for number, each in enumerate(body):
        if isinstance(each, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return body[: number + 1]
    return body


class _Reach:
    """Follows names and attributes from the entry on."""

    def __init__(self, tree: ast.Module) -> None:
        self._found = Live()
        self._bound: dict[str, list[ast.AST]] = defaultdict(list)
        self._effects: list[ast.stmt] = []
        self._methods: dict[str, list[Function]] = defaultdict(list)
        """Methods of reachable classes that have not been reached, by name."""
        self._seen: dict[int, When] = {}
        self._wanted: dict[str, When] = {}
        """Attributes that reachable code reads, with the earliest time."""
        self._names: dict[str, When] = {}
        self._waiting: list[tuple[ast.AST, When, When]] = []
        """Code with the time at which it runs, and the time at which what it names runs."""
        self._sort_out(tree.body)
        for node in ast.walk(tree):
            self._note_import(node)

    def of(self, entry: str) -> Live:
        """Return what the class `entry` reaches."""
        if not any(isinstance(each, ast.ClassDef) for each in self._bound.get(entry, ())):
            return self._found
        self._name(entry, When.CALLED)
        self._attribute("forward", When.CALLED)
        for node in self._effects:
            self._waiting.append((node, When.MADE, When.MADE))
        while self._waiting:
            self._visit(*self._waiting.pop())
        return self._found

    def _sort_out(self, body: Sequence[ast.stmt]) -> None:
        """Note statements of the module by the names that they bind."""
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._bound[node.name].append(node)
                case ast.Assign(targets=targets) if _plain_names(targets):
                    for name in _plain_names(targets):
                        self._bound[name].append(node)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                    self._bound[name].append(node)
                case ast.If() | ast.Try() | ast.With():
                    for part in ("body", "orelse", "finalbody"):
                        self._sort_out(getattr(node, part, []))
                case ast.Import() | ast.ImportFrom() | ast.Pass():
                    pass
                case _:
                    self._effects.append(node)

    def _note_import(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.asname:
                        self._found.full[alias.asname] = alias.name
            case ast.ImportFrom(module=str() as module, names=names):
                for alias in names:
                    self._found.full[alias.asname or alias.name] = f"{module}.{alias.name}"
            case _:
                pass

    def _visit(self, code: ast.AST, runs: When, needs: When) -> None:
        """Note the nodes of code, and all that it names. What a kernel does is not noted."""
        is_kernel = isinstance(code, ast.FunctionDef) and (
            self._found.is_triton(code) or self._found.is_other_kernel(code)
        )
        for node in _own_nodes(code):
            if node is code or not is_kernel:
                self._note(node, runs)
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._name(name, needs)
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    self._attribute(name, needs)
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assigned(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assigned(target, value)
                case ast.NamedExpr(target=target, value=value):
                    self._assigned(target, value)
                case ast.Call(
                    func=ast.Attribute(attr="register_buffer" | "setattr"),
                    args=[ast.Constant(value=str() as name), value, *_],
                ):
                    self._keep(name, value)
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(attr=name), attr="append" | "extend" | "insert"
                    ),
                    args=values,
                ):  # self.layers.append(Block())
                    for value in values:
                        self._keep(name, value)
                case _:
                    pass

    def _note(self, node: ast.AST, runs: When) -> None:
        (self._found.called if runs is When.CALLED else self._found.made).append(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._found.functions.setdefault(node.name, node)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                self._found.named[name].append(value)
            case ast.Attribute(attr=name):
                self._keep(name, value)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                if len(values) == len(elements):
                    for each, part in zip(elements, values, strict=True):
                        self._assigned(each, part)
            case _:
                pass

    def _keep(self, name: str, value: ast.expr) -> None:
        """Note an attribute's value: code that reads the attribute needs what the value names."""
        self._found.kept[name].append(value)
        if self._wanted.get(name) is When.CALLED:
            self._names_in(value)

    def _names_in(self, value: ast.expr) -> None:
        for node in ast.walk(value):
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._name(name, When.CALLED)
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    self._attribute(name, When.CALLED)
                case _:
                    pass

    def _name(self, name: str, when: When) -> None:
        self._found.mentioned.add(name)
        if self._names.get(name, 2) <= when:
            return
        self._names[name] = when
        for node in self._bound.get(name, ()):
            if isinstance(node, ast.ClassDef):
                self._class(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._reach(node, when, when)
            else:
                self._reach(node, When.MADE, when)

    def _class(self, node: ast.ClassDef) -> None:
        if id(node) in self._seen:
            return
        self._seen[id(node)] = When.MADE
        self._found.classes[node.name] = node
        for base in (*node.bases, *(each.value for each in node.keywords), *node.decorator_list):
            self._waiting.append((base, When.MADE, When.CALLED))
        for each in node.body:
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                self._waiting.append((each, When.MADE, When.CALLED))
            elif each.name in _ALWAYS:
                self._reach(each, When.CALLED, When.CALLED)
            elif each.name in _AT_FIRST:
                self._reach(each, When.MADE, When.MADE)
            else:
                self._methods[each.name].append(each)
                if each.name in self._wanted:
                    self._reach(each, self._wanted[each.name], self._wanted[each.name])

    def _attribute(self, name: str, when: When) -> None:
        self._found.mentioned.add(name)
        if when is When.CALLED:
            self._found.read.add(name)
        if self._wanted.get(name, 2) <= when:
            return
        self._wanted[name] = when
        for method in self._methods.get(name, ()):
            self._reach(method, when, when)
        if when is When.CALLED:
            for value in tuple(self._found.kept.get(name, ())):
                self._names_in(value)

    def _reach(self, node: ast.AST, runs: When, needs: When) -> None:
        if self._seen.get(id(node), 2) > needs:
            self._seen[id(node)] = needs
            self._waiting.append((node, runs, needs))


def _plain_names(targets: Iterable[ast.expr]) -> list[str]:
    """Return the names that an assignment binds; none where it binds something else, too."""
    names: list[str] = []
    for target in targets:
        elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        for each in elements:
            if not isinstance(each, ast.Name):
                return []
            names.append(each.id)
    return names


def _own_nodes(code: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of code but annotations, which do nothing."""
    waiting: list[ast.AST] = [code]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            if isinstance(value, ast.AST):
                waiting.append(value)
            elif isinstance(value, list):
                waiting += [each for each in value if isinstance(each, ast.AST)]
