"""Outputs are right within the bounds of a precision class, and undecidable ones are wrong."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.oracle import parts
from cudal1.harness.oracle.correctness import (
    ERROR_MARGIN,
    ORDER,
    Comparison,
    Expected,
    ReferenceError,
    agree,
    compare,
    is_near,
    reference_error,
)
from cudal1.protocol import PrecisionClass

EXACT = ReferenceError(0.0, 0.0)
STRICT, TF32, HALF = PrecisionClass.STRICT, PrecisionClass.TF32, PrecisionClass.HALF
CLASSES = st.sampled_from(ORDER)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _compare(output: torch.Tensor, answer: torch.Tensor) -> Comparison:
    return compare(output, answer, EXACT)


def _met(comparison: Comparison) -> set[PrecisionClass]:
    return {precision for precision in ORDER if comparison.meets(precision)}


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Round to ten bits of mantissa."""
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)


# --- failing closed ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@given(place=st.integers(0, 99))
def test_one_value_that_is_not_finite_makes_a_finite_answer_wrong(
    dtype: torch.dtype, value: float, place: int
) -> None:
    answer = _random(10, 10).to(dtype)
    output = answer.clone()
    output.view(-1)[place] = value
    assert not _met(_compare(output, answer))


def test_an_output_of_nan_alone_is_wrong() -> None:
    answer = _random(8)
    assert not _met(_compare(torch.full_like(answer, math.nan), answer))


def test_values_that_are_not_finite_must_stand_where_the_answer_has_them() -> None:
    answer = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    assert _met(_compare(answer.clone(), answer)) == set(ORDER)
    for other in (
        [1.0, -math.inf, -math.inf, math.nan],
        [1.0, math.nan, -math.inf, math.nan],
        [1.0, math.inf, -math.inf, 7.0],
        [1.0, math.inf, -math.inf, math.inf],
        [math.nan, math.inf, -math.inf, math.nan],
    ):
        assert not _met(_compare(torch.tensor(other), answer)), other


def test_finite_values_beside_infinite_ones_are_still_compared() -> None:
    answer = torch.tensor([1.0, 2.0, math.inf])
    assert not _met(_compare(torch.tensor([1.0, 2.1, math.inf]), answer))


def test_a_reference_error_that_is_not_a_number_accepts_nothing() -> None:
    answer = _random(8)
    broken = ReferenceError(math.nan, math.nan)
    assert not _met(compare(answer + 1, answer, broken))


def test_one_wrong_element_among_a_million_is_wrong() -> None:
    answer = _random(1000, 1000)
    output = answer.clone()
    output[617, 3] += 0.1
    comparison = _compare(output, answer)
    assert not _met(comparison)
    assert comparison.mismatch is not None
    assert comparison.mismatch.startswith("element 617003:")


# --- integers ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    dtype=st.sampled_from(INTEGERS),
    values=st.lists(st.integers(0, 127), min_size=1, max_size=20),
    change=st.none() | st.tuples(st.integers(0, 19), st.integers(0, 127)),
)
def test_integers_must_be_equal(
    dtype: torch.dtype, values: list[int], change: tuple[int, int] | None
) -> None:
    answer = torch.tensor(values, dtype=dtype)
    output = answer.clone()
    if change is not None:
        output[change[0] % len(values)] = change[1]
    expected = set(ORDER) if torch.equal(output, answer) else set()
    assert _met(_compare(output, answer)) == expected


def test_large_integers_are_not_compared_as_floats() -> None:
    answer = torch.tensor([2**53, 5])
    assert not _met(_compare(torch.tensor([2**53 + 1, 5]), answer))


def test_booleans_must_be_equal() -> None:
    answer = torch.tensor([True, False])
    assert _met(_compare(torch.tensor([True, False]), answer)) == set(ORDER)
    assert not _met(_compare(torch.tensor([True, True]), answer))


# --- scale ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [128, 16384])
def test_zeros_and_means_are_no_softmax_however_small_its_values(width: int) -> None:
    answer = torch.softmax(_random(8, width).double(), dim=-1)
    for output in (torch.zeros(8, width), torch.full((8, width), 1.0 / width)):
        assert not _met(_compare(output, answer))


@pytest.mark.parametrize("width", [128, 16384])
def test_a_softmax_computed_in_another_order_is_strictly_correct(width: int) -> None:
    x = _random(8, width)
    exponentials = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    total = exponentials.flip(-1).sum(dim=-1, keepdim=True)
    answer = torch.softmax(x.double(), dim=-1)
    assert _met(_compare(exponentials / total, answer)) == set(ORDER)


@given(exponent=st.integers(-40, 40), log_error=st.floats(-8, -1), seed=st.integers(0, 9))
def test_scaling_output_and_answer_alike_changes_no_judgement(
    exponent: int, log_error: float, seed: int
) -> None:
    answer = _random(64, seed=seed)
    output = answer * (1 + 10**log_error * _random(64, seed=seed + 100))
    here = _compare(output, answer)
    there = _compare(output * 2.0**exponent, answer * 2.0**exponent)
    assert there.worst == pytest.approx(here.worst, rel=1e-4)


def test_answers_with_squares_that_overflow_are_compared_nonetheless() -> None:
    answer = _random(64) * 1e30
    assert _met(_compare(answer.clone(), answer)) == set(ORDER)
    assert not _met(_compare(answer * 1.01, answer))


def test_answers_with_squares_that_vanish_are_compared_nonetheless() -> None:
    answer = _random(64) * 1e-30
    assert _met(_compare(answer.clone(), answer)) == set(ORDER)
    assert not _met(_compare(torch.zeros_like(answer), answer))


# --- zero and empty answers ----------------------------------------------------------------------


@given(value=st.floats(-36, 3).map(lambda e: 10.0**e), place=st.integers(0, 15))
def test_only_zero_equals_zero(value: float, place: int) -> None:
    answer = torch.zeros(16)
    assert _met(_compare(torch.zeros(16), answer)) == set(ORDER)
    output = answer.clone()
    output[place] = value
    assert not _met(_compare(output, answer))


def test_an_empty_output_is_correct_where_the_answer_is_empty() -> None:
    assert _met(_compare(torch.empty(0, 4), torch.empty(0, 4))) == set(ORDER)


# --- precision classes ---------------------------------------------------------------------------


def test_a_float32_product_is_strictly_correct() -> None:
    a, b = _random(64, 64, seed=1), _random(64, 64, seed=2)
    answer = a.double() @ b.double()
    error = reference_error(a @ b, answer)
    assert _met(compare((b.t() @ a.t()).t().contiguous(), answer, error)) == set(ORDER)


def test_a_product_of_tf32_factors_is_correct_in_its_class_alone() -> None:
    a, b = _random(64, 64, seed=1), _random(64, 64, seed=2)
    comparison = _compare(_tf32(a) @ _tf32(b), a.double() @ b.double())
    assert _met(comparison) == {TF32, HALF}


def test_a_product_rounded_to_half_is_not_strict() -> None:
    a, b = _random(64, 64, seed=1), _random(64, 64, seed=2)
    answer = a.double() @ b.double()
    comparison = _compare((a.half() @ b.half()).float(), answer)
    assert STRICT not in _met(comparison)
    assert HALF in _met(comparison)


@given(log_error=st.floats(-9, 0), seed=st.integers(0, 20))
def test_an_output_that_meets_a_class_meets_the_looser_ones(log_error: float, seed: int) -> None:
    answer = _random(64, seed=seed)
    output = answer + 10**log_error * _random(64, seed=seed + 50)
    met = [_compare(output, answer).meets(precision) for precision in ORDER]
    assert met == sorted(met)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_an_answer_rounded_to_the_output_s_own_dtype_is_correct(dtype: torch.dtype) -> None:
    answer = _random(256).double()
    assert _met(_compare(answer.to(dtype), answer)) == set(ORDER)


def test_a_candidate_may_be_as_far_off_as_the_reference_times_the_margin() -> None:
    answer = _random(256).double()
    reference = (answer * (1 + 1e-4)).float()
    error = reference_error(reference, answer)
    near = (answer * (1 + 1e-4 * (ERROR_MARGIN - 0.5))).float()
    far = (answer * (1 + 1e-4 * (ERROR_MARGIN + 0.5))).float()
    assert compare(near, answer, error).meets(STRICT)
    assert not compare(far, answer, error).meets(STRICT)


def test_the_reference_s_error_equals_that_of_the_slow_formula() -> None:
    answer = _random(50).double()
    reference = (answer + 1e-5 * _random(50, seed=3)).float()
    pairs = list(zip(reference.double().tolist(), answer.tolist(), strict=True))
    scale = math.sqrt(sum(y * y for _, y in pairs) / len(pairs))
    over = math.sqrt(sum((x - y) ** 2 for x, y in pairs) / sum(y * y for _, y in pairs))
    found = reference_error(reference, answer)
    assert found.relative_l2 == pytest.approx(over)
    assert found.element == pytest.approx(max(abs(x - y) / (scale + abs(y)) for x, y in pairs))


def test_a_reference_that_overflows_where_the_answer_does_not_is_infinitely_far_off() -> None:
    answer = torch.tensor([1.0, 1e300], dtype=torch.float64)
    assert reference_error(answer.float(), answer).relative_l2 == math.inf
    assert reference_error(answer.float(), answer).at_most(0.02).relative_l2 == 0.02


def test_a_reference_that_is_not_zero_where_the_answer_is_zero_is_infinitely_far_off() -> None:
    zeros = torch.zeros(8, dtype=torch.float64)
    off = reference_error(torch.full((8,), 1e-9), zeros)
    assert (off.relative_l2, off.element) == (math.inf, math.inf)
    assert reference_error(zeros.float(), zeros) == EXACT


# --- algebra -------------------------------------------------------------------------------------

ERRORS = st.builds(
    lambda size, ratio: ReferenceError(size, size * ratio),
    st.sampled_from([0.0, 1e-7, 1e-5, 1e-3, 0.02]),
    st.floats(0.5, 2),
)


@given(
    precision=CLASSES,
    error=ERRORS,
    seed=st.integers(0, 20),
    log_error=st.floats(-6, 0),
    growth=st.floats(2, 100),
)
def test_an_output_that_is_farther_off_everywhere_is_never_judged_better(
    precision: PrecisionClass, error: ReferenceError, seed: int, log_error: float, growth: float
) -> None:
    answer = _random(64, seed=seed).double()
    direction = _random(64, seed=seed + 100).double()
    near, far = (
        compare((answer + size * direction).float(), answer, error)
        for size in (10**log_error, growth * 10**log_error)
    )
    assert near.meets(precision) or not far.meets(precision)
    assert near.relative_l2 <= far.relative_l2


@given(
    error=ERRORS, seed=st.integers(0, 20), log_error=st.floats(-8, 0), exponent=st.integers(-30, 30)
)
def test_a_power_of_two_as_a_factor_changes_nothing(
    error: ReferenceError, seed: int, log_error: float, exponent: int
) -> None:
    answer = _random(64, seed=seed)
    output = answer + 10**log_error * _random(64, seed=seed + 100)
    factor = 2.0**exponent
    here, there = compare(output, answer, error), compare(output * factor, answer * factor, error)
    assert here.worst == pytest.approx(there.worst, rel=1e-6)
    assert here.relative_l2 == pytest.approx(there.relative_l2, rel=1e-6)


@given(error=ERRORS, seed=st.integers(0, 20), log_error=st.floats(-8, 0))
def test_the_order_of_elements_changes_nothing(
    error: ReferenceError, seed: int, log_error: float
) -> None:
    answer = _random(6, 8, seed=seed)
    output = answer + 10**log_error * _random(6, 8, seed=seed + 100)
    order = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
    here = compare(output, answer, error)
    there = compare(output.flatten()[order].view(8, 6), answer.flatten()[order].view(8, 6), error)
    assert here.worst == pytest.approx(there.worst, rel=1e-5)


@given(
    error=ERRORS, place=st.integers(0, 63), value=st.sampled_from([math.nan, math.inf, -math.inf])
)
def test_a_value_that_is_finite_on_one_side_alone_is_wrong_however_wide_the_bound(
    error: ReferenceError, place: int, value: float
) -> None:
    sound = _random(64)
    broken = sound.clone()
    broken[place] = value
    for wide in (error, ReferenceError(math.inf, math.inf)):
        assert not _met(compare(broken, sound, wide))
        assert not _met(compare(sound, broken, wide))
        assert not _met(compare(sound, broken.double(), wide))


@given(error=ERRORS, seed=st.integers(0, 20), log_error=st.floats(-9, 0))
def test_a_class_implies_every_looser_class_whatever_the_reference_s_error(
    error: ReferenceError, seed: int, log_error: float
) -> None:
    answer = _random(64, seed=seed)
    output = answer + 10**log_error * _random(64, seed=seed + 50)
    met = [compare(output, answer, error).meets(precision) for precision in ORDER]
    assert met == sorted(met)


@given(st.lists(st.integers(-5, 5), min_size=3, max_size=3), st.integers(0, 2))
def test_an_integer_may_be_any_of_the_answers_at_its_own_place_alone(
    values: list[int], place: int
) -> None:
    answer = torch.tensor(values)
    other = answer.clone()
    other[place] += 1
    error = ReferenceError(0.0, 0.0, others=(other,))
    assert _met(compare(answer, answer, error)) == _met(compare(other, answer, error)) == set(ORDER)
    for wrong in (answer + 1, answer.roll(1) + 20, other + 1):
        assert not _met(compare(wrong, answer, error))


# --- many outputs in one look --------------------------------------------------------------------


@given(
    dtype=st.sampled_from(FLOATS + INTEGERS),
    precision=CLASSES,
    seed=st.integers(0, 1000),
    off=st.sampled_from([0.0, 1e-12, 1e-6, 1e-5, 1e-3, 1e-2, 0.1, math.nan, math.inf]),
    slack=st.sampled_from([0.0, 1e-6, 1e-2]),
    gap=st.integers(0, 3),
)
def test_many_outputs_are_judged_as_each_alone_would_be(
    dtype: torch.dtype, precision: PrecisionClass, seed: int, off: float, slack: float, gap: int
) -> None:
    answers = (100 * _random(4, 5 + gap, seed=seed)).to(dtype)[:, :5]  # rows that lie apart
    outputs = answers.clone()
    if dtype.is_floating_point or math.isfinite(off):
        outputs[1, 2] += torch.tensor(1000 * off).to(dtype)
        outputs[3] = (outputs[3] * (1 + off if math.isfinite(off) else 1)).to(dtype)
    errors = [ReferenceError(slack * row, slack * row) for row in range(4)]
    found = agree(outputs, answers, errors, precision)
    for output, answer, error, good in zip(outputs, answers, errors, found, strict=True):
        assert good == compare(output, answer, error).meets(precision)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_bound_without_limit_admits_no_output_that_is_not_finite(value: float) -> None:
    answers, unlimited = _random(2, 3), ReferenceError(math.inf, math.inf)
    outputs = answers.clone()
    outputs[0, 0] = value
    assert agree(outputs, answers, [unlimited] * 2, STRICT) == [False, True]
    assert not compare(outputs[0], answers[0], unlimited).meets(STRICT)


def test_an_infinite_answer_is_left_to_a_comparison_by_itself() -> None:
    answers = _random(2, 3)
    answers[0, 0] = math.inf
    assert agree(answers, answers, [EXACT, EXACT], STRICT) == [False, True]
    assert compare(answers[0], answers[0], EXACT).meets(STRICT)


# --- many outputs of one answer ------------------------------------------------------------------

OUTPUTS = {
    "right": lambda y: y.clone(),
    "nearly": lambda y: y * (1 + 3e-6),
    "as tf32": lambda y: y * (1 + 5e-4),
    "as half": lambda y: y * (1 + 4e-3),
    "zeros": torch.zeros_like,
    "NaN": lambda y: y.index_fill(0, torch.tensor([len(y) - 1]), math.nan),
    "infinite": lambda y: y.index_fill(0, torch.tensor([3]), math.inf),
    "one off": lambda y: y.index_add(0, torch.tensor([len(y) - 1]), torch.ones(1, dtype=y.dtype)),
}


@pytest.mark.parametrize("precision", PrecisionClass)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64])
@given(
    name=st.sampled_from(list(OUTPUTS)),
    seed=st.integers(0, 5),
    log_error=st.floats(-9, -1),
    answer=st.sampled_from(["finite", "zero", "infinite", "huge"]),
)
def test_an_expected_answer_admits_the_same_outputs_as_a_comparison(
    precision: PrecisionClass,
    dtype: torch.dtype,
    name: str,
    seed: int,
    log_error: float,
    answer: str,
) -> None:
    y = (100 * _random(300, seed=seed)).to(dtype)
    if answer == "zero":
        y = torch.zeros_like(y)
    elif dtype.is_floating_point and answer != "finite":
        y[17] = math.inf if answer == "infinite" else torch.finfo(dtype).max
    if not dtype.is_floating_point and name in ("NaN", "infinite"):
        return
    x = OUTPUTS[name](y).to(dtype)
    error = ReferenceError(10**log_error, 10**log_error)
    exact = y.double() if dtype.is_floating_point else y
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "CPU_ELEMENTS", 64)
        admits = Expected(exact, error, precision).admits(x)
    assert admits == compare(x, exact, error).meets(precision)


def test_an_expected_integer_may_be_any_of_the_answers() -> None:
    answer, other = torch.tensor([1, 2, 3]), torch.tensor([1, 9, 3])
    expected = Expected(answer, ReferenceError(0.0, 0.0, (other,)), PrecisionClass.STRICT)
    assert expected.admits(answer)
    assert expected.admits(other)
    assert not expected.admits(torch.tensor([9, 2, 3]))


def test_an_expected_answer_without_elements_admits_an_output_without_any() -> None:
    empty = torch.empty(0, 4)
    assert Expected(empty, ReferenceError(0.0, 0.0), PrecisionClass.STRICT).admits(empty)


def test_an_answer_too_large_for_a_finite_distance_makes_the_error_infinite() -> None:
    largest = torch.finfo(torch.float64).max
    answer = torch.tensor([largest, 1.0], dtype=torch.float64)
    found = reference_error(answer * 0.5, answer)
    assert (found.relative_l2, found.element) == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("precision", "factor"), [(PrecisionClass.STRICT, 1.0), (PrecisionClass.TF32, 3.0)]
)
def test_an_error_by_chance_counts_only_where_it_is_unlike_the_reference_s(
    precision: PrecisionClass, factor: float
) -> None:
    own = ReferenceError(1e-4, 1e-3)
    chance = ReferenceError(0.99 * factor * 1e-4, 1.01 * factor * 1e-3)
    assert own.unless_like(chance, precision) == ReferenceError(1e-4, chance.element)


@pytest.mark.parametrize(("off", "is_so"), [(0.079, True), (0.081, False), (float("nan"), False)])
def test_an_output_is_near_up_to_eight_per_cent(off: float, is_so: bool) -> None:
    answer = torch.linspace(-1, 1, 1 << 18, dtype=torch.float64)
    assert is_near(((1 + off) * answer).float(), answer) is is_so


def test_whole_numbers_are_never_near() -> None:
    assert not is_near(torch.tensor([1, 2]), torch.tensor([1, 2]))


def test_an_output_may_be_near_where_an_answer_is_not_finite() -> None:
    assert is_near(torch.ones(3), torch.tensor([1.0, float("inf"), 1.0]))
