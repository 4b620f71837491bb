"""Draw odd problems and rows of candidates from the pieces, with hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.fuzz import inputs, names, outputs, texts, weights
from benchmarks.fuzz.actions import ACTIONS, Action
from benchmarks.fuzz.pieces import Expected, Odd, Piece
from benchmarks.fuzz.places import PLACES, action_piece, action_pieces
from benchmarks.fuzz.source import copied, problem_bytes

FORMS = {
    "inputs": inputs.INPUTS,
    "outputs": outputs.RESULTS,
    "weights": weights.WEIGHTS,
    "forms": names.FORMS,
    "texts": texts.TEXT_PIECES,
}
MAX_PIECES = 3


NOTHING = Odd()


class Author(StrEnum):
    """The origin of a row's candidate."""

    COPY = "a copy"
    """A copy of the reference, renamed: the null test."""
    WRONG = "wrong"
    """A candidate that returns zeros."""
    ODD = "odd"
    """A right candidate for a plain problem, with pieces of its own."""


@dataclass(frozen=True)
class Row:
    """A problem and a candidate for it."""

    problem: Odd
    author: Author = Author.COPY
    candidate: Odd = NOTHING

    @property
    def name(self) -> str:
        """Return the names of its oddities."""
        said = f": {self.candidate.name}" if self.author is Author.ODD else ""
        return f"[{self.problem.name}] judged with [{self.author}{said}]"

    @property
    def size(self) -> int:
        """Return the number of its pieces."""
        return len(self.problem.pieces) + len(self.candidate.pieces)

    @property
    def stalls(self) -> bool:
        """Return whether a limit must be waited for."""
        return self.problem.stalls or self.candidate.stalls

    def problem_file(self, number: int) -> bytes:
        """Return the problem's file, which differs for each number."""
        content = problem_bytes(self.problem)
        mark = f"# {number}\n".encode()
        if {"empty", "UTF-16"} & set(self.problem.parts().text):
            return content
        return content + (mark if content.endswith(b"\n") else b"\n" + mark.rstrip())

    def source(self, number: int) -> str:
        """Return the candidate's source."""
        if self.author is Author.WRONG:
            return WRONG
        if self.author is Author.ODD:
            content = problem_bytes(self.candidate)
        else:
            content = self.problem_file(number)
        return copied(content.decode("utf-8-sig", "replace")) or "# nothing"


WRONG = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()

    def forward(self, x, *more):
        return torch.zeros_like(x)
"""


def _any_of(pieces: list[Piece]) -> st.SearchStrategy[Piece]:
    return st.sampled_from(pieces)


def _actions(kind: str) -> st.SearchStrategy[Piece]:
    of: list[Action] = ACTIONS[kind]
    return st.builds(action_piece, st.sampled_from(of), st.sampled_from(PLACES))


PIECES = st.one_of(*map(_any_of, FORMS.values()), *map(_actions, ACTIONS))
PROBLEMS = st.builds(
    lambda pieces: Odd(tuple(pieces)),
    st.lists(PIECES, min_size=1, max_size=MAX_PIECES, unique_by=lambda piece: piece.place),
)
IN_CANDIDATE = [
    place for place in PLACES if place.part in ("top", "bottom", "body", "init", "enter", "methods")
]
CANDIDATE_PIECES = st.one_of(
    *map(_any_of, (outputs.RESULTS, weights.WEIGHTS, names.FORMS, texts.TEXT_PIECES)),
    *(
        st.builds(action_piece, st.sampled_from(of), st.sampled_from(IN_CANDIDATE))
        for of in ACTIONS.values()
    ),
)
CANDIDATES = st.builds(
    lambda pieces: Odd(tuple(pieces)),
    st.lists(CANDIDATE_PIECES, min_size=1, max_size=2, unique_by=lambda piece: piece.place),
)
ROWS = st.one_of(
    st.builds(Row, PROBLEMS),
    st.builds(Row, PROBLEMS),
    st.builds(Row, PROBLEMS, st.just(Author.WRONG)),
    st.builds(Row, st.just(Odd()), st.just(Author.ODD), CANDIDATES),
)


def draw(number: int, seed_: int, *, stalls: bool = True) -> list[Row]:
    """Return different rows; the same seed gives the same ones."""
    found: dict[str, Row] = {}

    def keep(row: Row) -> None:
        if stalls or not row.stalls:
            found.setdefault(row.name, row)

    attempts = number
    while len(found) < number:
        attempts *= 2
        _run(keep, attempts, seed_)
    # hypothesis begins with the simplest ones, whatever the seed
    return list(found.values())[-number:]


def _run(keep: Callable[[Row], None], attempts: int, seed_: int) -> None:
    quiet = settings(
        max_examples=attempts,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    test: Any = seed(seed_)(quiet(given(ROWS)(keep)))
    test()


def all_pieces() -> list[Piece]:
    """Return all pieces."""
    acting = [piece for kind in ACTIONS for piece in action_pieces(kind)]
    return [*(piece for pieces in FORMS.values() for piece in pieces), *acting]


def one_by_one(*, stalls: bool = True) -> list[Row]:
    """Return a row for each piece of form alone, and for each action in a call of each process."""
    forms = [piece for pieces in FORMS.values() for piece in pieces]
    places = [place for place in PLACES if place.name in ("in forward", "in the judge, in forward")]
    acting = [
        action_piece(action, place) for of in ACTIONS.values() for action in of for place in places
    ]
    rows = [Row(Odd((piece,))) for piece in (*forms, *acting)]
    return [row for row in rows if stalls or not row.stalls]


def simpler(row: Row) -> list[Row]:
    """Return the rows that have one piece less."""
    found = [
        Row(_without(row.problem, piece), row.author, row.candidate) for piece in row.problem.pieces
    ]
    return found + [
        Row(row.problem, row.author, _without(row.candidate, piece))
        for piece in row.candidate.pieces
    ]


def _without(odd: Odd, piece: Piece) -> Odd:
    return Odd(tuple(each for each in odd.pieces if each is not piece))


NEIGHBOURS = (
    Row(Odd()),
    Row(Odd(), Author.WRONG),
    Row(Odd((next(each for each in weights.WEIGHTS if each.name == "weights: a layer"),))),
)
"""Rows without anything odd and with known verdicts: `correct`, `incorrect`, `correct`."""
__all__ = ["NEIGHBOURS", "Author", "Expected", "Row", "all_pieces", "draw", "simpler"]
