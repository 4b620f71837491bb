"""Buckets of scored variants, and how exemplars for a contrastive prompt are drawn from them.

Source: paper 2.4.2 and 2.4.3, equation 1. What the paper leaves open (fewer than two buckets,
bucket width, temperature, order, capacity) is a parameter or said in a docstring.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import Field

from cudal1.record import Record


class Exemplar(Record):
    """An earlier candidate with its score, fit to be shown in a prompt."""

    candidate_id: str
    source: str
    score: float = Field(ge=0)
    """Certified speedup."""


class Bucket(Record):
    """The exemplars of one problem whose scores fall in `[low, low + width)`."""

    low: float
    exemplars: tuple[Exemplar, ...] = Field(min_length=1)

    @property
    def mean_score(self) -> float:
        """Mean score of the members."""
        return sum(exemplar.score for exemplar in self.exemplars) / len(self.exemplars)


class Sampling(StrEnum):
    """How exemplars are chosen (paper table 5)."""

    NONE = "none"
    """No exemplars: plain GRPO."""
    RANDOM = "random"
    """Uniformly from all distinct sources of the problem."""
    BUCKET = "bucket"
    """Equation 1."""


def buckets(exemplars: Iterable[Exemplar], *, width: float) -> list[Bucket]:
    """Non-empty buckets in rising order of score; equal sources count once.

    Bucket k covers `[k * width, (k + 1) * width)` up to a score of 2; above that buckets widen in
    proportion to the score (a difference of 0.1 means nothing at 50).
    """
    distinct = {exemplar.candidate_id: exemplar for exemplar in exemplars}
    members: dict[float, list[Exemplar]] = {}
    for exemplar in sorted(distinct.values(), key=lambda e: (e.score, e.candidate_id)):
        members.setdefault(_bucket_low(exemplar.score, width), []).append(exemplar)
    return [Bucket(low=low, exemplars=tuple(group)) for low, group in sorted(members.items())]


def _bucket_low(score: float, width: float) -> float:
    if score < 2:
        return math.floor(score / width + 1e-9) * width
    step = math.log1p(width / 2)
    return 2 * math.exp(math.floor(math.log(score / 2) / step + 1e-9) * step)


def bucket_probabilities(mean_scores: Sequence[float], *, temperature: float) -> list[float]:
    """Equation 1: softmax of the mean scores over `temperature`.

    The paper subtracts the mean of the scores; that cancels, so the largest is subtracted here,
    which also cannot overflow.
    """
    top = max(mean_scores)
    weights = [math.exp((score - top) / temperature) for score in mean_scores]
    total = sum(weights)
    return [weight / total for weight in weights]


def choose(
    exemplars: Sequence[Exemplar],
    *,
    sampling: Sampling,
    count: int,
    width: float,
    temperature: float,
    rng: random.Random,
) -> tuple[Exemplar, ...]:
    """Up to `count` exemplars for one prompt, in rising order of score.

    `bucket` draws distinct buckets one after another without replacement, by equation 1 over those
    that remain, and one member of each uniformly. Fewer buckets than `count` give fewer exemplars;
    none gives an empty tuple, which the caller renders as a plain prompt.
    """
    if sampling is Sampling.NONE:
        return ()
    if sampling is Sampling.RANDOM:
        distinct = list({exemplar.candidate_id: exemplar for exemplar in exemplars}.values())
        chosen = rng.sample(distinct, min(count, len(distinct)))
        return tuple(sorted(chosen, key=lambda e: (e.score, e.candidate_id)))
    remaining = buckets(exemplars, width=width)
    chosen = []
    while remaining and len(chosen) < count:
        odds = bucket_probabilities([b.mean_score for b in remaining], temperature=temperature)
        (bucket,) = rng.choices(remaining, weights=odds)
        remaining.remove(bucket)
        chosen.append(rng.choice(bucket.exemplars))
    return tuple(sorted(chosen, key=lambda e: (e.score, e.candidate_id)))
