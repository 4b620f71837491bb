"""The stop rule certifies what the evidence supports, and noise alone certifies nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import median, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.timing import statistics
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass, Rule

PROTOCOL = EvalProtocol(
    correctness_stages=(3, 16),
    contract=Contract.KERNELBENCH,
    mode=Mode.CONSTRUCTED,
    precision=PrecisionClass.STRICT,
    timing=True,
    rule=Rule.CERTIFIED,
    window_s=None,
    burst_us=3000,
    max_burst_calls=24,
    ring_bytes=1 << 20,
    min_quads=9,
    max_quads=24,
    alpha=0.01,
    certify_within=0.1,
    max_claim=10.0,
    dead_zone=1.02,
    num_buckets=7,
    max_bucket_variance=0.04,
    confirm_above=3.0,
    confirm_below=1.0,
    give_up_alpha=0.1,
    confirm_above_record=2.0,
    confirm_within=0.25,
    slow_factor=1000,
    start_timeout_s=20,
    build_timeout_s=60,
    call_timeout_s=2,
    memory_bytes=1 << 30,
    seed=7,
)
"""The shipped rule, with a smaller largest claim."""

GPU_PROTOCOL = PROTOCOL.model_copy(
    update={
        "max_quads": 60,
        "dead_zone": 1.01,
        "max_bucket_variance": 0.005,
        "certify_within": 0.05,
    }
)
"""The rule of a quieter device: finer claims, more patience."""

LEVELS = (0.5, 1.0, 1.01, 1.1, 1.5, 3.0, 10.0)
LOG_RATIOS = st.floats(-3, 3)
SERIES = st.lists(LOG_RATIOS, min_size=1, max_size=PROTOCOL.max_quads)
NEAR_SERIES = st.tuples(
    st.floats(-1, 2), st.lists(st.floats(-0.1, 0.1), min_size=9, max_size=24)
).map(lambda pair: [pair[0] + noise for noise in pair[1]])
"""Series of quads that mostly agree, as gates let them through."""


def _run(draw: Callable[[], float], protocol: EvalProtocol = PROTOCOL) -> list[float]:
    """Return quads as `examination` takes them, stopped by the rule itself."""
    ratios: list[float] = []
    while not (ratios and statistics.is_done(ratios, protocol)):
        ratios.append(draw())
    return ratios


# --- evidence ------------------------------------------------------------------------------------


def test_evidence_of_no_quads_is_one() -> None:
    assert statistics.evidence(0, 0) == 1


@given(st.integers(0, 200), st.data())
def test_evidence_is_a_martingale_under_a_fair_coin(num_quads: int, data: st.DataObject) -> None:
    wins = data.draw(st.integers(0, num_quads))
    won = statistics.evidence(wins + 1, num_quads + 1)
    lost = statistics.evidence(wins, num_quads + 1)
    assert (won + lost) / 2 == pytest.approx(statistics.evidence(wins, num_quads))


@given(st.integers(0, 60), st.data())
def test_evidence_is_the_likelihood_averaged_over_better_than_even(
    num_quads: int, data: st.DataObject
) -> None:
    wins = data.draw(st.integers(0, num_quads))
    steps = 4000
    points = (0.5 + (i + 0.5) / steps / 2 for i in range(steps))
    total = sum(2**num_quads * p**wins * (1 - p) ** (num_quads - wins) for p in points)
    assert statistics.evidence(wins, num_quads) == pytest.approx(total / steps, rel=1e-3)


@pytest.mark.parametrize("num_quads", [1, 5, 14])
def test_evidence_has_expectation_one_under_a_fair_coin(num_quads: int) -> None:
    # all sequences of wins and losses are equally likely
    total = sum(
        math.comb(num_quads, wins) * statistics.evidence(wins, num_quads)
        for wins in range(num_quads + 1)
    )
    assert total / 2**num_quads == pytest.approx(1)


@given(st.integers(1, 300), st.data())
def test_evidence_rises_with_every_win_and_falls_with_every_loss(
    num_quads: int, data: st.DataObject
) -> None:
    wins = data.draw(st.integers(0, num_quads - 1))
    here = statistics.evidence(wins, num_quads)
    assert statistics.evidence(wins + 1, num_quads) > here
    assert statistics.evidence(wins + 1, num_quads + 1) > here
    assert statistics.evidence(wins, num_quads + 1) < here


@pytest.mark.slow
@given(st.integers(1, 300), st.sampled_from([0.1, 0.01, 0.001]))
def test_the_wins_needed_are_the_fewest_that_certify(num_quads: int, alpha: float) -> None:
    enough = [
        wins for wins in range(num_quads + 1) if statistics.evidence(wins, num_quads) >= 1 / alpha
    ]
    needed = statistics.wins_needed(num_quads, alpha=alpha)
    assert needed == (min(enough) if enough else None)
    if needed is not None:
        assert needed > num_quads / 2


@given(st.one_of(SERIES, NEAR_SERIES))
def test_a_level_that_was_never_won_more_than_half_of_the_time_is_not_certified(
    ratios: list[float],
) -> None:
    certified = statistics.lower_bound(ratios, alpha=0.3)
    for level in LEVELS:
        wins = [ratio > math.log(level) for ratio in ratios]
        if all(2 * sum(wins[:n]) <= n for n in range(1, len(wins) + 1)):
            assert certified <= level * (1 + 1e-12)


@given(SERIES, st.floats(0.5, 2))
def test_faster_quads_and_nothing_else_never_certify_less(
    ratios: list[float], factor: float
) -> None:
    slower, faster = sorted((1.0, factor))
    before, after = (
        statistics.lower_bound([r + math.log(f) for r in ratios], alpha=0.01)
        for f in (slower, faster)
    )
    assert before <= after


@given(SERIES, st.permutations(range(PROTOCOL.max_quads)))
def test_the_evidence_of_a_whole_series_does_not_depend_on_its_order(
    ratios: list[float], order: list[int]
) -> None:
    # at the last quad alone: in one order a level may be passed earlier
    shuffled = [ratios[i] for i in order if i < len(ratios)]
    for level in LEVELS:
        wins, again = (sum(r > math.log(level) for r in series) for series in (ratios, shuffled))
        if statistics.evidence(wins, len(ratios)) >= 100:
            assert statistics.lower_bound(shuffled, alpha=0.01) >= level * (1 - 1e-12)
        assert wins == again


@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.001])
def test_peeking_after_every_quad_stays_within_alpha(alpha: float) -> None:
    # exact: the probability of each number of wins among runs that have not certified yet
    alive, certified = {0: 1.0}, 0.0
    for count in range(1, 201):
        after: dict[int, float] = {}
        for wins, probability in alive.items():
            for now in (wins, wins + 1):
                after[now] = after.get(now, 0.0) + probability / 2
        passed = [w for w in after if statistics.evidence(w, count) >= 1 / alpha]
        certified += sum(after.pop(wins) for wins in passed)
        alive = after
    assert 0 < certified <= alpha


@given(st.lists(LOG_RATIOS, min_size=1, max_size=8))
def test_eight_quads_never_certify_at_one_per_cent(ratios: list[float]) -> None:
    assert statistics.lower_bound(ratios, alpha=0.01) == 0
    assert statistics.reading(ratios, PROTOCOL) <= 1


def test_nine_quads_certify_the_smallest_of_them_at_one_per_cent() -> None:
    ratios = [math.log(1.6)] * 8 + [math.log(1.5)]
    assert statistics.lower_bound(ratios, alpha=0.01) == pytest.approx(1.5)


@given(SERIES, st.lists(LOG_RATIOS, max_size=10))
def test_further_quads_never_take_back_a_certificate(
    ratios: list[float], further: list[float]
) -> None:
    before = statistics.lower_bound(ratios, alpha=0.01)
    assert statistics.lower_bound(ratios + further, alpha=0.01) >= before


@given(SERIES)
def test_a_smaller_alpha_never_certifies_more(ratios: list[float]) -> None:
    strict, lax = (statistics.lower_bound(ratios, alpha=a) for a in (0.001, 0.05))
    assert strict <= lax


# --- the null test -------------------------------------------------------------------------------


def _noisy_quads(rng: random.Random, *, sigma: float, spikes: float) -> Callable[[], float]:
    """Return quads of two equal programs on a machine that drifts, remembers and stutters."""
    state, drift = [0.0], rng.gauss(0, sigma / 10)

    def burst() -> float:
        state[0] = 0.7 * state[0] + rng.gauss(0, sigma)
        spike = rng.expovariate(1) if rng.random() < spikes else 0.0
        return math.exp(state[0]) * (1 + spike)

    def quad() -> float:
        times = [burst() * math.exp(drift * i) for i in range(4)]
        pairs = (times[0], times[3]), (times[1], times[2])
        outer_is_reference = rng.random() < 0.5
        reference, candidate = pairs if outer_is_reference else pairs[::-1]
        return statistics.log_ratio(reference, candidate)

    return quad


@pytest.mark.parametrize("protocol", [PROTOCOL, GPU_PROTOCOL])
@pytest.mark.parametrize(("sigma", "spikes"), [(0.003, 0.0), (0.03, 0.05), (0.15, 0.2)])
def test_a_program_against_itself_is_hardly_ever_certified(
    sigma: float, spikes: float, protocol: EvalProtocol
) -> None:
    rng = random.Random(f"{sigma} {spikes}")
    num_runs = 1000
    gains, faster = 0, 0
    for _ in range(num_runs):
        ratios = _run(_noisy_quads(rng, sigma=sigma, spikes=spikes), protocol)
        gains += statistics.reading(ratios, protocol) > 1
        faster += statistics.lower_bound(ratios, alpha=protocol.alpha) > 1
    assert gains <= faster <= protocol.alpha * num_runs


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [PROTOCOL, GPU_PROTOCOL])
@pytest.mark.parametrize(("sigma", "spikes"), [(0.003, 0.0), (0.03, 0.05), (0.15, 0.2), (0.3, 0.4)])
def test_a_program_against_itself_is_hardly_ever_called_slower(
    sigma: float, spikes: float, protocol: EvalProtocol
) -> None:
    rng = random.Random(f"slow {sigma} {spikes}")
    num_runs = 1000
    losses = 0
    for _ in range(num_runs):
        ratios = _run(_noisy_quads(rng, sigma=sigma, spikes=spikes), protocol)
        losses += statistics.reading(ratios, protocol) < 1
    assert losses <= protocol.alpha * num_runs


@pytest.mark.parametrize("speedup", [0.3, 0.6])
def test_a_much_slower_program_is_called_slower_on_a_busy_machine_too(speedup: float) -> None:
    rng, num_runs = random.Random(speedup), 200
    found = 0
    for _ in range(num_runs):
        quads = _noisy_quads(rng, sigma=0.15, spikes=0.2)
        ratios = _run(lambda quads=quads: quads() + math.log(speedup))
        found += speedup <= statistics.reading(ratios, PROTOCOL) < 1
    assert found >= 0.9 * num_runs


def test_a_clear_loss_is_measured_only_until_it_is_certified() -> None:
    ratios = _run(lambda: math.log(0.3))
    assert len(ratios) == PROTOCOL.min_quads
    assert statistics.reading(ratios, PROTOCOL) == 0.3


def test_two_per_cent_on_a_quiet_device_are_certified_at_one() -> None:
    rng, num_runs = random.Random(5), 200
    found = 0
    for _ in range(num_runs):
        quads = _noisy_quads(rng, sigma=0.003, spikes=0.01)
        ratios = _run(lambda quads=quads: quads() + math.log(1.02), GPU_PROTOCOL)
        found += statistics.reading(ratios, GPU_PROTOCOL) >= 1.01
    assert found >= 0.9 * num_runs


@pytest.mark.parametrize("speedup", [1.3, 2.2, 6.0])
def test_a_faster_program_on_a_quiet_machine_is_certified_below_its_speedup(speedup: float) -> None:
    rng = random.Random(speedup)
    quads = _noisy_quads(rng, sigma=0.01, spikes=0.02)
    ratios = _run(lambda: quads() + math.log(speedup))
    assert max(1.0, speedup * 0.8) < statistics.reading(ratios, PROTOCOL) <= speedup * 1.02


# --- the stop rule -------------------------------------------------------------------------------


@given(st.lists(LOG_RATIOS, min_size=PROTOCOL.max_quads, max_size=PROTOCOL.max_quads))
def test_measuring_ends_within_the_largest_number_of_quads(ratios: list[float]) -> None:
    remaining = iter(ratios)
    assert len(_run(lambda: next(remaining))) <= PROTOCOL.max_quads


@given(st.lists(LOG_RATIOS, min_size=1, max_size=PROTOCOL.min_quads - 1))
def test_no_gain_is_certified_before_the_smallest_number_of_quads(ratios: list[float]) -> None:
    assert statistics.reading(ratios, PROTOCOL) == 1.0


def test_five_quads_without_a_gain_are_enough_to_give_up() -> None:
    assert not statistics.is_done([0.0] * 4, PROTOCOL)
    assert statistics.is_done([0.0] * 5, PROTOCOL)


@given(st.lists(LOG_RATIOS, min_size=PROTOCOL.max_quads, max_size=3 * PROTOCOL.max_quads))
def test_a_level_that_is_not_certified_is_given_up_once_the_quads_are_used_up(
    ratios: list[float],
) -> None:
    """More than `max_quads` quads come while families are missing."""
    is_certified = statistics.lower_bound(ratios, alpha=PROTOCOL.alpha) >= PROTOCOL.dead_zone
    assert statistics.is_given_up(ratios, PROTOCOL) is not is_certified


def test_three_quads_without_a_gain_are_enough_on_a_gpu() -> None:
    protocol = GPU_PROTOCOL.model_copy(update={"give_up_alpha": 0.3})
    assert not statistics.is_done([0.0] * 2, protocol)
    assert statistics.is_done([0.0] * 3, protocol)


def _next_earning(ratios: list[float], protocol: EvalProtocol) -> float | None:
    reached = statistics.lower_bound(ratios, alpha=protocol.alpha)
    if reached >= protocol.max_claim:
        return None
    more = reached * (1 + protocol.certify_within)
    return more if reached >= protocol.dead_zone else protocol.dead_zone


@pytest.mark.parametrize("protocol", [PROTOCOL, GPU_PROTOCOL])
@given(st.one_of(SERIES, NEAR_SERIES), st.lists(st.floats(-3, 3), max_size=60))
def test_after_a_stop_hardly_more_could_be_certified_or_it_was_refuted(
    protocol: EvalProtocol, ratios: list[float], further: list[float]
) -> None:
    level = _next_earning(ratios, protocol)
    if level is None or not statistics.is_done(ratios, protocol):
        return
    losses = sum(ratio < math.log(level) for ratio in ratios)
    if statistics.evidence(losses, len(ratios)) < 1 / protocol.give_up_alpha:
        room = protocol.max_quads - len(ratios)
        for end in (further[:room], [3.0] * room):
            whole = ratios + end
            assert statistics.lower_bound(whole, alpha=protocol.alpha) <= level * (1 + 1e-12)


@pytest.mark.parametrize("protocol", [PROTOCOL, GPU_PROTOCOL])
@given(st.one_of(SERIES, NEAR_SERIES), st.lists(st.floats(-3, 3), max_size=60))
def test_after_a_stop_a_loss_is_certified_or_impossible_or_refuted(
    protocol: EvalProtocol, ratios: list[float], further: list[float]
) -> None:
    level = statistics.slow_level(protocol)
    is_gain = statistics.lower_bound(ratios, alpha=protocol.alpha) >= protocol.dead_zone
    is_loss = statistics.upper_bound(ratios, alpha=protocol.alpha) <= level
    if is_gain or is_loss or not statistics.is_done(ratios, protocol):
        return
    wins = sum(ratio > math.log(level) for ratio in ratios)
    if statistics.evidence(wins, len(ratios)) < 1 / protocol.give_up_alpha:
        room = protocol.max_quads - len(ratios)
        for end in (further[:room], [-3.0] * room):
            whole = ratios + end
            assert statistics.upper_bound(whole, alpha=protocol.alpha) >= level * (1 - 1e-12)


@pytest.mark.parametrize("protocol", [PROTOCOL, GPU_PROTOCOL])
def test_stopping_early_hardly_ever_costs_a_gain_that_is_true(protocol: EvalProtocol) -> None:
    rng, num_runs = random.Random(8), 400
    lost = 0
    for _ in range(num_runs):
        quads = _noisy_quads(rng, sigma=0.02, spikes=0.02)
        ratios = _run(lambda quads=quads: quads() + math.log(1.25), protocol)
        whole = ratios + [quads() + math.log(1.25) for _ in range(protocol.max_quads - len(ratios))]
        stopped, patient = (
            statistics.lower_bound(r, alpha=protocol.alpha) for r in (ratios, whole)
        )
        lost += patient >= protocol.dead_zone and stopped < protocol.dead_zone
    assert lost <= protocol.alpha * num_runs


@pytest.mark.parametrize("protocol", [PROTOCOL, GPU_PROTOCOL])
@pytest.mark.parametrize("speedup", [1.08, 1.5, 4.0])
def test_an_early_stop_seldom_certifies_much_less_than_patience_would(
    speedup: float, protocol: EvalProtocol
) -> None:
    rng, num_runs, far = random.Random(9), 200, 0
    for _ in range(num_runs):
        quads = _noisy_quads(rng, sigma=0.005, spikes=0.01)
        ratios = _run(lambda quads=quads: quads() + math.log(speedup), protocol)
        whole = ratios + [
            quads() + math.log(speedup) for _ in range(protocol.max_quads - len(ratios))
        ]
        stopped, patient = (
            statistics.lower_bound(r, alpha=protocol.alpha) for r in (ratios, whole)
        )
        far += patient > stopped * (1 + protocol.certify_within)
    assert far <= protocol.give_up_alpha * num_runs


def test_a_clear_gain_is_measured_only_until_it_is_certified() -> None:
    ratios = _run(lambda: math.log(4.9))
    assert len(ratios) == PROTOCOL.min_quads
    assert statistics.reading(ratios, PROTOCOL) == 4.9


@given(st.lists(LOG_RATIOS, min_size=PROTOCOL.min_quads, max_size=PROTOCOL.max_quads))
def test_measuring_never_ends_while_a_certified_gain_is_not_earned(ratios: list[float]) -> None:
    reached = min(statistics.lower_bound(ratios, alpha=PROTOCOL.alpha), PROTOCOL.max_claim)
    if len(ratios) < PROTOCOL.max_quads and reached >= PROTOCOL.dead_zone:
        earned = statistics.reading(ratios, PROTOCOL)
        rounded = statistics.conservative(reached)
        assert earned == rounded or not statistics.is_done(ratios, PROTOCOL)


# --- the interval --------------------------------------------------------------------------------


@given(st.one_of(SERIES, NEAR_SERIES), st.sampled_from([0.1, 0.01, 0.001]))
def test_the_bounds_equal_those_of_a_slow_search_over_every_threshold(
    ratios: list[float], alpha: float
) -> None:
    def refuted(threshold: float, sign: int) -> bool:
        wins = [sign * ratio > sign * threshold for ratio in ratios]
        return any(
            statistics.evidence(sum(wins[:n]), n) >= 1 / alpha for n in range(1, len(wins) + 1)
        )

    lows = [x for x in ratios if refuted(math.nextafter(x, -math.inf), 1)]
    highs = [x for x in ratios if refuted(math.nextafter(x, math.inf), -1)]
    found = statistics.interval(ratios, alpha=alpha)
    if not lows:
        assert found == (None, None)
    else:
        assert found == pytest.approx(sorted((math.exp(max(lows)), math.exp(min(highs)))))


@given(st.one_of(SERIES, NEAR_SERIES))
def test_the_certified_level_is_the_lower_bound_or_the_bounds_have_crossed(
    ratios: list[float],
) -> None:
    level = statistics.lower_bound(ratios, alpha=PROTOCOL.alpha)
    lower, upper = statistics.interval(ratios, alpha=PROTOCOL.alpha)
    assert (lower is None) == (level == 0)
    if level:
        assert level in (lower, upper)


@given(SERIES)
def test_swapping_the_roles_turns_the_interval_around(ratios: list[float]) -> None:
    lower, upper = statistics.interval(ratios, alpha=0.01)
    if lower is not None and upper is not None:
        swapped = statistics.interval([-ratio for ratio in ratios], alpha=0.01)
        assert swapped == pytest.approx((1 / upper, 1 / lower))


@given(SERIES, st.floats(-2, 2))
def test_the_interval_moves_with_the_speedup(ratios: list[float], by: float) -> None:
    lower, upper = statistics.interval(ratios, alpha=0.01)
    if lower is not None and upper is not None:
        moved = statistics.interval([ratio + by for ratio in ratios], alpha=0.01)
        assert moved == pytest.approx((lower * math.exp(by), upper * math.exp(by)))


@pytest.mark.parametrize("speedup", [1.0, 1.2, 1.5])
def test_each_bound_misses_the_true_speedup_no_more_often_than_alpha(speedup: float) -> None:
    """It tests the moment at which the rule stops, with a generous alpha so that misses occur."""
    rng, protocol = random.Random(speedup), PROTOCOL.model_copy(update={"alpha": 0.05})
    num_runs, below, above = 1500, 0, 0
    for _ in range(num_runs):
        quads = _noisy_quads(rng, sigma=0.03, spikes=0.05)
        ratios = _run(lambda quads=quads: quads() + math.log(speedup), protocol)
        lower, upper = statistics.interval(ratios, alpha=protocol.alpha)
        below += lower is not None and lower > speedup
        above += upper is not None and upper < speedup
    assert below + above > 0
    assert max(below, above) <= protocol.alpha * num_runs


# --- buckets, rounding, gates --------------------------------------------------------------------


@given(SERIES, st.integers(1, 9))
def test_buckets_are_consecutive_and_differ_by_at_most_one_quad(
    ratios: list[float], num_buckets: int
) -> None:
    count = min(num_buckets, len(ratios))
    sizes, start = [], 0
    for index in range(count):  # a slow form of the same rule
        end = round((index + 1) * len(ratios) / count)
        sizes.append((start, end))
        start = end
    assert start == len(ratios)
    assert max(b - a for a, b in sizes) - min(b - a for a, b in sizes) <= 1
    expected = [math.exp(median(ratios[a:b])) for a, b in sizes]
    assert statistics.bucket_medians(ratios, num_buckets=num_buckets) == pytest.approx(expected)
    found = statistics.estimate(ratios, num_buckets=num_buckets)
    assert found == pytest.approx(median(expected))


@given(
    st.lists(st.floats(0.1, 1e6), min_size=2, max_size=2),
    st.lists(st.floats(0.1, 1e6), min_size=2, max_size=2),
    st.floats(1e-3, 1e3),
)
def test_a_slower_machine_does_not_change_a_log_ratio(
    reference_us: list[float], candidate_us: list[float], factor: float
) -> None:
    here = statistics.log_ratio(reference_us, candidate_us)
    there = statistics.log_ratio(
        [t * factor for t in reference_us], [t * factor for t in candidate_us]
    )
    assert there == pytest.approx(here, abs=1e-9)
    assert statistics.log_ratio(candidate_us, reference_us) == -here


@given(SERIES, st.floats(0.1, 10))
def test_estimate_and_variance_gate_scale_with_the_speedup(
    ratios: list[float], factor: float
) -> None:
    moved = [ratio + math.log(factor) for ratio in ratios]
    here = statistics.bucket_medians(ratios, num_buckets=7)
    there = statistics.bucket_medians(moved, num_buckets=7)
    assert median(there) == pytest.approx(factor * median(here))
    assert statistics.relative_variance(there) == pytest.approx(
        statistics.relative_variance(here), abs=1e-9
    )


@given(st.floats(0.01, 1000))
def test_rounding_goes_toward_one_by_less_than_a_hundredth(speedup: float) -> None:
    rounded = statistics.conservative(speedup)
    low, high = sorted((1.0, speedup))
    assert low - 1e-9 <= rounded <= high + 1e-9
    assert abs(rounded - speedup) < 0.01 + 1e-9
    assert statistics.conservative(rounded) == rounded


def test_rounding_agrees_with_both_examples_of_the_paper() -> None:
    assert (statistics.conservative(1.118), statistics.conservative(0.992)) == (1.11, 1.00)


@given(st.one_of(SERIES, NEAR_SERIES))
def test_gains_inside_the_dead_zone_earn_nothing(ratios: list[float]) -> None:
    earned = statistics.reading(ratios, PROTOCOL)
    assert earned > 0
    assert not 1 < earned < PROTOCOL.dead_zone


@given(st.one_of(SERIES, NEAR_SERIES))
def test_a_gain_is_certified_and_no_larger_than_the_estimate(ratios: list[float]) -> None:
    earned = statistics.reading(ratios, PROTOCOL)
    if earned > 1:
        assert earned <= statistics.estimate(ratios, num_buckets=7)
        assert earned <= statistics.lower_bound(ratios, alpha=PROTOCOL.alpha) + 1e-9
        assert PROTOCOL.dead_zone <= earned <= PROTOCOL.max_claim


@given(st.one_of(SERIES, NEAR_SERIES))
def test_a_loss_is_certified_and_no_smaller_than_the_estimate(ratios: list[float]) -> None:
    earned = statistics.reading(ratios, PROTOCOL)
    if earned < 1:
        assert earned >= statistics.estimate(ratios, num_buckets=7) - 1e-9
        assert earned >= statistics.upper_bound(ratios, alpha=PROTOCOL.alpha) - 1e-9
        assert statistics.LEAST <= earned <= statistics.slow_level(PROTOCOL) + 0.01


def test_a_difference_that_two_processes_may_have_is_no_loss() -> None:
    lucky = PROTOCOL.model_copy(update={"confirm_below": 1.1})
    assert statistics.slow_level(lucky) == 1 / 1.1
    assert statistics.reading([math.log(0.92)] * 12, lucky) == 1.0
    assert statistics.reading([math.log(0.92)] * 12, PROTOCOL) == 0.92
    assert statistics.reading([math.log(0.88)] * 12, lucky) == 0.88


@given(st.lists(LOG_RATIOS, min_size=7, max_size=7), st.integers(1, 3))
def test_buckets_that_vary_too_much_are_called_unstable(
    buckets: list[float], per_bucket: int
) -> None:
    ratios = [ratio for ratio in buckets for _ in range(per_bucket)]
    medians = [math.exp(ratio) for ratio in buckets]
    spread = variance(medians) / median(medians) ** 2
    if spread > PROTOCOL.max_bucket_variance * (1 + 1e-9):
        assert not statistics.is_stable(ratios, PROTOCOL)


@pytest.mark.parametrize("gain", [2.0, 0.5])
def test_noise_removes_no_bound_that_holds_in_spite_of_it(gain: float) -> None:
    """A bound on the median holds whatever the noise is like."""
    ratios = [sign * math.log(gain) for sign in (1, 3, 1, 4, 2, 1, 5, 1, 3, 2, 4, 1)]
    assert not statistics.is_stable(ratios, PROTOCOL)
    assert statistics.reading(ratios, PROTOCOL) == gain


def test_two_dissenting_buckets_make_a_gain_unstable() -> None:
    agreeing = [math.log(1.1)] * 6 + [math.log(0.99)]
    dissenting = [math.log(1.1)] * 5 + [math.log(0.99)] * 2
    assert statistics.is_stable(agreeing, PROTOCOL)
    assert not statistics.is_stable(dissenting, PROTOCOL)


def test_a_candidate_that_loses_nearly_every_quad_is_slower_however_noisy() -> None:
    ratios = [math.log(0.2), math.log(0.7)] * 6
    assert not statistics.is_stable(ratios, PROTOCOL)
    assert statistics.reading(ratios, PROTOCOL) == 0.7


def test_a_hopelessly_slow_candidate_still_earns_something_positive() -> None:
    assert statistics.reading([math.log(1e-4)] * 9, PROTOCOL) == 0.01
