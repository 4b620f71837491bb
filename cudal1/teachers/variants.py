"""Variants of a reference: one option, or none, at each place; or a trick of the whole module."""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cudal1.teachers.places import Place, analyse
from cudal1.teachers.printing import forward_lines, render
from cudal1.teachers.program import NotRewritable
from cudal1.teachers.rule import Kind
from cudal1.teachers.tricks import CHEATS, cheat, damage


@dataclass(frozen=True, slots=True)
class Choice:
    """The option that was taken at one place."""

    option: int | None
    """Index into the place's options; None: the place is left as in the reference."""
    family: str
    """Family of the option; where none was taken, of the place's first option."""
    kind: Kind


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A variant of a reference."""

    source: str
    choices: tuple[Choice, ...]
    """The choices, one for each place, in the order of the code."""
    kind: Kind
    """Kind of the whole: CHEAT or BROKEN when the module as a whole is; WRONG when any place is;
    else that of the best place; REFERENCE for a copy."""
    trick: str | None = None
    """Name of the cheat."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Probabilities of the kinds; a kind that a family lacks falls back to the reference."""

    kinds: Mapping[Kind, float]
    """Relative probabilities of the kinds at each place."""
    by_family: Mapping[str, Mapping[Kind, float]] = field(
        default_factory=dict[str, Mapping[Kind, float]]
    )
    """Probabilities that replace `kinds` for these families."""
    family_preference: Mapping[str, float] = field(default_factory=dict[str, float])
    """Relative weight of a family among those of one place; 1 by default."""
    cheat: float = 0.0
    """Probability that the module as a whole cheats."""
    broken: float = 0.0
    """Probability that the module does not run."""
    operators: bool = False
    """True if rules for single operators and layers apply, too."""


def places(reference_source: str, *, operators: bool = False) -> tuple[Place, ...]:
    """Return the places where the reference can be rewritten; none when it cannot be read.

    Args:
        reference_source: the reference.
        operators: whether rules for single operators and layers apply, too.
    """
    try:
        return analyse(reference_source, operators=operators)[1]
    except NotRewritable:
        return ()


def variant(reference_source: str, *, rng: random.Random, weights: Weights) -> Rewrite:
    """Return a random variant, with its labels."""
    found = places(reference_source, operators=weights.operators)
    choices = [_pick(place, rng, weights) for place in found]
    rewrite = compose(reference_source, choices, operators=weights.operators)
    draw = rng.random()
    if draw < weights.cheat:
        return with_cheat(
            reference_source, rewrite, rng.choice(CHEATS), operators=weights.operators
        )
    if draw < weights.cheat + weights.broken:
        return Rewrite(damage(rewrite.source, rng), rewrite.choices, Kind.BROKEN)
    return rewrite


def compose(
    reference_source: str, choices: Sequence[int | None], *, operators: bool = False
) -> Rewrite:
    """Return the variant with these choices: the way to repeat one, or to mix two.

    A reference that cannot be read, and choices that have no code, give a copy of the reference.
    """
    try:
        program, found = analyse(reference_source, operators=operators)
    except NotRewritable:
        return Rewrite(_renamed(reference_source), (), Kind.REFERENCE)
    if len(choices) != len(found):
        raise ValueError(f"{len(choices)} choices for {len(found)} places")
    options = [place.options[c] for place, c in zip(found, choices, strict=True) if c is not None]
    try:
        source = render(program, options)
    except NotRewritable:
        choices, options = [None] * len(found), []
        source = render(program, [])
    labels = tuple(_label(place, choice) for place, choice in zip(found, choices, strict=True))
    return Rewrite(source, labels, _overall([label.kind for label in labels]))


def with_cheat(
    reference_source: str, honest: Rewrite, name: str, *, operators: bool = False
) -> Rewrite:
    """Return the same choices in a module that cheats; `honest` if the reference is unreadable."""
    try:
        program, found = analyse(reference_source, operators=operators)
        options = [
            p.options[c.option]
            for p, c in zip(found, honest.choices, strict=True)
            if c.option is not None
        ]
        source = cheat(program, forward_lines(program, options), name)
    except NotRewritable:
        return honest
    return Rewrite(source, honest.choices, Kind.CHEAT, name)


def _label(place: Place, choice: int | None) -> Choice:
    if choice is None:
        return Choice(None, place.options[0].family, Kind.REFERENCE)
    return Choice(choice, place.options[choice].family, place.options[choice].kind)


def _overall(kinds: Sequence[Kind]) -> Kind:
    for kind in (Kind.WRONG, Kind.FAST, Kind.MID, Kind.SLOW):
        if kind in kinds:
            return kind
    return Kind.REFERENCE


def _pick(place: Place, rng: random.Random, weights: Weights) -> int | None:
    families = place.families
    preference = [weights.family_preference.get(f, 1.0) for f in families]
    family = rng.choices(families, preference)[0] if any(preference) else families[0]
    kinds = weights.by_family.get(family, weights.kinds)
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    fitting = [
        n
        for n, option in enumerate(place.options)
        if option.family == family and option.kind is kind
    ]
    return rng.choice(fitting) if fitting else None


def _renamed(source: str) -> str:
    """Return a copy with its class called ModelNew, without functions for the judge alone."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source.replace("class Model(", "class ModelNew(")
    kept = [
        n for n in module.body if getattr(n, "name", "") not in {"get_inputs", "get_init_inputs"}
    ]
    text = ast.unparse(ast.Module(body=kept, type_ignores=[])) + "\n"
    return text.replace("class Model(", "class ModelNew(").replace("super(Model, self)", "super()")
