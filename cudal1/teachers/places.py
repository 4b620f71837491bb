"""Places of a program where rules apply, and the options at each place.

Matches that share code form one place, and a place takes at most one option, so that choices at
different places never conflict. Places and options have a fixed order for a given source: a choice
can be repeated, or copied from another variant of the same reference.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from cudal1.teachers.chains import Found, chain_options
from cudal1.teachers.loops import loop_options, step_options
from cudal1.teachers.matching import Binding, unify
from cudal1.teachers.program import Program, parse
from cudal1.teachers.rule import Kind, Rule, Template
from cudal1.teachers.rules import ALL_RULES, RULES
from cudal1.teachers.rules.knobs import FAMILIES as KNOBS
from cudal1.teachers.spelling import POINTWISE
from cudal1.teachers.terms import Term

_MIN_SHARE = 0.4
"""Share of a place's largest match below which a match is dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One way to rewrite one expression."""

    family: str
    kind: Kind
    template: Template
    binding: Binding
    root: ast.expr
    size: int
    """Number of expression nodes that the match covers."""

    @property
    def name(self) -> str:
        """The replacement as the rule writes it."""
        return self.template.text


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A place in a program's code that rules recognise."""

    options: tuple[Option, ...]
    """The options; those of the rule that covers most come first."""

    @property
    def families(self) -> tuple[str, ...]:
        """The families of the options, without repetition."""
        return tuple(dict.fromkeys(option.family for option in self.options))


@lru_cache(maxsize=512)
def analyse(source: str, *, operators: bool = False) -> tuple[Program, tuple[Place, ...]]:
    """Return the program of a reference and its places.

    Args:
        source: the reference.
        operators: whether rules for single operators and layers apply, too.

    Raises:
        NotRewritable: see `program.parse`.
    """
    program = parse(source)
    return program, _places(program, operators=operators)


_Shape = tuple[str, frozenset[str]]


@cache
def _rules_by_shape(
    *, operators: bool
) -> dict[str, list[tuple[frozenset[str], list[tuple[Rule, Term]]]]]:
    """Return each operation's patterns, by the operations that their arguments need."""
    shapes: defaultdict[_Shape, list[tuple[Rule, Term]]] = defaultdict(list)
    for rule in ALL_RULES if operators else RULES:
        for term in rule.terms:
            inner = frozenset(arg.op for arg in term.args if arg.op != "?")
            shapes[term.op, inner].append((rule, term))
    index: defaultdict[str, list[tuple[frozenset[str], list[tuple[Rule, Term]]]]] = defaultdict(
        list
    )
    for (operation, inner), patterns in shapes.items():
        index[operation].append((inner, patterns))
    return dict(index)


def _candidates(term: Term, *, operators: bool) -> Iterator[tuple[Rule, Term]]:
    inner = {arg.op for arg in term.args}
    for wanted, patterns in _rules_by_shape(operators=operators).get(term.op, ()):
        if wanted <= inner:
            yield from patterns


def _matches(program: Program, *, operators: bool) -> Iterator[tuple[ast.expr, list[Found]]]:
    for term, node in program.first_node.items():
        done: set[int] = set()
        for rule, pattern in _candidates(term, operators=operators):
            if id(rule) in done:
                continue
            binding = next(unify(pattern, term, program), None)
            if binding is not None:
                done.add(id(rule))
                yield (
                    node,
                    [(rule.family, kind, template, binding) for kind, template in rule.templates],
                )
        found = list(loop_options(term))
        if found:
            yield node, found
    for call, variable in program.in_loops:
        yield call, step_options(program, call, variable)


def _chains(
    program: Program, region_of: Mapping[Term, int]
) -> Iterator[tuple[ast.expr, list[Found]]]:
    for term, node in program.first_node.items():
        if term.op in POINTWISE:
            found = list(chain_options(program, node, term, region_of))
            if found:
                yield node, found


_Group = tuple[set[int], list[Option]]


def _places(program: Program, *, operators: bool) -> tuple[Place, ...]:
    groups = _grouped(program, [], _matches(program, operators=operators))
    region_of: dict[Term, int] = {}
    for number, (_, options) in enumerate(groups):
        largest = max(options, key=lambda option: option.size)
        for node in _covered(program, largest.root, largest.binding):
            term = program.term_of.get(node)
            if term is not None:
                region_of[term] = number
    groups = _grouped(program, groups, _chains(program, region_of))
    position = {id(node): number for number, node in enumerate(program.nodes)}
    groups.sort(key=lambda group: max(position[id(o.root)] for o in group[1]))
    return tuple(Place(_by_size(options)) for _, options in groups)


def _grouped(
    program: Program, groups: list[_Group], matches: Iterator[tuple[ast.expr, list[Found]]]
) -> list[_Group]:
    """Return the groups after the matches; groups that share code become one."""
    for root, found in matches:
        binding = found[0][3]
        if program.pinned and not _is_safe(program, root, binding):
            continue
        covered = _covered(program, root, binding)
        options = [Option(*part, root, len(covered)) for part in found]
        apart: list[_Group] = []
        merged: list[Option] = []
        for nodes, others in groups:
            if nodes & covered:
                covered = covered | nodes
                merged += others
            else:
                apart.append((nodes, others))
        groups = [*apart, (covered, options + merged)]
    return groups


def _by_size(options: list[Option]) -> tuple[Option, ...]:
    """Return the options, largest match first, without matches of a small part.

    Of a knob, only its own forms stay: a form that is fast elsewhere may be slow there.
    """
    largest = max(options, key=lambda option: (option.size, option.family in KNOBS))
    kept = [
        option
        for option in options
        if option.family == largest.family
        or (largest.family not in KNOBS and option.size >= _MIN_SHARE * largest.size)
    ]
    return tuple(sorted(kept, key=lambda option: -option.size))


def _covered(program: Program, root: ast.expr, binding: Binding) -> set[int]:
    """Return the code of a match: from its root down to the terms of its metavariables."""
    bound = set(binding.values())
    covered: set[int] = set()
    todo: list[ast.AST] = [root]
    while todo:
        node = todo.pop()
        term = program.term_of.get(id(node))
        if id(node) in covered or (term in bound and node is not root):
            continue
        if term is None and isinstance(node, ast.Name):
            continue  # in a comprehension: the names it reads are bound, or its own
        covered.add(id(node))
        if isinstance(node, ast.Name) and node.id in program.defined_by:
            index = program.defined_by[node.id]
            value = program.definitions[index].value if index >= 0 else None
            todo += [value] if value is not None else []
        else:
            todo += ast.iter_child_nodes(node)
    return covered


def _is_safe(program: Program, root: ast.expr, binding: Binding) -> bool:
    """Return whether no moved code reads a name that opaque statements change."""
    home = program.owner[id(root)]
    for term in binding.values():
        node = program.first_node.get(term)
        if node is None or program.owner[id(node)] == home:
            continue
        if any(isinstance(n, ast.Name) and n.id in program.pinned for n in ast.walk(node)):
            return False
    return True
