"""Define pieces of odd problems: each changes a plain problem and states its expected result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce


class Expected(StrEnum):
    """The result that a problem must have."""

    JUDGED = "judged"
    """Each of its candidates gets a verdict, and an honest copy is correct."""
    REFUSED = "refused"
    """It is named in one line."""
    EITHER = "either"
    """It is judged or refused."""


@dataclass(frozen=True)
class Parts:
    """The parts of a problem's source that pieces change, in lines without indentation."""

    head: str = ""
    """Lines before the imports."""
    top: str = ""
    """Lines after the imports."""
    body: str = ""
    """Lines in the class, before its methods."""
    init: str = ""
    """Lines in the constructor."""
    enter: str = ""
    """Lines at the start of `forward`, where `given` holds the inputs."""
    mix: str = "given[0]"
    """Expression of the tensor `x` from the inputs."""
    change: str = ""
    """Lines that change `y` with weights."""
    result: str = "y"
    methods: str = ""
    """Lines after the class's own methods."""
    draw: str = ""
    """Lines at the start of `get_inputs`."""
    inputs: str = "[torch.randn(8, 16)]"
    give: str = ""
    """Lines at the start of `get_init_inputs`."""
    init_inputs: str = "[]"
    base: str = "nn.Module"
    bind: str = ""
    """Lines after the class, which is called `Net`; they give `Model` its meaning."""
    bottom: str = ""
    text: tuple[str, ...] = ()
    """Names of changes of the whole text (`texts`), in order."""


@dataclass(frozen=True)
class Piece:
    """One oddity.

    Two pieces of one `place` exclude each other.
    """

    name: str
    place: str
    parts: Parts
    expected: Expected = Expected.EITHER
    is_function: bool = True
    """True if its output depends on weights and inputs alone, so that a copy is never incorrect."""
    tampers: bool = False
    """True if it changes the process it runs in so that other pieces may not do what they say."""
    plain_only: bool = False
    """True if it needs inputs of the plain shape and dtype."""
    is_alone: bool = False
    """True if it replaces what other pieces change."""
    stalls: bool = False
    """True if it is waited for until a limit."""


@dataclass(frozen=True)
class Odd:
    """A problem of one or more pieces."""

    pieces: tuple[Piece, ...] = field(default_factory=tuple)

    @property
    def name(self) -> str:
        """Return the names of its pieces."""
        return " + ".join(piece.name for piece in self.pieces) or "plain"

    @property
    def expected(self) -> Expected:
        """Return the result that the problem with all of these pieces must have."""
        expected = [piece.expected for piece in self.pieces]
        if any(piece.tampers for piece in self.pieces) or self._is_unsure:
            return Expected.EITHER
        for strongest in (Expected.REFUSED, Expected.EITHER):
            if strongest in expected:
                return strongest
        return Expected.JUDGED

    @property
    def is_function(self) -> bool:
        """Return whether a copy of it can never be incorrect."""
        return all(piece.is_function and not piece.tampers for piece in self.pieces)

    @property
    def stalls(self) -> bool:
        """Return whether a limit must be waited for."""
        return any(piece.stalls for piece in self.pieces)

    @property
    def _is_unsure(self) -> bool:
        """Return whether a piece may have taken from another what it needs."""
        if len(self.pieces) > 1 and any(piece.is_alone for piece in self.pieces):
            return True
        has_others = any(piece.parts.inputs != Parts().inputs for piece in self.pieces)
        return has_others and any(piece.plain_only for piece in self.pieces)

    def parts(self) -> Parts:
        """Return the parts of the whole problem."""
        return reduce(_joined, (piece.parts for piece in self.pieces), Parts())


_PLAIN = Parts()
_ONE = ("mix", "result", "inputs", "init_inputs", "base", "bind")
"""Parts that are replaced; other parts are appended to each other."""


def _joined(parts: Parts, more: Parts) -> Parts:
    changed: dict[str, object] = {}
    for name, value in vars(more).items():
        if value == getattr(_PLAIN, name):
            continue
        mine = getattr(parts, name)
        if name == "text":
            changed[name] = mine + value
        else:
            changed[name] = value if name in _ONE or not mine else f"{mine}\n{value}"
    return replace(parts, **changed)  # pyright: ignore[reportArgumentType] -- by name
