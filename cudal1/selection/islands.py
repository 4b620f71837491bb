"""Islands: a problem's successes in populations that do not see each other, as in FunSearch.

Each prompt shows exemplars of one island, and its answers live there, so islands explore apart. Now
and then the worse half starts again from the best of the better half. Source: FunSearch
(Romera-Paredes et al., Nature 2023, "Program database"). Table 5 of the paper has islands and says
neither how many nor when they are reset.

Nothing is kept between calls: islands are computed from the history, so a run that goes on after a
kill has the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import TypeVar

from cudal1.record import content_id
from cudal1.selection.exemplar import Birth

B = TypeVar("B", bound=Birth)
_Population = dict[str, B]
"""Members of one island, by candidate."""


def islands(
    history: Iterable[B], *, num_islands: int, reset_every: int, at_round: int
) -> list[tuple[B, ...]]:
    """Return each island's members at the start of round `at_round`, in the order of births.

    A success without an island (a seed, or the answer to a plain prompt) goes to the smallest
    island, the first of equals, unless its source lives already. Those of one round take turns in
    the order of their content ids. FunSearch puts its one seed on every island. Ours has many
    seeds, and the reference, which every prompt shows, is on all islands. The same source found on
    two islands lives on both.

    Args:
        history: all successes of one problem, in any order; a success that is found again is there
            again.
        num_islands: number of islands, of which some may be empty.
        reset_every: rounds. At the start of each that is a multiple, the `num_islands // 2` islands
            with the worst best members are emptied. The worst starts anew with the best member of
            the best island, the next worst with that of the next best.
        at_round: successes born in this round or later do not exist yet.
    """
    births = sorted(
        (e for e in history if e.born is None or e.born < at_round),
        key=lambda e: (_birth(e), e.island is None, e.candidate_id, e.island or 0),
    )
    found: list[_Population[B]] = [{} for _ in range(num_islands)]
    next_birth = 0
    for reset in range(reset_every, at_round + 1, reset_every):
        while next_birth < len(births) and _birth(births[next_birth]) < reset:
            _settle(births[next_birth], found)
            next_birth += 1
        _reset(found, reset)
    for exemplar in births[next_birth:]:
        _settle(exemplar, found)
    return [tuple(population.values()) for population in found]


def _birth(exemplar: Birth) -> float:
    return float("-inf") if exemplar.born is None else exemplar.born


def _settle(exemplar: B, found: list[_Population[B]]) -> None:
    home = exemplar.island
    if home is None or home >= len(found):
        if any(exemplar.candidate_id in population for population in found):
            return
        home = min(range(len(found)), key=lambda island: len(found[island]))
    found[home].setdefault(exemplar.candidate_id, exemplar)


def _reset(found: list[_Population[B]], at_round: int) -> None:
    """Empty the worse half and seed it; among equals, the round's number draws the worse."""
    worst_first = sorted(
        range(len(found)),
        key=lambda island: (_best_score(found[island]), content_id(str(at_round), str(island))),
    )
    half = len(found) // 2
    survivors = [found[island] for island in reversed(worst_first[half:]) if found[island]]
    founders = [max(s.values(), key=lambda e: (e.score, e.candidate_id)) for s in survivors]
    for island, founder in zip(worst_first[:half], cycle(founders), strict=False):
        found[island] = {founder.candidate_id: founder}


def _best_score(population: Mapping[str, Birth]) -> float:
    return max((exemplar.score for exemplar in population.values()), default=-1.0)
