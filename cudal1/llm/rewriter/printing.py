"""Printing a program, with some of its expressions replaced, as the source of `ModelNew`.

Only what the result needs is printed, under the names of the reference; a version gets another name
when its own is still in use. The source has the imports, constants and helpers that it uses, no more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cudal1.llm.rewriter.places import Option
from cudal1.llm.rewriter.program import Program
from cudal1.llm.rewriter.terms import NAMESPACES, number_of

_SPARE_NAMES = ("y", "z", "t", "u", "v", "q")
_IMPORTS = {"torch": "import torch", "nn": "import torch.nn as nn", "F": "import torch.nn.functional as F", "math": "import math"}


def render(program: Program, options: Iterable[Option]) -> str:
    """The complete source of `ModelNew`."""
    return assemble(program, forward_lines(program, options))


def forward_lines(program: Program, options: Iterable[Option]) -> list[str]:
    """The statements of forward, without indentation."""
    return _Printer(program, {id(option.root): option for option in options}).lines()


def assemble(program: Program, body: list[str], *, class_lines: Iterable[str] = ()) -> str:
    """A source from the body of forward; everything else is the reference's."""
    head, init, signature = _frame(program.module, program.model, program.forward)
    text = [*init, *class_lines, f"    {signature}"]
    text += ["        " + line for statement in body for line in statement.split("\n")]
    source = "\n".join(text)
    used = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
    return "\n".join(_preamble(program, used, head)) + "\n\n\n" + source + "\n"


@lru_cache(maxsize=512)
def _frame(
    module: ast.Module, model: ast.ClassDef, forward: ast.FunctionDef
) -> tuple[dict[str, tuple[int, str, frozenset[str]]], list[str], str]:
    """Top-level names with their code, the class without forward, and forward's first line."""
    head: dict[str, tuple[int, str, frozenset[str]]] = {}
    for order, node in enumerate(module.body):
        names = _binds(node)
        if names & {"Model", "get_inputs", "get_init_inputs"}:
            continue
        uses = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        text = ast.unparse(node)
        head.update({name: (order, text, uses) for name in names})
    bases = ", ".join(ast.unparse(base) for base in model.bases)
    lines = [f"class ModelNew({bases}):"]
    for node in model.body:
        if node is forward or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        text = ast.unparse(_without_docstring(node)).replace("super(Model, self)", "super()")
        lines += [*("    " + line if line else "" for line in text.split("\n")), ""]
    signature = f"def forward({ast.unparse(forward.args)}):"
    return head, lines, signature


def _without_docstring(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.FunctionDef) and len(node.body) > 1:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return ast.FunctionDef(
                name=node.name, args=node.args, body=node.body[1:], decorator_list=node.decorator_list,
                returns=node.returns, lineno=node.lineno, type_params=[],
            )  # fmt: skip
    return node


def _binds(node: ast.stmt) -> frozenset[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return frozenset(a.asname or a.name.split(".")[0] for a in node.names)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return frozenset({node.name})
    if isinstance(node, ast.Assign):
        return frozenset(t.id for t in node.targets if isinstance(t, ast.Name))
    return frozenset()


def _preamble(
    program: Program, used: set[str], head: Mapping[str, tuple[int, str, frozenset[str]]]
) -> list[str]:
    wanted, todo = dict[str, int](), sorted(used)
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in head:
            order, text, uses = head[name]
            wanted[text] = order
            todo += sorted(uses)
        elif name in _IMPORTS:
            wanted[_IMPORTS[name]] = -1
    lines = sorted(wanted, key=lambda text: (not text.startswith(("import ", "from ")), wanted[text], text))
    imports = [t for t in lines if t.startswith(("import ", "from "))]
    imports.sort(key=lambda t: (t.startswith(("import torch", "from torch")), len(t)))
    rest = [t for t in lines if t not in imports]
    return [*imports, *(["", *rest] if rest else [])]


@dataclass(slots=True)
class _Line:
    """One printed statement."""

    node: ast.stmt
    names: list[ast.Name] = field(default_factory=list[ast.Name])
    targets: tuple[str, ...] = ()


class _Printer:
    """Emits definitions from the last to the first, as far as they are needed."""

    def __init__(self, program: Program, replacements: Mapping[int, Option]) -> None:
        self.program = program
        self.replacements = replacements
        self.needed: set[str] = set()
        self.names: list[ast.Name] = []
        self.before: list[_Line] = []
        self.fresh = 0
        self.here = 0

    def lines(self) -> list[str]:
        emitted: list[_Line] = []
        for self.here in range(len(self.program.definitions) - 1, -1, -1):
            definition = self.program.definitions[self.here]
            if definition.targets and not self.needed & set(definition.targets):
                continue
            self.names, self.before = [], []
            touched = definition.value is not None and self._touches(definition.value)
            if definition.verbatim and not touched:
                statements = definition.verbatim
                printed = [_Line(self.rebuild(s), self._taken()) for s in statements]
                if definition.targets:
                    printed[0].targets = definition.targets
            else:
                assert definition.value is not None
                value = self.emit(definition.value)
                line = _Line(ast.Return(value))
                if not definition.is_return:
                    targets = [ast.Name(v, ast.Store()) for v in definition.targets]
                    self.names += targets
                    target = targets[0] if len(targets) == 1 else ast.Tuple([*targets], ast.Store())
                    line = _Line(ast.Assign([target], value, lineno=0), targets=definition.targets)
                line.names = self._taken()
                printed = [*self.before, line]
            emitted += reversed(printed)
        emitted.reverse()
        self._name(emitted)
        return [ast.unparse(line.node) for line in emitted if not _is_identity(line.node)]

    def _touches(self, node: ast.AST) -> bool:
        return any(id(n) in self.replacements for n in ast.walk(node))

    def _taken(self) -> list[ast.Name]:
        names, self.names = self.names, []
        return names

    def emit(self, node: ast.expr) -> ast.expr:
        option = self.replacements.get(id(node))
        return self.rebuild(node) if option is None else self.instantiate(option)

    def rebuild(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name):
            copy = ast.Name(node.id, node.ctx)
            self.names.append(copy)
            if isinstance(node.ctx, ast.Load):
                self.needed.add(node.id)
            return copy
        if isinstance(node, ast.Constant):
            return node
        fields: dict[str, object] = {}
        for name in node._fields:
            child = getattr(node, name, None)
            if isinstance(child, ast.expr):
                fields[name] = self.emit(child)
            elif isinstance(child, ast.AST):
                fields[name] = self.rebuild(child)
            elif isinstance(child, list):
                fields[name] = [self.emit(c) if isinstance(c, ast.expr) else self.rebuild(c) if isinstance(c, ast.AST) else c for c in child]
            else:
                fields[name] = child
        if isinstance(node, ast.For | ast.Assign):
            fields["lineno"] = 0
        return type(node)(**fields)

    def instantiate(self, option: Option) -> ast.expr:
        pending = self.names
        local = self._hoisted(option)
        for step in option.template.steps:
            self.names = []
            # the right side of an assignment still sees the name's earlier version
            target = step.targets[0] if isinstance(step, ast.Assign) else None
            stored = [target.id] if isinstance(target, ast.Name) else sorted(_stored(step) - set(local))
            fresh = dict[str, str]()
            for name in stored:
                self.fresh += 1
                fresh[name] = f"{name}@f{self.fresh}"
            if isinstance(step, ast.Assign):
                value = self.fill(step.value, option, local)
                local |= fresh
                assigned = ast.Name(local[stored[0]], ast.Store())
                self.names.append(assigned)
                statement: ast.stmt = ast.Assign([assigned], value, lineno=0)
            else:
                local |= fresh
                statement = self._fill_statement(step, option, local)
            self.before.append(_Line(statement, self.names, tuple(fresh.values())))
        self.names = pending
        return self.fill(option.template.value, option, local)

    def _hoisted(self, option: Option) -> dict[str, str]:
        """Names for what the template uses more than once and the reference computes in passing."""
        local: dict[str, str] = {}
        before = self.program.owner[id(option.root)]
        for name, uses in option.template.uses.items():
            term = option.binding.get(name)
            if uses < 2 or term is None or term.op in {"const", "attr", "size", "name"}:
                continue
            expression = self.program.expression(term, before=before)
            if isinstance(expression, ast.Name):
                continue
            self.names = []
            value = self.emit(expression)
            self.fresh += 1
            local[name] = f"h@f{self.fresh}"
            target = ast.Name(local[name], ast.Store())
            self.before.append(_Line(ast.Assign([target], value, lineno=0), [*self.names, target], (local[name],)))
        return local

    def _fill_statement(self, step: ast.stmt, option: Option, local: Mapping[str, str]) -> ast.stmt:
        match step:
            case ast.For(target=target, iter=iterable, body=body):
                source = self.fill(iterable, option, local)
                inner = [self._fill_statement(s, option, local) for s in body]
                return ast.For(self.fill(target, option, local), source, inner, [], lineno=0)
            case ast.Assign(targets=[target], value=value):
                return ast.Assign([self.fill(target, option, local)], self.fill(value, option, local), lineno=0)
            case ast.Expr(value=value):
                return ast.Expr(self.fill(value, option, local))
            case _:
                raise NotImplementedError(ast.unparse(step))

    def fill(self, node: ast.expr, option: Option, local: Mapping[str, str]) -> ast.expr:
        """A copy of a template's expression: metavariables bound, versions named, numbers computed."""
        if isinstance(node, ast.Name):
            if node.id in option.binding and node.id not in local:
                term = option.binding[node.id]
                if term.op == "const" and node.id[1] in "cdl":
                    return ast.Constant(term.value)
                expression = self.program.expression(term, before=self.program.owner[id(option.root)])
                return self.emit(expression)
            copy = ast.Name(local.get(node.id, node.id), node.ctx)
            self.names.append(copy)
            return copy
        if isinstance(node, ast.Constant):
            return node
        fields: dict[str, object] = {}
        for name in node._fields:
            child = getattr(node, name, None)
            if isinstance(child, ast.expr):
                fields[name] = self.fill(child, option, local)
            elif isinstance(child, list):
                fields[name] = [self._fill_part(c, option, local) for c in child]
            else:
                fields[name] = child
        return _computed(type(node)(**fields))

    def _fill_part(self, part: object, option: Option, local: Mapping[str, str]) -> object:
        if isinstance(part, ast.expr):
            return self.fill(part, option, local)
        if isinstance(part, ast.keyword):
            return ast.keyword(part.arg, self.fill(part.value, option, local))
        if isinstance(part, ast.comprehension):
            return ast.comprehension(part.target, self.fill(part.iter, option, local), [], 0)
        return part

    def _name(self, lines: list[_Line]) -> None:
        last_use: dict[str, int] = {}
        for index, line in enumerate(lines):
            for name in line.names:
                last_use[name.id] = index
        holder = {a: f"{a}@0" for a in self.program.arguments}
        final = {version: name for name, version in holder.items()}
        taken = {*holder, *self.program.pinned, *NAMESPACES, "self"}
        taken |= {n.id.split("@")[0] for line in lines for n in line.names}
        for index, line in enumerate(lines):
            for version in line.targets:
                base = version.split("@")[0]
                current = holder.get(base)
                free = current is None or last_use.get(current, -1) <= index
                if not free or base in self.program.pinned:
                    base = next(n for n in _spare(base) if n not in taken)
                    taken.add(base)
                holder[base] = version
                final[version] = base
        for line in lines:
            for name in line.names:
                name.id = final.get(name.id, name.id)


def _stored(step: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(step) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _spare(base: str) -> Iterable[str]:
    yield from _SPARE_NAMES
    yield from (f"{base}_{number}" for number in range(2, 10_000))


def _is_identity(node: ast.stmt) -> bool:
    """`x = x`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name(id=value)):
            return target == value
        case _:
            return False


def _computed(node: ast.AST) -> ast.expr:
    """Arithmetic on numbers, and choices between them, carried out."""
    assert isinstance(node, ast.expr)
    if isinstance(node, ast.IfExp) and isinstance(node.test, ast.Constant):
        return node.body if node.test.value else node.orelse
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
        right = node.comparators[0]
        if isinstance(right, ast.Constant):
            return ast.Constant(node.left.value == right.value)
    if isinstance(node, ast.BinOp | ast.UnaryOp):
        value = number_of(node)
        if value is not None and not (isinstance(node, ast.UnaryOp) and isinstance(value, int | float)):
            return ast.Constant(float(f"{value:.10g}") if isinstance(value, float) else value)
    return node
