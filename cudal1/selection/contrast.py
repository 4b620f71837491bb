"""The choice of a prompt's exemplars, by chance or by score: buckets, islands, any.

Source: paper 2.4.2 and 2.4.3, equation 1. Details that the paper leaves open (fewer than two
buckets, bucket width, temperature, order, capacity) are parameters or stated in a docstring.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from statistics import pstdev
from typing import Generic, TypeVar

from pydantic import Field

from cudal1.record import Record
from cudal1.selection.exemplar import Birth
from cudal1.selection.islands import islands

B = TypeVar("B", bound=Birth)
"""Exemplars, or their births alone: the choice needs no source."""


class TauUnit(StrEnum):
    """The unit of equation 1's temperature."""

    SPEEDUP = "speedup"
    """Speedups, as in the paper: with gains of 10 the slow buckets are never drawn."""
    SPREAD = "spread"
    """The standard deviation of the mean scores to choose from."""


class ContrastParams(Record):
    """The settings for choosing exemplars, which several sections of params.yaml have."""

    num_exemplars: int = Field(ge=1)
    """Number of exemplars, N (paper 2.4.3: 2)."""
    num_failures: int = Field(ge=0)
    """Number of the problem's failed programs that stand behind the exemplars, each with its
    reason (the paper: 0): the newest, without cheats. Plain prompts show none."""
    bucket_width: float = Field(gt=0)
    """Width of a score bucket below a speedup of 2 (the paper's figure shows 0.1)."""
    bucket_capacity: int = Field(ge=1)
    """Number of sources that a bucket, or an island's cluster, can hold (the paper names no
    bound)."""
    tau: float = Field(gt=0)
    """Temperature of equation 1."""
    tau_unit: TauUnit
    """The unit of `tau`."""
    num_islands: int = Field(ge=1)
    """Number of populations that do not see each other, under `sampling: island` (FunSearch:
    10)."""
    island_reset_every: int = Field(ge=1)
    """Rounds or training steps after which the worse half of the islands starts anew."""


class Bucket(Record, Generic[B]):
    """The exemplars of one problem with scores in `[low, low + width)`."""

    low: float
    exemplars: tuple[B, ...] = Field(min_length=1)

    @property
    def mean_score(self) -> float:
        """The mean score of the members."""
        return sum(exemplar.score for exemplar in self.exemplars) / len(self.exemplars)


class Sampling(StrEnum):
    """The method of choosing exemplars (paper table 5)."""

    NONE = "none"
    """No exemplars: plain GRPO."""
    RANDOM = "random"
    """Uniformly from all distinct sources of the problem."""
    BUCKET = "bucket"
    """By score, with equation 1."""
    ISLAND = "island"
    """From one of several populations that do not see each other (`cudal1.selection.islands`)."""


class Choice(Record, Generic[B]):
    """The exemplars that one prompt shows."""

    exemplars: tuple[B, ...] = ()
    """The exemplars in rising order of score; none: a plain prompt."""
    island: int | None = None
    """Island of the exemplars, under `Sampling.ISLAND`; the prompt's answers live there."""


def buckets(exemplars: Iterable[B], *, width: float, capacity: int) -> list[Bucket[B]]:
    """Return non-empty buckets in rising order of score; equal sources count once.

    Bucket k covers `[k * width, (k + 1) * width)` up to a score of 2. Above that, buckets widen in
    proportion to the score (a difference of 0.1 means nothing at 50). A bucket that overflows keeps
    the members that were born last: all are equally fast, and the policy has moved on from the old.
    """
    return _grouped(exemplars, lambda e: _bucket_low(e.score, width), capacity=capacity)


def _grouped(
    exemplars: Iterable[B], low_of: Callable[[B], float], *, capacity: int
) -> list[Bucket[B]]:
    members: dict[float, list[B]] = {}
    for exemplar in _distinct(exemplars):
        members.setdefault(low_of(exemplar), []).append(exemplar)
    found: list[Bucket[B]] = []
    for low, group in sorted(members.items()):
        latest = sorted(group, key=_youth)[-capacity:]
        in_order = sorted(latest, key=lambda e: (e.score, e.candidate_id))
        found.append(Bucket(low=low, exemplars=tuple(in_order)))
    return found


def _youth(exemplar: Birth) -> tuple[float, str]:
    """Return a sort key that rises with the birth; in one step, content ids decide."""
    return (-1 if exemplar.born is None else exemplar.born, exemplar.candidate_id)


def _bucket_low(score: float, width: float) -> float:
    if score < 2:
        return math.floor(score / width + 1e-9) * width
    step = math.log1p(width / 2)
    return 2 * math.exp(math.floor(math.log(score / 2) / step + 1e-9) * step)


def bucket_probabilities(
    mean_scores: Sequence[float], *, temperature: float, unit: TauUnit = TauUnit.SPEEDUP
) -> list[float]:
    """Return equation 1: the softmax of the mean scores over `temperature`, in the given unit.

    The paper subtracts the mean of the scores. That cancels, so the largest is subtracted here,
    which also cannot overflow.
    """
    top = max(mean_scores)
    if unit is TauUnit.SPREAD:
        temperature *= pstdev(mean_scores) or 1.0
    weights = [math.exp((score - top) / temperature) for score in mean_scores]
    total = sum(weights)
    return [weight / total for weight in weights]


def choose(
    history: Iterable[B],
    knobs: ContrastParams,
    *,
    sampling: Sampling,
    at_round: int,
    rng: random.Random,
) -> Choice[B]:
    """Return up to `num_exemplars` of a problem's successes for one prompt.

    `bucket` draws distinct buckets one after another without replacement, by equation 1 over those
    that remain, and one member of each uniformly.

    `island` draws an island uniformly, then does the same with its members. Their buckets are those
    of equal score, like FunSearch's clusters (which it draws with a temperature that falls; ours is
    `tau`). An island without members founds itself: its prompt is plain, like the first one of
    every island.

    Fewer buckets than asked for give fewer exemplars: two of one bucket differ in nothing that was
    measured, and the reference is in every prompt. No bucket gives a plain prompt.

    Args:
        history: successes in any order; a source may be in it several times.
        knobs: settings; those of another kind of sampling are ignored.
        sampling: the method of choosing.
        at_round: successes born in this round or later are not shown: a step that is done again
            after a kill makes the same choice.
        rng: the source of random numbers.
    """
    known = [e for e in history if e.born is None or e.born < at_round]
    match sampling:
        case Sampling.NONE:
            return Choice()
        case Sampling.RANDOM:
            distinct = _distinct(known)
            return _choice(rng.sample(distinct, min(knobs.num_exemplars, len(distinct))))
        case Sampling.BUCKET:
            among = buckets(known, width=knobs.bucket_width, capacity=knobs.bucket_capacity)
            return _choice(_drawn(among, knobs, rng=rng))
        case Sampling.ISLAND:
            island = rng.randrange(knobs.num_islands)
            members = islands(
                known,
                num_islands=knobs.num_islands,
                reset_every=knobs.island_reset_every,
                at_round=at_round,
            )[island]
            clusters = _grouped(members, lambda e: e.score, capacity=knobs.bucket_capacity)
            return _choice(_drawn(clusters, knobs, rng=rng), island=island)


def _drawn(among: Sequence[Bucket[B]], knobs: ContrastParams, *, rng: random.Random) -> list[B]:
    remaining = list(among)
    drawn: list[B] = []
    while remaining and len(drawn) < knobs.num_exemplars:
        odds = bucket_probabilities(
            [b.mean_score for b in remaining], temperature=knobs.tau, unit=knobs.tau_unit
        )
        (bucket,) = rng.choices(remaining, weights=odds)
        remaining.remove(bucket)
        drawn.append(rng.choice(bucket.exemplars))
    return drawn


def _distinct(exemplars: Iterable[B]) -> list[B]:
    """Return each source once, with its first birth, in the order of content ids."""
    found: dict[str, B] = {}
    for exemplar in sorted(exemplars, key=_youth):
        found.setdefault(exemplar.candidate_id, exemplar)
    return [found[key] for key in sorted(found)]


def _choice(exemplars: Iterable[B], *, island: int | None = None) -> Choice[B]:
    shown = sorted(exemplars, key=lambda e: (e.score, e.candidate_id))
    return Choice(exemplars=tuple(shown), island=island)
