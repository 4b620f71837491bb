"""A problem's `Model` as a program: versions of variables, and facts of `__init__` on `self`.

`forward` is in single-assignment form (`versions`); every expression has a term (`terms`). A
reference is read once and never changed: variants are printed from it with some expressions
exchanged (`printing`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cudal1.teachers.spelling import POINTWISE, dotted
from cudal1.teachers.statements import assigned
from cudal1.teachers.terms import Term, Terms, Value
from cudal1.teachers.versions import Definition, number_versions


class NotRewritable(Exception):
    """The reference has no `Model` with a readable `forward`: the answer is a copy."""


@dataclass(slots=True)
class Program:
    """A parsed reference."""

    module: ast.Module
    model: ast.ClassDef
    forward: ast.FunctionDef
    arguments: tuple[str, ...]
    """Arguments of forward, without self."""
    definitions: list[Definition]
    terms: Terms
    modules: dict[str, ast.Call]
    """The call in `__init__` that made each attribute of self."""
    is_matrix: bool
    """True if every tensor of `get_inputs` has two dimensions."""
    pinned: frozenset[str]
    """Names that opaque statements assign: never renamed."""
    term_of: dict[int, Term] = field(default_factory=dict[int, Term])
    """Terms by id of expression node, in versions."""
    owner: dict[int, int] = field(default_factory=dict[int, int])
    """Index of the definition of each expression node, by id."""
    nodes: list[ast.expr] = field(default_factory=list[ast.expr])
    """Expression nodes in evaluation order."""
    first_node: dict[Term, ast.expr] = field(default_factory=dict[Term, ast.expr])
    versions: dict[Term, list[tuple[int, str]]] = field(
        default_factory=dict[Term, list[tuple[int, str]]]
    )
    """Versions that hold each term, with the index of their definition."""
    defined_by: dict[str, int] = field(default_factory=dict[str, int])
    in_loops: list[tuple[ast.Call, str]] = field(default_factory=list[tuple[ast.Call, str]])
    """Calls `self.module(x[:, t])` in opaque loops over t in which x does not change."""
    pointwise_parents: dict[Term, list[Term]] = field(default_factory=dict[Term, list[Term]])
    """Pointwise operations that each term is an argument of."""

    def expression(self, term: Term, *, before: int) -> ast.expr:
        """Return a variable that holds a term at definition `before`, or the term's spelling."""
        for index, version in self.versions.get(term, ()):
            if index < before:
                return ast.Name(version, ast.Load())
        node = self.first_node.get(term)
        if node is not None:
            return node
        if term.op == "const":
            return ast.Constant(term.value)
        if term.op == "attr" and term.args[0].value == "self":
            return ast.Attribute(ast.Name("self", ast.Load()), str(term.value), ast.Load())
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
    """Return the top-level names that hold a number."""
    known: dict[str, Value] = {}
    for statement in module.body:
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            value = number(statement.value, known)
            if value is not None:
                known[statement.targets[0].id] = value
    return known


def number(node: ast.expr, names: Mapping[str, Value]) -> Value:
    """Return the number that an expression over known names is, else None."""
    terms = Terms(attributes={}, modules={})
    terms.names = {name: terms.const(value) for name, value in names.items()}
    term = terms.of(node)
    return term.value if term.op == "const" and isinstance(term.value, int | float) else None


def parse(source: str) -> Program:
    """Return the program of a reference.

    Raises:
        NotRewritable: when there is no class `Model` with a plain `forward`, or no valid Python.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotRewritable("not valid Python") from error
    model = next(
        (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None
    )
    forward = _method(model, "forward")
    if model is None or forward is None:
        raise NotRewritable("no class Model with a forward")
    arguments = tuple(a.arg for a in forward.args.args[1:])
    constants = constants_of(module)
    attributes, modules = _facts(model, module, constants)
    classes = {name: (dotted(call.func) or "").split(".")[-1] for name, call in modules.items()}
    terms = Terms(attributes=attributes, modules=classes)
    terms.names = {
        name: terms.const(value) for name, value in constants.items() if name not in arguments
    }
    definitions, pinned = number_versions(forward.body, arguments)
    if not definitions or not definitions[-1].is_return:
        raise NotRewritable("forward does not end in a return")
    program = Program(
        module, model, forward, arguments, definitions, terms, modules, _is_matrix(module), pinned
    )
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
        if not isinstance(statement, ast.Assign) or not isinstance(
            statement.targets[0], ast.Attribute
        ):
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
    function = next(
        (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "get_init_inputs"),
        None,
    )
    last = function.body[-1] if function else None
    return (
        last.value.elts if isinstance(last, ast.Return) and isinstance(last.value, ast.List) else []
    )


def _is_matrix(module: ast.Module) -> bool:
    function = next(
        (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "get_inputs"), None
    )
    calls = [
        n
        for n in (ast.walk(function) if function else ())
        if isinstance(n, ast.Call) and (dotted(n.func) or "") in {"torch.randn", "torch.rand"}
    ]
    return bool(calls) and all(len(c.args) == 2 for c in calls)


def _annotate(program: Program) -> None:
    """Give every expression its term."""
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
            for call, variable in _steps_of_loop(program, definition):
                program.in_loops.append((call, variable))
                terms.of(call)
            for name in {n for s in definition.verbatim for n in assigned(s)}:
                terms.names[name] = terms.raw("opaque", (), f"{name} after {index}")
            continue
        term = terms.of(definition.value)
        for position, version in enumerate(definition.targets):
            part = term if len(definition.targets) == 1 else _item(terms, term, position)
            terms.names[version] = part
            program.defined_by[version] = index
            program.versions.setdefault(part, []).append((index, version))
    terms.on_term = None


def _steps_of_loop(program: Program, definition: Definition) -> Iterator[tuple[ast.Call, str]]:
    loop = definition.verbatim[0]
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
        return
    for node in ast.walk(loop):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="self"), attr=module),
                args=[
                    ast.Subscript(
                        value=ast.Name(id=source),
                        slice=ast.Tuple(
                            elts=[ast.Slice(lower=None, upper=None), ast.Name(id=step)]
                        ),
                    )
                ],
                keywords=[],
            ) if (
                module in program.modules
                and step == loop.target.id
                and source in program.defined_by
            ):
                yield node, step
            case _:
                pass


def _item(terms: Terms, term: Term, position: int) -> Term:
    if term.op == "attr" and term.value == "shape":
        return terms.raw("size", (term.args[0], terms.const(position)))
    if term.op == "tuple" and position < len(term.args):
        return term.args[position]
    return terms.raw("item", (term, terms.const(position)))
