"""Choose the answers of a batch that are sampled again: those that say what another has said.

Two equal answers to one prompt teach and find no more than one does, and a policy that has grown
sure of itself gives many. So the second of them is drawn anew, a few times at most: then it stays,
as the policy may have nothing else to say. Equal means the same program in other words
(`cudal1.program.identity`), or the same words where an answer holds no program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cudal1.extract.extract import extract
from cudal1.program.identity import program_id


class Again:
    """The places of one batch that are to be sampled again.

    Args:
        group_of: the group of each place.
        times: how often a place may be sampled again, in each turn of its trajectory.
    """

    def __init__(self, group_of: Sequence[int], *, times: int) -> None:
        self._group_of = group_of
        self._times = self._times_left = times
        self._said: set[tuple[int, str]] = set()
        self._waiting: list[int] = []
        self.num_repeated = 0
        """Number of answers that were sampled again."""

    def keeps(self, place: int, text: str) -> bool:
        """Return whether an answer stays; if not, its place waits to be sampled again."""
        said = (self._group_of[place], _identity(text))
        if said in self._said and self._times_left:
            self._waiting.append(place)
            return False
        self._said.add(said)
        return True

    def rounds(self) -> Iterable[list[int]]:
        """Yield the places to sample again, round by round, until none waits: a turn ends."""
        while self._waiting:
            places, self._waiting = sorted(self._waiting), []
            self._times_left -= 1
            self.num_repeated += len(places)
            yield places
        self._times_left = self._times


def _identity(text: str) -> str:
    source = extract(text).source
    return " ".join(text.split()) if source is None else program_id(source)
