"""Places: where rules apply in a program, and the options at each.

Matches that share code form one place, and a place takes at most one option, so that choices at
different places never conflict. Places and options have a fixed order for a given source: a choice can
be repeated, or copied from another variant of the same reference.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from cudal1.llm.rewriter.loops import procedural_options
from cudal1.llm.rewriter.matching import Binding, unify
from cudal1.llm.rewriter.program import NotRewritable, Program, parse
from cudal1.llm.rewriter.rule import Kind, Rule, Template
from cudal1.llm.rewriter.rules import RULES
from cudal1.llm.rewriter.terms import Term


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One way to rewrite one expression."""

    family: str
    kind: Kind
    template: Template
    binding: Binding
    root: ast.expr

    @property
    def name(self) -> str:
        """The replacement as it is written in the rule."""
        return self.template.text


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Code that rules recognise."""

    options: tuple[Option, ...]

    @property
    def families(self) -> tuple[str, ...]:
        """Of the options, without repetition."""
        return tuple(dict.fromkeys(option.family for option in self.options))


@lru_cache(maxsize=512)
def analyse(source: str) -> tuple[Program, tuple[Place, ...]]:
    """The program of a reference and its places.

    Raises:
        NotRewritable: see `program.parse`.
    """
    program = parse(source)
    return program, _places(program)


@cache
def _rules_by_operation() -> dict[str, list[tuple[Rule, Term]]]:
    index: defaultdict[str, list[tuple[Rule, Term]]] = defaultdict(list)
    for rule in RULES:
        for term in rule.terms:
            index[term.op].append((rule, term))
    return dict(index)


def _matches(program: Program) -> Iterator[list[Option]]:
    index = _rules_by_operation()
    for node in program.nodes:
        term = program.term_of[id(node)]
        if program.first_node[term] is not node:
            continue
        done: set[Rule] = set()
        for rule, pattern in index.get(term.op, ()):
            if rule in done:
                continue
            binding = next(unify(pattern, term, program), None)
            if binding is not None:
                done.add(rule)
                yield [Option(rule.family, kind, template, binding, node) for kind, template in rule.templates]
        found = [
            Option(family, kind, template, binding, node)
            for family, kind, template, binding in procedural_options(program, node, term)
        ]
        if found:
            yield found


def _places(program: Program) -> tuple[Place, ...]:
    groups: list[tuple[set[int], list[Option]]] = []
    for options in _matches(program):
        covered = _covered(program, options[0])
        if program.pinned and not _is_safe(program, options[0]):
            continue
        apart: list[tuple[set[int], list[Option]]] = []
        merged: list[Option] = []
        for nodes, others in groups:
            if nodes & covered:
                covered = covered | nodes
                merged += others
            else:
                apart.append((nodes, others))
        groups = [*apart, (covered, merged + options)]
    position = {id(node): number for number, node in enumerate(program.nodes)}
    groups.sort(key=lambda group: max(position[id(o.root)] for o in group[1]))
    return tuple(Place(tuple(options)) for _, options in groups)


def _covered(program: Program, option: Option) -> set[int]:
    """Code that the match looked at: from its root down to what metavariables are bound to."""
    bound = set(option.binding.values())
    covered: set[int] = set()
    todo: list[ast.AST] = [option.root]
    while todo:
        node = todo.pop()
        term = program.term_of.get(id(node))
        if id(node) in covered or (term in bound and node is not option.root):
            continue
        covered.add(id(node))
        if isinstance(node, ast.Name) and node.id in program.defined_by:
            index = program.defined_by[node.id]
            value = program.definitions[index].value if index >= 0 else None
            todo += [value] if value is not None else []
        else:
            todo += ast.iter_child_nodes(node)
    return covered


def _is_safe(program: Program, option: Option) -> bool:
    """Nothing that the match moves may read a name that opaque statements change."""
    home = program.owner[id(option.root)]
    for term in option.binding.values():
        node = program.first_node.get(term)
        if node is None or program.owner[id(node)] == home:
            continue
        if any(isinstance(n, ast.Name) and n.id in program.pinned for n in ast.walk(node)):
            return False
    return True


def chosen(places: Sequence[Place], choices: Sequence[int | None]) -> list[Option]:
    """The options that are taken; None at a place leaves it as it is.

    Raises:
        NotRewritable: when the choices do not fit these places.
    """
    if len(choices) != len(places):
        raise NotRewritable(f"{len(choices)} choices for {len(places)} places")
    return [p.options[c] for p, c in zip(places, choices, strict=True) if c is not None]
