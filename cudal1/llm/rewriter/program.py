"""A problem's `Model` as a program: versions of variables, and what `__init__` says about `self`.

`forward` is brought into single-assignment form: the third value of `x` is the version `x@3`. An
unchanged part of the code keeps its statements; what is not needed for the result disappears when the
program is printed (`printing`). Statements that cannot be followed (loops that carry state, in-place
changes) are opaque: they are always printed, and the names they assign keep one fixed name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cudal1.llm.rewriter.terms import NAMESPACES, POINTWISE, Term, Terms, Value, dotted


_Node = TypeVar("_Node", bound=ast.AST)


class NotRewritable(Exception):  # noqa: N818
    """The reference has no `Model` with a `forward` that we can read: the answer is a copy of it."""


@dataclass(slots=True)
class Definition:
    """One statement of `forward`."""

    targets: tuple[str, ...]
    """Versions that it assigns; none for `return` and opaque statements."""
    value: ast.expr | None
    """What it computes, in versions; None when opaque."""
    verbatim: tuple[ast.stmt, ...] = ()
    """How to print it while nothing of it is rewritten; empty: `targets = value`."""
    is_return: bool = False
    is_opaque: bool = False


@dataclass(slots=True)
class Program:
    """A parsed reference."""

    module: ast.Module
    model: ast.ClassDef
    forward: ast.FunctionDef
    arguments: tuple[str, ...]
    """Of forward, without self."""
    definitions: list[Definition]
    terms: Terms
    modules: dict[str, ast.Call]
    """Attribute of self to the call in `__init__` that made it."""
    is_matrix: bool
    """Every tensor of `get_inputs` has two dimensions."""
    pinned: frozenset[str] = frozenset()
    """Names that opaque statements assign: never renamed."""
    term_of: dict[int, Term] = field(default_factory=dict[int, Term])
    """By id of expression node, in versions."""
    owner: dict[int, int] = field(default_factory=dict[int, int])
    """Expression node to the index of its definition."""
    nodes: list[ast.expr] = field(default_factory=list[ast.expr])
    """Expression nodes in evaluation order."""
    first_node: dict[Term, ast.expr] = field(default_factory=dict[Term, ast.expr])
    versions: dict[Term, list[tuple[int, str]]] = field(default_factory=dict[Term, list[tuple[int, str]]])
    """Term to the versions that hold it, with the index of their definition."""
    defined_by: dict[str, int] = field(default_factory=dict[str, int])
    pointwise_parents: dict[Term, list[Term]] = field(default_factory=dict[Term, list[Term]])
    """Term to the pointwise operations that it is an argument of."""

    def expression(self, term: Term, *, before: int) -> ast.expr:
        """Code for a term at definition `before`: a variable that holds it, or its first spelling."""
        for index, version in self.versions.get(term, ()):
            if index < before:
                return ast.Name(version, ast.Load())
        node = self.first_node.get(term)
        if node is not None:
            return node
        if term.op == "const":
            return ast.Constant(term.value)
        parts = [self.expression(arg, before=before) for arg in term.args]
        match term.op:
            case "neg":
                return ast.UnaryOp(ast.USub(), parts[0])
            case "recip":
                return ast.BinOp(ast.Constant(1.0), ast.Div(), parts[0])
            case "amax" | "amin" | "sqrt":
                call = ast.Attribute(ast.Name("torch", ast.Load()), term.op, ast.Load())
                return ast.Call(call, parts, [])
            case _:
                raise NotRewritable(f"no spelling for {term.op}")


def constants_of(module: ast.Module) -> dict[str, Value]:
    """Top-level names that hold a number."""
    known: dict[str, Value] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            value = number(statement.value, known)
            if value is not None:
                known[statement.targets[0].id] = value
    return known


def number(node: ast.expr, names: Mapping[str, Value]) -> Value:
    """The number that an expression over known names is, else None."""
    terms = Terms(attributes={}, modules={})
    terms.names = {name: terms.const(value) for name, value in names.items()}
    term = terms.of(node)
    return term.value if term.op == "const" and isinstance(term.value, int | float) else None


def parse(source: str) -> Program:
    """The program of a reference.

    Raises:
        NotRewritable: when there is no class `Model` with a plain `forward`, or no valid Python.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotRewritable("not valid Python") from error
    model = next((n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    forward = _method(model, "forward")
    if model is None or forward is None:
        raise NotRewritable("no class Model with a forward")
    arguments = tuple(a.arg for a in forward.args.args[1:])
    constants = constants_of(module)
    attributes, modules = _facts(model, module, constants)
    classes = {name: (dotted(call.func) or "").split(".")[-1] for name, call in modules.items()}
    terms = Terms(attributes=attributes, modules=classes)
    terms.names = {name: terms.const(value) for name, value in constants.items() if name not in arguments}
    program = Program(module, model, forward, arguments, [], terms, modules, _is_matrix(module))
    _Versions(program).run()
    _annotate(program)
    return program


def _method(model: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = model.body if model is not None else []
    return next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _facts(
    model: ast.ClassDef, module: ast.Module, constants: Mapping[str, Value]
) -> tuple[dict[str, Value], dict[str, ast.Call]]:
    init = _method(model, "__init__")
    attributes: dict[str, Value] = {}
    modules: dict[str, ast.Call] = {}
    if init is None:
        return attributes, modules
    names = dict(constants)
    parameters = [a.arg for a in init.args.args[1:]]
    defaults = init.args.defaults
    for name, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=False):
        names[name] = number(default, constants)
    for name, value in zip(parameters, _init_inputs(module), strict=False):
        names[name] = number(value, constants)
    names = {name: value for name, value in names.items() if value is not None}
    for statement in init.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Attribute):
            continue
        attribute = dotted(statement.targets[0]) or ""
        if attribute.startswith("self.") and attribute.count(".") == 1:
            value = number(statement.value, names)
            if value is not None:
                attributes[attribute[5:]] = value
            elif isinstance(statement.value, ast.Call):
                modules[attribute[5:]] = statement.value
    return attributes, modules


def _init_inputs(module: ast.Module) -> list[ast.expr]:
    function = next((n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "get_init_inputs"), None)
    last = function.body[-1] if function else None
    return last.value.elts if isinstance(last, ast.Return) and isinstance(last.value, ast.List) else []


def _is_matrix(module: ast.Module) -> bool:
    function = next((n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "get_inputs"), None)
    calls = [
        n for n in (ast.walk(function) if function else ())
        if isinstance(n, ast.Call) and (dotted(n.func) or "") in {"torch.randn", "torch.rand"}
    ]  # fmt: skip
    return bool(calls) and all(len(c.args) == 2 for c in calls)


class _Versions:
    """Turns the statements of `forward` into definitions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.current: dict[str, str] = {}
        self.count: dict[str, int] = {}
        self.pinned: set[str] = set()

    def run(self) -> None:
        body = [s for s in self.program.forward.body if not _is_docstring(s)]
        groups = list(_groups(body))
        for statements, value in groups:
            if value is None and not _is_plain(statements[0]):
                self.pinned |= _assigned(statements[0])
        self.program.pinned = frozenset(self.pinned)
        for argument in self.program.arguments:
            self.assign(argument)
        for statements, value in groups:
            self.add(statements, value)
        if not any(d.is_return for d in self.program.definitions):
            raise NotRewritable("forward does not end in a return")

    def assign(self, name: str) -> str:
        if name in self.pinned:
            return name
        number = self.count[name] = self.count.get(name, -1) + 1
        version = f"{name}@{number}"
        self.current[name] = version
        return version

    def add(self, statements: tuple[ast.stmt, ...], value: ast.expr | None) -> None:
        add = self.program.definitions.append
        first = statements[0]
        if value is not None:
            assert isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name)
            inner = _assigned(statements[1])
            copies = tuple(self.rename(s, frozenset(inner | {first.targets[0].id})) for s in statements)
            renamed = self.rename(value, frozenset())
            target = self.assign(first.targets[0].id)
            add(Definition((target,), renamed, copies))
        elif isinstance(first, ast.Return) and first.value is not None:
            add(Definition((), self.rename(first.value, frozenset()), is_return=True))
        elif _is_plain(first):
            target, expression = _plain_parts(first)
            renamed = self.rename(expression, frozenset())
            names = [target] if isinstance(target, ast.Name) else list(target.elts)
            versions = tuple(self.assign(n.id) for n in names if isinstance(n, ast.Name))
            if any(v in self.pinned for v in versions):
                add(Definition((), None, (self.rename(first, frozenset(self.pinned)),), is_opaque=True))
            else:
                add(Definition(versions, renamed))
        else:
            add(Definition((), None, (self.rename(first, frozenset(_assigned(first))),), is_opaque=True))

    def rename(self, node: _Node, bound: frozenset[str]) -> _Node:
        """A copy in which variables are versions."""
        if isinstance(node, ast.Name):
            name = node.id if node.id in bound else self.current.get(node.id, node.id)
            return type(node)(id=name, ctx=node.ctx)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            for generator in node.generators:
                bound = bound | {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
        if isinstance(node, ast.Lambda):
            bound = bound | {a.arg for a in node.args.args}
        fields: dict[str, object] = {}
        for name in node._fields:
            child = getattr(node, name, None)
            if isinstance(child, ast.AST):
                fields[name] = self.rename(child, bound)
            elif isinstance(child, list):
                fields[name] = [self.rename(c, bound) if isinstance(c, ast.AST) else c for c in child]
            else:
                fields[name] = child
        return type(node)(**fields)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_plain(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return statement.value is not None
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.target, ast.Name)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        return all(isinstance(n, ast.Name) for n in names)
    return False


def _plain_parts(statement: ast.stmt) -> tuple[ast.Name | ast.Tuple, ast.expr]:
    if isinstance(statement, ast.AugAssign):
        assert isinstance(statement.target, ast.Name)
        target = statement.target
        return target, ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    assert isinstance(target, ast.Name | ast.Tuple)
    return target, statement.value


def _assigned(statement: ast.stmt) -> set[str]:
    """Names that a statement assigns or may change in place."""
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Expr):
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names - {"self", *NAMESPACES}


def _groups(body: list[ast.stmt]) -> Iterator[tuple[tuple[ast.stmt, ...], ast.expr | None]]:
    """Statements; `rows = []` with the loop that fills it is one group, worth a list comprehension."""
    index = 0
    while index < len(body):
        value = _filled_list(body[index], body[index + 1], body[index + 2 :]) if index + 1 < len(body) else None
        if value is not None:
            yield (body[index], body[index + 1]), value
            index += 2
        else:
            yield (body[index],), None
            index += 1


def _filled_list(first: ast.stmt, loop: ast.stmt, rest: list[ast.stmt]) -> ast.expr | None:
    match first:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=[])):
            pass
        case _:
            return None
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or loop.orelse:
        return None
    *before, last = loop.body
    match last:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=filled), attr="append"), args=[element])):
            if filled != name:
                return None
        case _:
            return None
    assigned = set[str]().union(*map(_assigned, before))
    local: dict[str, ast.expr] = {}
    for statement in before:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return None
        if _loaded(statement.value) & (assigned - set(local)):
            return None  # carried from one turn of the loop to the next
        local[statement.targets[0].id] = _substitute(statement.value, local)
    later = set[str]().union(*map(_loaded, rest))
    if assigned & later or name in set[str]().union(*map(_loaded, (element, *local.values()))):
        return None
    generator = ast.comprehension(target=loop.target, iter=loop.iter, ifs=[], is_async=0)
    return ast.ListComp(elt=_substitute(element, local), generators=[generator])


def _loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _substitute(node: ast.expr, local: Mapping[str, ast.expr]) -> ast.expr:
    class Inline(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802
            return local.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    copy = ast.parse(ast.unparse(node), mode="eval").body
    return Inline().visit(copy)


def _annotate(program: Program) -> None:
    """Gives every expression its term."""
    index = 0
    terms = program.terms

    def seen(node: ast.expr, term: Term) -> None:
        program.term_of[id(node)] = term
        program.owner[id(node)] = index
        program.nodes.append(node)
        if term not in program.first_node:
            program.first_node[term] = node
            if term.op in POINTWISE:
                for argument in term.args:
                    program.pointwise_parents.setdefault(argument, []).append(term)

    for argument in program.arguments:
        version = f"{argument}@0"
        terms.names[version] = term = terms.raw("input", (), argument)
        program.versions[term] = [(-1, version)]
        program.defined_by[version] = -1
    terms.on_term = seen
    for index, definition in enumerate(program.definitions):
        if definition.value is None:
            for name in {n for s in definition.verbatim for n in _assigned(s)}:
                terms.names[name] = terms.raw("opaque", (), f"{name} after {index}")
            continue
        term = terms.of(definition.value)
        for position, version in enumerate(definition.targets):
            part = term if len(definition.targets) == 1 else _item(terms, term, position)
            terms.names[version] = part
            program.defined_by[version] = index
            program.versions.setdefault(part, []).append((index, version))
    terms.on_term = None


def _item(terms: Terms, term: Term, position: int) -> Term:
    if term.op == "attr" and term.value == "shape":
        return terms.raw("size", (term.args[0], terms.const(position)))
    if term.op == "tuple" and position < len(term.args):
        return term.args[position]
    return terms.raw("item", (term, terms.const(position)))
