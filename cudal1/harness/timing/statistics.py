"""Turn quads of bursts into an estimate, a certified bound, an interval, and the time to stop.

All functions are pure; the paper's own rule is `fixed_window`. A quad is ABBA or BAAB (A reference,
B candidate). Its log-ratio is positive when the candidate is faster. The order is drawn from the
judge's private generator. So under equal speeds the sign of a log-ratio is a fair coin, whatever
the noise is like.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median, variance

from cudal1.protocol import EvalProtocol

LEAST = 0.01
"""Least reward of a correct candidate."""
NEAR = 1.25
"""Factor by which an estimate may exceed a certified gain that suffices after a long time."""
AGREEING_BUCKETS = 6 / 7
"""Share of buckets that must lie on the same side of 1 as the estimate."""


def log_ratio(reference_us: Sequence[float], candidate_us: Sequence[float]) -> float:
    """Return the log-ratio of one quad, from the smaller of each role's two times.

    Interference only ever adds time, and on a CPU it comes in slices as long as a burst. With the
    smaller time a quad is spoilt only when both bursts of one role are hit. Swapping the roles
    still swaps the sign, which is all that the coin argument needs.
    """
    return math.log(min(reference_us)) - math.log(min(candidate_us))


@lru_cache(maxsize=100_000)
def evidence(num_wins: int, num_quads: int) -> float:
    """Return how many times likelier the wins are under "better than even" than by a fair coin.

    The evidence is the mixture martingale with a uniform prior on [1/2, 1]. It is an e-value at
    every moment, so testing after each quad costs nothing. In closed form it is `2^(n+1) B(w+1,
    n-w+1) P(Bin(n+1, 1/2) <= w)`.
    """
    n, w = num_quads, num_wins
    upper = sum(math.comb(n + 1, k) for k in range(w + 1))  # of 2^(n+1): P(Bin <= w)
    return upper / ((n + 1) * math.comb(n, w))


@lru_cache(maxsize=10_000)
def wins_needed(num_quads: int, *, alpha: float) -> int | None:
    """Return the fewest wins of so many quads that certify; None when all of them do not."""
    if evidence(num_quads, num_quads) < 1 / alpha:
        return None
    low, high = 0, num_quads
    while low < high:  # evidence rises with the wins
        middle = (low + high) // 2
        if evidence(middle, num_quads) >= 1 / alpha:
            high = middle
        else:
            low = middle + 1
    return low


def lower_bound(ratios: Sequence[float], *, alpha: float) -> float:
    """Return the largest speedup with evidence that ever passed 1/alpha, or 0 when none did.

    "Faster than L" are nested claims: a series that passes for one L has passed for all below. So
    each is tested at alpha, every number is tested, and the chance of any false one is alpha.
    """
    lows = _ever_won(ratios, alpha=alpha)
    return math.exp(max(lows)) if lows else 0.0


def upper_bound(ratios: Sequence[float], *, alpha: float) -> float:
    """Return the smallest speedup with evidence for "slower" that ever passed 1/alpha, or infinity.

    It is the lower bound with the roles swapped.
    """
    swapped = lower_bound([-ratio for ratio in ratios], alpha=alpha)
    return 1 / swapped if swapped else math.inf


def _ever_won(ratios: Sequence[float], *, alpha: float) -> list[float]:
    """Return, after each quad once enough have come, the threshold below which enough were won."""
    found: list[float] = []
    for count in range(1, len(ratios) + 1):
        needed = wins_needed(count, alpha=alpha)
        if needed is not None:
            found.append(sorted(ratios[:count])[count - needed])
    return found


def bucket_medians(ratios: Sequence[float], *, num_buckets: int) -> tuple[float, ...]:
    """Return the median speedup of each of up to `num_buckets` buckets in time (paper 2.4.4)."""
    count = min(num_buckets, len(ratios))
    edges = [round(i * len(ratios) / count) for i in range(count + 1)]
    return tuple(math.exp(median(ratios[first:last])) for first, last in itertools.pairwise(edges))


def estimate(ratios: Sequence[float], *, num_buckets: int) -> float:
    """Return the median of the bucket medians (paper equation 3)."""
    return median(bucket_medians(ratios, num_buckets=num_buckets))


def bucket_variance(medians: Sequence[float]) -> float:
    """Return the sample variance of the bucket medians, as the paper has it."""
    return variance(medians) if len(medians) > 1 else 0.0


def relative_variance(medians: Sequence[float]) -> float:
    """Return the sample variance of the bucket medians over the square of their median.

    The paper's gate of 0.005 is absolute, which at a speedup of 10 would demand 0.7 % spread.
    Scaled, it means the same 7 % everywhere.
    """
    return bucket_variance(medians) / median(medians) ** 2


def is_stable(ratios: Sequence[float], protocol: EvalProtocol) -> bool:
    """Return whether the variance gate holds and six of seven buckets agree on a claim's direction.

    A claim within the dead zone needs no direction.
    """
    medians = bucket_medians(ratios, num_buckets=protocol.num_buckets)
    if relative_variance(medians) > protocol.max_bucket_variance:
        return False
    centre = median(medians)
    if 1 / protocol.dead_zone < centre < protocol.dead_zone:
        return True
    agreeing = sum((value > 1) == (centre > 1) for value in medians)
    return agreeing >= AGREEING_BUCKETS * len(medians) - 1e-9


def slow_level(protocol: EvalProtocol) -> float:
    """Return the speedup below which a candidate is called slower.

    Two processes that run the same code differ by as much as `dead_zone` and `confirm_below` say. A
    gain within these is measured again. A loss within these is not worth that, so it is none.
    """
    return 1 / max(protocol.dead_zone, protocol.confirm_below)


def is_done(ratios: Sequence[float], protocol: EvalProtocol, *, is_long: bool = False) -> bool:
    """Return whether more quads are not worth their time.

    After a gain was certified, measuring ends when `certify_within` more than that is out of reach,
    and what was reached is safe. Before a gain is certified, measuring ends when two things are
    settled: that there is no gain that earns anything, and whether there is a loss. What is true is
    given up with probability `give_up_alpha` at most.

    With `is_long`, measuring has taken so long that a certified gain suffices if the estimate is
    not far above it. If no gain is to be expected, as many quads suffice as certify a clear loss.
    """
    if len(ratios) >= protocol.max_quads:
        return True
    reached = _reached(ratios, protocol)
    if reached < protocol.dead_zone:
        may_end = is_long and len(ratios) >= protocol.min_quads
        return is_given_up(ratios, protocol) and (may_end or _is_loss_settled(ratios, protocol))
    following = reached * (1 + protocol.certify_within)
    may_rise = reached < protocol.max_claim and not _is_out_of_reach(ratios, following, protocol)
    if may_rise:
        centre = estimate(ratios, num_buckets=protocol.num_buckets)
        if not is_long or centre > NEAR * reached:
            return False
    # while the estimate is below the bound, a few quads more may lift it
    return reading(ratios, protocol) >= conservative(reached)


def is_given_up(ratios: Sequence[float], protocol: EvalProtocol) -> bool:
    """Return whether no gain is expected: further quads may only show a loss."""
    return _reached(ratios, protocol) < protocol.dead_zone and _is_out_of_reach(
        ratios, protocol.dead_zone, protocol
    )


def _reached(ratios: Sequence[float], protocol: EvalProtocol) -> float:
    """Return the speedup that is certified so far; 0 before enough quads have come."""
    if len(ratios) < protocol.min_quads:
        return 0.0
    return min(lower_bound(ratios, alpha=protocol.alpha), protocol.max_claim)


def _is_loss_settled(ratios: Sequence[float], protocol: EvalProtocol) -> bool:
    """Return whether the candidate is certified to be slower, or is not expected to be."""
    level, swapped = slow_level(protocol), [-ratio for ratio in ratios]
    is_certified = upper_bound(ratios, alpha=protocol.alpha) <= level
    return is_certified or _is_out_of_reach(swapped, 1 / level, protocol)


def _is_out_of_reach(ratios: Sequence[float], level: float, protocol: EvalProtocol) -> bool:
    """Return whether the speedup `level` is refuted at `give_up_alpha`, or beyond certifying.

    It is beyond certifying when not even winning every quad that is left would do (docs/timing.md):
    evidence rises with each win.
    """
    count, threshold = len(ratios), math.log(level)
    wins = sum(ratio > threshold for ratio in ratios)
    losses = sum(ratio < threshold for ratio in ratios)
    if evidence(losses, count) >= 1 / protocol.give_up_alpha:
        return True
    left = max(0, protocol.max_quads - count)  # more quads come while families are missing
    most = evidence(wins + left, count + left)
    return most < 1 / protocol.alpha


def conservative(speedup: float) -> float:
    """Round to two decimals, toward 1.00: 1.118 is 1.11 and 0.992 is 1.00 (paper 2.4.4)."""
    if math.isinf(speedup):
        return speedup
    hundredths = speedup * 100
    rounded = math.floor(hundredths + 1e-9) if speedup > 1 else math.ceil(hundredths - 1e-9)
    return rounded / 100


def reading(ratios: Sequence[float], protocol: EvalProtocol) -> float:
    """Return the certified speedup that a finished series of quads earns.

    A gain is the lower bound and a loss the upper bound, neither beyond the estimate. Each is wrong
    with probability `alpha` at most, however noisy the quads are. Between them the speedup is 1,
    for no difference is shown.
    """
    centre = estimate(ratios, num_buckets=protocol.num_buckets)
    lower, upper = interval(ratios, alpha=protocol.alpha)
    if lower is None or upper is None:
        return 1.0
    gain, loss = min(lower, centre, protocol.max_claim), max(upper, centre)
    if gain >= protocol.dead_zone:
        return conservative(gain)
    return max(LEAST, conservative(loss)) if loss <= slow_level(protocol) else 1.0


def interval(ratios: Sequence[float], *, alpha: float) -> tuple[float | None, float | None]:
    """Return bounds on the median speedup, each wrong with probability `alpha` at most.

    None stands for no bound. The upper bound is `lower_bound` with losses for wins. Both hold at
    every moment, so it does not matter when measuring stopped. They hold together with probability
    1 - 2 alpha. A ratio that drifts may refute every value. Then the bounds have crossed, and are
    given in their order.
    """
    lows = _ever_won(ratios, alpha=alpha)
    if not lows:
        return None, None
    highs = [-low for low in _ever_won([-ratio for ratio in ratios], alpha=alpha)]
    lower, upper = sorted((max(lows), min(highs)))
    return math.exp(lower), math.exp(upper)
