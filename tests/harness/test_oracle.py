"""What a reference cannot do says nothing, and a near tie may fall to either side."""

from __future__ import annotations

import random

import pytest
import torch

from cudal1.errors import SuiteError
from cudal1.harness.correctness import compare
from cudal1.harness.families import NUDGE
from cudal1.harness.operators import to_half, to_tf32
from cudal1.harness.oracle import Draw, Oracle
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import PrecisionClass


def oracle_of(
    forward: str, inputs: str = "torch.randn(16, 32)", init: str = "super().__init__()",
    precision: PrecisionClass = PrecisionClass.STRICT,
) -> Oracle:  # fmt: skip
    source = f"""import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
    problem = Problem(
        suite="toy", level=1, number=1, name="toy", split=Split.TRAIN, revision="r",
        device_class=DeviceClass.CPU, source=source,
    )  # fmt: skip
    return Oracle(problem, weight_seed=1, device=torch.device("cpu"), precision=precision)


def test_a_second_oracle_of_a_problem_knows_what_the_first_has_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    draw = Oracle.draw
    monkeypatch.setattr(
        Oracle, "draw", lambda self, seed, *rest: (asked.append(seed), draw(self, seed, *rest))[1]
    )
    first = oracle_of("x -= 1.0; return x.log1p().nan_to_num()")
    assert len(asked) > 10
    asked.clear()
    second = oracle_of("x -= 1.0; return x.log1p().nan_to_num()")
    assert asked == []
    assert (first.mutates_inputs, second.mutates_inputs) == (True, True)
    assert second.families == first.families
    (answer, error), (again, same) = (
        each.exact_key(each.draw(5, each.families[-1]))[0] for each in (first, second)
    )
    assert (answer.equal(again), error) == (True, same)
    other = oracle_of("x -= 1.0; return x.log1p().nan_to_num()", precision=PrecisionClass.HALF)
    assert asked != []
    assert other.error(other.families[0]).relative_l2 > first.error(first.families[0]).relative_l2


# --- what a reference refuses --------------------------------------------------------------------


def test_a_parameter_may_be_an_output() -> None:
    oracle = oracle_of(
        "return x + 1.0, self.weight", inputs="torch.randn(16)",
        init="super().__init__(); self.weight = nn.Parameter(torch.randn(16))",
    )  # fmt: skip
    _, (answer, _) = oracle.exact_key(oracle.draw(1))
    assert answer.float().equal(oracle.weights["weight"])


@pytest.mark.parametrize(
    "refusal",
    [
        "assert x.dtype == torch.float32",
        "x = x * {torch.float32: 2.0}[x.dtype]",
        "x = x * torch.ones(32, 32)[0] @ torch.ones(32, 32, dtype=torch.float32)",
        "x = getattr(x, 'no_such' if x.dtype == torch.float64 else 'data')",
        "x = x * (1 // int(x.dtype == torch.float32))",
    ],
)
def test_a_reference_that_refuses_float64_is_judged_by_its_own_answers(refusal: str) -> None:
    oracle = oracle_of(f"{refusal}; return torch.tanh(x)")
    (answer, _), = oracle.exact_key(oracle.draw(5))  # fmt: skip
    assert answer.dtype == torch.float32


def test_a_float64_run_that_fails_on_one_draw_falls_back_for_that_draw() -> None:
    oracle = oracle_of("assert x.dtype == torch.float32 or x[0, 0] < 90; return torch.tanh(x)")
    draw = oracle.draw(5)
    assert oracle.exact_key(draw)[0][0].dtype == torch.float64
    draw.inputs[0][0, 0] = 99.0
    assert oracle.exact_key(draw)[0][0].dtype == torch.float32


@pytest.mark.parametrize(
    "refusal",
    [
        "torch.linalg.cholesky(torch.eye(8, dtype=x.dtype) * (50 - x.abs().max()))",
        "assert x.abs().max() < 50",
        "[0][int(x.abs().max() > 50)]",
    ],
)
def test_kinds_of_inputs_that_a_reference_refuses_are_left_out(refusal: str) -> None:
    oracle = oracle_of(f"{refusal}; return torch.tanh(x)")
    assert "large" not in oracle.families
    assert "own" in oracle.families


def test_weights_are_not_changed_to_such_as_a_reference_refuses() -> None:
    init = "super().__init__(); self.w = nn.Parameter(torch.ones(32))"
    oracle = oracle_of("assert (self.w == 1).all(); return x * self.w", init=init)
    assert not oracle.can_change_weights


def test_a_reference_that_refuses_its_own_inputs_is_refused_in_one_line() -> None:
    with pytest.raises(SuiteError, match=r"toy/L1/01_toy: its reference raises ValueError: no way"):
        oracle_of("raise ValueError('no\\nway')")


# --- classes that allow rounding -----------------------------------------------------------------

PRODUCT = "return torch.relu(x @ self.w)"
SQUARE = "super().__init__(); self.w = nn.Parameter(torch.randn(512, 512) / 22)"
ROUNDED = {PrecisionClass.TF32: to_tf32, PrecisionClass.HALF: to_half(torch.bfloat16)}


def rounded_product(oracle: Oracle, draw: Draw, precision: PrecisionClass) -> torch.Tensor:
    """What a product with rounded operands gives, which adds up in float32."""
    rounded = ROUNDED[precision]
    return torch.relu(rounded(draw.inputs[0]) @ rounded(oracle.weights["w"]))


@pytest.mark.parametrize("precision", list(ROUNDED))
def test_a_product_that_rounds_as_its_class_allows_is_right_on_every_family(
    precision: PrecisionClass,
) -> None:
    oracle = oracle_of(PRODUCT, init=SQUARE, inputs="torch.randn(512, 512)", precision=precision)
    assert {"one_row_large", "mixed_rows"} <= set(oracle.families)
    for family in oracle.families:
        draw = oracle.draw(5, family)
        (answer, error), = oracle.exact_key(draw)  # fmt: skip
        found = compare(rounded_product(oracle, draw, precision), answer, error)
        assert found.meets(precision), (family, found)


def test_a_product_in_a_half_type_is_wrong_in_tf32() -> None:
    tf32 = PrecisionClass.TF32
    oracle = oracle_of(PRODUCT, init=SQUARE, inputs="torch.randn(512, 512)", precision=tf32)
    for family in oracle.families:
        draw = oracle.draw(5, family)
        (answer, error), = oracle.exact_key(draw)  # fmt: skip
        found = compare(rounded_product(oracle, draw, PrecisionClass.HALF), answer, error)
        assert not found.meets(tf32) or family == "integers", family


def test_inputs_on_which_no_rounded_answer_is_right_say_nothing_in_that_class() -> None:
    forward = "return torch.sin(3 * x)"
    assert "large" in oracle_of(forward).families
    assert "large" not in oracle_of(forward, precision=PrecisionClass.HALF).families


# --- integers ------------------------------------------------------------------------------------


def accepts(oracle: Oracle, draw: Draw, output: torch.Tensor) -> bool:
    (answer, error), = oracle.exact_key(draw)  # fmt: skip
    return compare(output, answer, error).meets(PrecisionClass.STRICT)


def test_a_near_tie_may_fall_to_either_side_and_to_no_third() -> None:
    oracle = oracle_of("return x.argmax(dim=-1)")
    draw = oracle.draw(5)
    x = draw.inputs[0]
    x[0] = torch.linspace(0, 1, 32)
    x[0, 7], x[0, 20] = 2.0, 2.0 * (1 + NUDGE / 8)
    for place, accepted in ((7, True), (20, True), (31, False)):
        output = x.argmax(dim=-1)
        output[0] = place
        assert accepts(oracle, draw, output) is accepted, place


def test_a_half_may_be_rounded_to_either_side() -> None:
    oracle = oracle_of("return torch.round(x * 3.0).long()")
    draw = oracle.draw(5)
    draw.inputs[0][0, 0] = 0.5
    for value, accepted in ((1, True), (2, True), (0, False)):
        output = torch.round(draw.inputs[0] * 3.0).long()
        output[0, 0] = value
        assert accepts(oracle, draw, output) is accepted, value


def test_the_reference_s_own_integers_are_right_where_float64_has_others() -> None:
    oracle = oracle_of("return (x.sum(dim=-1) * 1e6).long()")
    draw = oracle.draw(5)
    (plain, _), = oracle.key(draw)  # fmt: skip
    (exact, _), = oracle.exact_key(draw)  # fmt: skip
    assert not torch.equal(plain, exact)
    assert accepts(oracle, draw, plain)


def test_integers_far_from_any_tie_must_be_equal() -> None:
    oracle = oracle_of("return x.argmax(dim=-1)")
    rng = random.Random(3)
    for family in oracle.families:
        draw = oracle.draw(rng.getrandbits(60), family)
        output = draw.inputs[0].argmax(dim=-1)
        assert accepts(oracle, draw, output)
        wrong = draw.inputs[0].argmin(dim=-1)
        assert not accepts(oracle, draw, wrong)


def test_integers_of_integers_have_no_other_answers() -> None:
    oracle = oracle_of("return x + 1", inputs="torch.randint(0, 9, (4, 4))")
    (_, error), = oracle.exact_key(oracle.draw(5))  # fmt: skip
    assert all(torch.equal(other, oracle.draw(5).inputs[0] + 1) for other in error.others)


def test_a_model_that_cannot_be_made_is_said_in_a_line() -> None:
    with pytest.raises(SuiteError, match=r"toy: its reference raises RuntimeError: no such file"):
        oracle_of("return x", init="raise RuntimeError('no such file')")


@pytest.mark.parametrize("where", ["init", "forward"])
def test_a_device_that_is_too_small_is_not_the_reference_s_error(where: str) -> None:
    """Who knows the device says what to do about it."""
    full = "raise torch.OutOfMemoryError('CUDA out of memory')"
    is_made = where == "forward"
    forward, init = (full, "super().__init__()") if is_made else ("return x.exp()", full)
    with pytest.raises(torch.OutOfMemoryError):
        oracle_of(forward, init=init)
