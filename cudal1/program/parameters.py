"""The numeric parameters that a candidate exposes: block sizes, warps, stages, unrolling.

A parameter is a whole number under a name in capitals, alone on its line: a constant at a module's
top level, or a `#define` or constant of C++ in a kernel's text. Either a comment declares it,

    BLOCK = 128  # tune: BLOCK in 64, 128, 256

or its name says what it is. A name with several definitions is a parameter if all have the same
value; they are changed together. A source is only read as text here, and nothing of it is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cudal1.record import content_id

MAX_PARAMETERS = 8
"""Number of parameters of a source; the first ones count."""
MAX_CHOICES = 16
"""Number of values that a comment may declare; the first ones count."""
LARGEST = 1 << 20
"""Largest value of a parameter."""
NUM_CACHED = 1024
"""Number of sources with known parameters."""

_DECLARED = re.compile(
    r"(?:#|//)[ \t]*tune:[ \t]*(?P<name>[A-Z][A-Z0-9_]*)[ \t]+in[ \t]+"
    r"(?P<choices>\d{1,9}(?:[ \t]*,[ \t]*\d{1,9})*)"
)
_COMMENT = r"(?=[ \t]*(?:(?:#|//).*)?$)"
_DEFINITION = re.compile(
    r"^(?P<head>(?P<python>[A-Z][A-Z0-9_]*)(?:[ \t]*:[ \t]*[\w.]+)?[ \t]*=[ \t]*"
    r"|[ \t]*#[ \t]*define[ \t]+(?P<macro>[A-Z][A-Z0-9_]*)[ \t]+"
    r"|[ \t]*(?:static[ \t]+)?(?:constexpr|const)[ \t]+(?:unsigned[ \t]+)?\w+[ \t]+"
    r"(?P<constant>[A-Z][A-Z0-9_]*)[ \t]*=[ \t]*)"
    rf"(?P<value>\d{{1,9}})(?P<tail>[ \t]*;)?{_COMMENT}",
    re.MULTILINE,
)
_WARPS, _STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
_KINDS: tuple[tuple[re.Pattern[str], tuple[int, ...] | None], ...] = (
    (re.compile(r"(?:NUM_|N_)?WARPS(?:_PER_BLOCK)?"), _WARPS),
    (re.compile(r"(?:NUM_|N_)?STAGES"), _STAGES),
    (re.compile(r"(?:[A-Z]+_)?UNROLL(?:_[A-Z]+)?"), (1, 2, 4, 8, 16)),
    (re.compile(r"(?:NUM_|N_)?THREADS(?:_PER_BLOCK)?"), (64, 128, 256, 512, 1024)),
    (re.compile(r"(?:[A-Z]+_)?(?:BLOCK|TILE|CHUNK)(?:_[A-Z0-9]+)*"), None),
)
"""Names that say what a constant is, each with its values; None: a few powers of two around it."""
_AROUND = (4, 2, 1)
"""Factors by which a size is made smaller and larger."""


@dataclass(frozen=True)
class Parameter:
    """A number that may be changed."""

    name: str
    value: int
    choices: tuple[int, ...]
    """Values to try, in order; its own is one of them."""


@lru_cache(NUM_CACHED)
def parameters(source: str) -> tuple[Parameter, ...]:
    """Return the parameters of a candidate's source, in the order of their definitions."""
    declared = {
        found["name"]: tuple(int(each) for each in found["choices"].split(","))[:MAX_CHOICES]
        for found in _DECLARED.finditer(source)
    }
    values: dict[str, set[int]] = {}
    for found in _DEFINITION.finditer(source):
        values.setdefault(_name(found), set()).add(int(found["value"]))
    parameters: list[Parameter] = []
    for name, found_values in values.items():
        value = min(found_values)
        choices = declared.get(name) or _by_name(name, value)
        if len(found_values) > 1 or not choices:
            continue
        allowed = sorted({each for each in (*choices, value) if each <= LARGEST})
        if len(allowed) > 1:
            parameters.append(Parameter(name, value, tuple(allowed)))
    return tuple(parameters[:MAX_PARAMETERS])


def with_values(source: str, values: dict[str, int]) -> str:
    """Return a source with other values of its parameters; all else stays as it is."""

    def changed(found: re.Match[str]) -> str:
        value = values.get(_name(found), found["value"])
        return f"{found['head']}{value}{found['tail'] or ''}"

    return _DEFINITION.sub(changed, source)


def skeleton_of(source: str) -> str:
    """Return an id that a source shares with those that differ in their parameters' values only."""
    names = dict.fromkeys((each.name for each in parameters(source)), 0)
    return content_id(with_values(source, names), *names)


def _name(found: re.Match[str]) -> str:
    return found["python"] or found["macro"] or found["constant"]


def _by_name(name: str, value: int) -> tuple[int, ...]:
    """Return the values of a constant that its name explains; none of another."""
    for pattern, choices in _KINDS:
        if not pattern.fullmatch(name):
            continue
        if choices is not None:
            return choices
        is_power = value > 0 and value & (value - 1) == 0
        return tuple(
            each
            for factor in _AROUND
            for each in ((value // factor, value * factor) if is_power else ())
            if each
        )
    return ()
