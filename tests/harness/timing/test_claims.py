"""Large claims are made twice, the smaller one counts, and none is faster than physics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.timing import claims
from cudal1.harness.timing.confirmation import Confirmation
from cudal1.measurement import Doubt, Measurement
from cudal1.protocol import EvalProtocol, Rule
from cudal1.verdict import FlagSource, Status


@pytest.fixture(scope="module")
def quick(quick: EvalProtocol) -> EvalProtocol:
    """The protocol with a GPU's thresholds."""
    return quick.model_copy(update={"confirm_above": 3.0, "confirm_below": 1.1})


def _claim(certified: float = 4.0, **changes: Any) -> Measurement:
    fields = {
        "baseline": Baseline.EAGER,
        "speedup": certified * 1.05,
        "certified": certified,
        "alpha": 0.01,
        "num_quads": 9,
        "bucket_medians": (certified,) * 7,
        "bucket_variance": 0.0,
        "is_stable": True,
        "reference_us": 100.0,
        "candidate_us": 100.0 / (certified * 1.05),
    }
    return Measurement.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("certified", "record", "is_large"),
    [
        (3.0, None, False),
        (4.0, None, True),
        (2.5, 1.2, True),
        (2.5, 1.25, False),
        (2.5, None, False),
        (1.9, 0.5, False),  # a slower candidate's record is no record
        (4.0, 3.5, True),  # within twice the record, but above three
    ],
)
def test_a_claim_is_large_by_itself_or_against_the_record(
    quick: EvalProtocol, certified: float, record: float | None, is_large: bool
) -> None:
    assert claims.is_large(_claim(certified), quick, record=record) is is_large


@pytest.mark.parametrize(
    ("certified", "is_doubtful"),
    [(0.9, False), (1.0, False), (1.02, True), (1.1, False), (2.0, False), (4.0, True)],
)
def test_small_gains_are_doubtful_as_large_ones_are(
    quick: EvalProtocol, certified: float, is_doubtful: bool
) -> None:
    assert claims.is_doubtful(_claim(certified), quick, record=None) is is_doubtful


def test_a_gain_at_the_floor_is_a_large_claim(quick: EvalProtocol) -> None:
    near = _claim(1.5, candidate_us=60.0, floor_us=55.0)
    assert near.is_at_roofline
    assert near.speed_of_light == pytest.approx(55 / 60)
    assert claims.is_large(near, quick, record=None)
    assert not claims.is_large(_claim(1.5, candidate_us=66.0, floor_us=55.0), quick, record=None)
    assert not claims.is_large(_claim(1.0, candidate_us=60.0, floor_us=55.0), quick, record=None)


@pytest.mark.parametrize(("first", "second"), [(4.0, 3.5), (3.5, 4.0)])
def test_the_smaller_of_two_claims_that_agree_counts(
    quick: EvalProtocol, first: float, second: float
) -> None:
    doubts = {3.5: Doubt.ONCE, 4.0: None}
    claim, again = (_claim(each, doubt=doubts[each]) for each in (first, second))
    settled = claims.settled(claim, again, quick, confirmed_on="GPU-1")
    assert (settled.certified, settled.doubt) == (3.5, Doubt.ONCE)
    assert (settled.is_confirmed, settled.confirmed_on) == (True, "GPU-1")
    assert settled.speedup == _claim(first).speedup


def test_a_second_claim_that_certifies_less_is_named_with_its_value(quick: EvalProtocol) -> None:
    settled = claims.settled(_claim(3.5), _claim(3.4), quick, confirmed_on="GPU-1")
    assert (settled.certified, settled.doubt, settled.believed) == (3.4, Doubt.AGAIN, 3.4)


def test_a_doubt_of_the_second_claim_is_named_with_its_value(quick: EvalProtocol) -> None:
    again = _claim(3.4, doubt=Doubt.ONCE, believed=3.45)
    settled = claims.settled(_claim(3.5), again, quick, confirmed_on="GPU-1")
    assert (settled.certified, settled.doubt, settled.believed) == (3.4, Doubt.ONCE, 3.45)


def test_a_doubt_of_the_first_claim_is_kept_if_the_second_certifies_no_less(
    quick: EvalProtocol,
) -> None:
    claim = _claim(3.5, doubt=Doubt.ONCE, believed=3.55)
    settled = claims.settled(claim, _claim(3.6), quick, confirmed_on="GPU-1")
    assert (settled.certified, settled.doubt, settled.believed) == (3.5, Doubt.ONCE, 3.55)


def test_an_unsteady_second_claim_that_certifies_a_gain_confirms_the_first(
    quick: EvalProtocol,
) -> None:
    """Its bound holds whatever the noise is."""
    unsteady = _claim(3.0, is_stable=False, lower=3.0, upper=4.5)
    settled = claims.settled(_claim(3.5), unsteady, quick, confirmed_on="GPU-1")
    assert (settled.certified, settled.is_stable, settled.is_confirmed) == (3.0, False, True)


NOISY = {"lower": 0.8, "upper": 4.5, "speedup": 2.0}


def test_a_second_claim_that_certifies_nothing_does_not_confirm_the_first(
    quick: EvalProtocol,
) -> None:
    settled = claims.settled(_claim(3.5), _claim(1.0, **NOISY), quick, confirmed_on="GPU-1")
    assert (settled.certified, settled.is_confirmed) == (1.0, False)
    assert (settled.doubt, settled.believed) == (Doubt.AGAIN, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ((1.9, 2.1), (2.0, 3.9), False),
        ((1.9, 2.1), (2.3, 3.9), False),  # by a tenth, as two processes may be
        ((1.9, 2.1), (3.4, 3.9), True),
        ((3.4, 3.9), (1.9, 2.1), True),
        ((1.9, None), (0.8, 4.0), False),
    ],
)
def test_two_claims_are_apart_if_noise_does_not_explain_it(
    quick: EvalProtocol, first: tuple[float, float], second: tuple[float, float], apart: bool
) -> None:
    claim, again = (_claim(2.0, lower=low, upper=high) for low, high in (first, second))
    assert claims.are_apart(claim, again, quick) is apart


def test_buckets_tell_how_far_a_claim_without_bounds_may_reach(quick: EvalProtocol) -> None:
    claim = _claim(2.0, lower=1.9, upper=2.1)
    near, far = (_claim(1.0, bucket_medians=each) for each in ((0.9, 1.5, 2.4), (0.9, 1.0, 1.1)))
    assert not claims.are_apart(claim, near, quick)
    assert claims.are_apart(claim, far, quick)


def test_the_paper_s_rule_compares_estimates(quick: EvalProtocol) -> None:
    paper = quick.model_copy(update={"rule": Rule.PAPER, "window_s": 1.0, "confirm_within": 0.1})
    wide = {"lower": 1.0, "upper": 9.0}
    for again, apart in ((3.9, False), (4.5, True), (3.5, True)):
        both = _claim(4.0, **wide, speedup=4.0), _claim(4.0, **wide, speedup=again)
        assert claims.are_apart(*both, paper) is apart


def test_two_claims_that_are_apart_earn_nothing(quick: EvalProtocol) -> None:
    for first, second in ((6.0, 4.0), (4.0, 6.0)):
        claim, again = (_claim(each, doubt=Doubt.ONCE) for each in (first, second))
        settled = claims.settled(claim, again, quick, confirmed_on="GPU-1")
        assert (settled.certified, settled.is_confirmed) == (1.0, False)
        assert (settled.doubt, settled.believed) == (Doubt.APART, second * 1.05)
    slower = claims.settled(_claim(4.0), _claim(0.5), quick, confirmed_on="GPU-1")
    assert slower.certified == 1.0


@pytest.mark.parametrize(
    ("believed", "certified", "doubt"),
    [(1.9, 1.5, None), (1.5, 1.5, None), (1.309, 1.3, Doubt.WORK), (1.01, 1.0, Doubt.WORK)],
)
def test_a_claim_is_lowered_to_the_believed_value_and_the_doubt_is_named(
    quick: EvalProtocol, believed: float, certified: float, doubt: Doubt | None
) -> None:
    found = claims.lowered(_claim(1.5), believed, Doubt.WORK, quick)
    assert (found.certified, found.doubt) == (certified, doubt)
    assert found.believed == (believed if doubt else None)


def test_two_claims_below_the_floor_are_impossible_and_the_figures_are_said(
    quick: EvalProtocol,
) -> None:
    first, second = _claim(candidate_us=8.0, floor_us=10.0), _claim(candidate_us=8.9, floor_us=10.0)
    with pytest.raises(Failure) as caught:
        claims.settled(first, second, quick, confirmed_on="d")
    assert caught.value.status is Status.INVALID
    assert "8.90 us a call where 10.00 us is the least" in caught.value.reason
    (flag,) = caught.value.flags
    assert (flag.kind, flag.source) == ("below_floor", FlagSource.TIMING)


@pytest.mark.parametrize(("first_us", "second_us"), [(8.9, 9.1), (9.1, 8.9)])
def test_one_claim_below_the_floor_is_not_confirmed(
    quick: EvalProtocol, first_us: float, second_us: float
) -> None:
    first, second = (_claim(candidate_us=us, floor_us=10.0) for us in (first_us, second_us))
    settled = claims.settled(first, second, quick, confirmed_on="d")
    assert (settled.certified, settled.is_confirmed) == (1.0, False)


def test_a_measurement_that_earns_nothing_refutes_nothing() -> None:
    assert claims.is_impossible(_claim(candidate_us=-3.0, floor_us=10.0))
    assert claims.is_impossible(_claim(candidate_us=-3.0, floor_us=10.0, is_stable=False))
    assert not claims.is_impossible(_claim(1.0, candidate_us=-3.0, floor_us=10.0))
    assert not claims.is_impossible(_claim(candidate_us=0.1, floor_us=None))


@pytest.mark.parametrize(
    ("claimed", "again", "certified"),
    [
        (1.03, [{"certified": 1.02}], 1.02),
        (1.03, [{"certified": 1.0}, {"certified": 1.02}], 1.02),
        (1.03, [{"certified": 1.0}, {"certified": 1.0}], 1.0),
        (4.0, [{"certified": 1.0, "speedup": 1.0}], 1.0),  # contradicted: a third try would be luck
        (4.0, [{"certified": 1.0, **NOISY}, {"certified": 3.8}], 3.8),  # noise
        (4.0, [{"certified": 1.0, **NOISY}, {"certified": 1.0, **NOISY}], 1.0),
    ],
)
def test_a_claim_is_measured_a_third_time_if_that_may_well_confirm_it(
    quick: EvalProtocol, claimed: float, again: list[dict[str, float]], certified: float
) -> None:
    changes = {"confirm_above": 3.0, "confirm_below": 1.1, "confirm_within": 0.1}
    told = iter(again)
    confirmation: Any = SimpleNamespace(
        _protocol=quick.model_copy(update=changes),
        _device=SimpleNamespace(id="d"),
        _floor=SimpleNamespace(doubted=lambda claim: claim),
        _is_cpu=False,
        _sessions=SimpleNamespace(fastest_us=100.0),
        _again=lambda *_, **__: _claim(**next(told)),
    )
    claim, anyone = _claim(claimed), Candidate(problem_id="p", source="")
    examination: Any = None
    settled = Confirmation.confirm(confirmation, anyone, claim, examination)
    assert settled.certified == certified
    assert next(told, None) is None  # it was measured neither more nor less often


@pytest.mark.parametrize("within", [0.1, 0.5])
@pytest.mark.parametrize(("certified", "far"), [(1.06, False), (1.3, False), (1.5, True)])
def test_a_claim_is_far_only_if_a_worse_confirmation_would_leave_it_clear(
    quick: EvalProtocol, certified: float, far: bool, within: float
) -> None:
    protocol = quick.model_copy(update={"confirm_within": within})
    assert claims.is_far(_claim(certified), protocol) is far
