"""Printing of a program, with some of its expressions replaced, as the source of `ModelNew`.

Only what the result needs is printed, under the names of the reference. A version gets another name
when its own is still in use. The source has the imports, constants and helpers that it uses, no
more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cudal1.teachers.frame import assembled
from cudal1.teachers.places import Option
from cudal1.teachers.program import Program
from cudal1.teachers.spelling import NAMESPACES
from cudal1.teachers.trees import computed, rebuilt, stored
from cudal1.teachers.versions import Definition

_SPARE_NAMES = ("y", "z", "t", "u", "v", "q")


def render(program: Program, options: Iterable[Option]) -> str:
    """Return the complete source of `ModelNew`."""
    printer = _Printer(program, {id(option.root): option for option in options})
    lines = printer.lines()
    return assembled(program, lines, printer.free_names())


def forward_lines(program: Program, options: Iterable[Option]) -> list[str]:
    """Return the statements of forward, without indentation."""
    return _Printer(program, {id(option.root): option for option in options}).lines()


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
        self.emitted: list[_Line] = []

    def free_names(self) -> set[str]:
        """Return the names that the printed lines read and do not bind."""
        names = [name for line in self.emitted for name in line.names]
        return {n.id for n in names} - {n.id for n in names if isinstance(n.ctx, ast.Store)}

    def lines(self) -> list[str]:
        """Return the statements, in order."""
        for definition in reversed(self.program.definitions):
            if definition.targets and not self.needed & set(definition.targets):
                continue
            self.names, self.before = [], []
            own = self._own_lines(definition)
            self.emitted += reversed([*self.before, *own])
        self.emitted.reverse()
        self._name(self.emitted)
        return [ast.unparse(line.node) for line in self.emitted if not _is_identity(line.node)]

    def _own_lines(self, definition: Definition) -> list[_Line]:
        value = definition.value
        if value is None or (definition.verbatim and not self._touches(value)):
            printed: list[_Line] = []
            for statement in definition.verbatim:
                copy = self.rebuild(statement)
                assert isinstance(copy, ast.stmt)
                printed.append(_Line(copy, self._taken()))
            printed[0].targets = definition.targets
            return printed
        expression = self.emit(value)
        if definition.is_return:
            return [_Line(ast.Return(expression), self._taken())]
        targets = [ast.Name(version, ast.Store()) for version in definition.targets]
        self.names += targets
        target = targets[0] if len(targets) == 1 else ast.Tuple([*targets], ast.Store())
        statement = ast.Assign([target], expression, lineno=0)
        return [_Line(statement, self._taken(), definition.targets)]

    def _touches(self, node: ast.AST) -> bool:
        return any(id(n) in self.replacements for n in ast.walk(node))

    def _taken(self) -> list[ast.Name]:
        names, self.names = self.names, []
        return names

    def emit(self, node: ast.expr) -> ast.expr:
        """Return code for an expression of the reference."""
        expression = self.rebuild(node)
        assert isinstance(expression, ast.expr)
        return expression

    def rebuild(self, node: ast.AST) -> ast.AST:
        """Return a copy of a part of the reference, with its replacements made."""
        option = self.replacements.get(id(node))
        if option is not None:
            return self.instantiate(option)
        if isinstance(node, ast.Name):
            copy = ast.Name(node.id, node.ctx)
            self.names.append(copy)
            if isinstance(node.ctx, ast.Load):
                self.needed.add(node.id)
            return copy
        return node if isinstance(node, ast.Constant) else rebuilt(node, self.rebuild)

    def instantiate(self, option: Option) -> ast.expr:
        """Return a template's value; its steps go before the statement that is being printed."""
        pending = self.names
        local = self._hoisted(option)
        for step in option.template.steps:
            self.names = []
            fresh = {name: self._fresh(name) for name in sorted(stored(step) - _kept(step, local))}
            if isinstance(step, ast.Assign):
                # the right side still sees the name's earlier version
                value = self.fill(step.value, option, local)
                (version,) = fresh.values()
                target = ast.Name(version, ast.Store())
                self.names.append(target)
                statement: ast.AST = ast.Assign([target], value, lineno=0)
                local |= fresh
            else:
                local |= fresh
                statement = self._filled(step, option, local)
            assert isinstance(statement, ast.stmt)
            self.before.append(_Line(statement, self.names, tuple(fresh.values())))
        self.names = pending
        return self.fill(option.template.value, option, local)

    def _fresh(self, name: str) -> str:
        self.fresh += 1
        return f"{name}@f{self.fresh}"

    def _hoisted(self, option: Option) -> dict[str, str]:
        """Return names for terms that the template uses twice and the reference does not name."""
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
            local[name] = self._fresh("h")
            target = ast.Name(local[name], ast.Store())
            self.before.append(
                _Line(ast.Assign([target], value, lineno=0), [*self.names, target], (local[name],))
            )
        return local

    def fill(self, node: ast.expr, option: Option, local: Mapping[str, str]) -> ast.expr:
        """Return a template's expression: metavariables bound, versions named, numbers computed."""
        expression = self._filled(node, option, local)
        assert isinstance(expression, ast.expr)
        return expression

    def _filled(self, node: ast.AST, option: Option, local: Mapping[str, str]) -> ast.AST:
        if isinstance(node, ast.Name):
            term = option.binding.get(node.id) if node.id not in local else None
            if term is None:
                copy = ast.Name(local.get(node.id, node.id), node.ctx)
                self.names.append(copy)
                return copy
            if term.op == "const":
                return ast.Constant(term.value)
            return self.emit(
                self.program.expression(term, before=self.program.owner[id(option.root)])
            )
        if isinstance(node, ast.Constant):
            return node
        copy = rebuilt(node, lambda part: self._filled(part, option, local))
        return computed(copy) if isinstance(copy, ast.expr) else copy

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
                    base = next(n for n in _idle(base) if n not in taken)
                    taken.add(base)
                holder[base] = version
                final[version] = base
        for line in lines:
            for name in line.names:
                name.id = final.get(name.id, name.id)


def _kept(step: ast.stmt, local: Mapping[str, str]) -> set[str]:
    """Return the names that keep their version: a loop's names do, an assignment's do not."""
    return set(local) if isinstance(step, ast.For) else set()


def _idle(base: str) -> Iterable[str]:
    yield from _SPARE_NAMES
    yield from (f"{base}_{number}" for number in range(2, 10_000))


def _is_identity(node: ast.stmt) -> bool:
    """Return whether a statement is `x = x`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name(id=value)):
            return target == value
        case _:
            return False
