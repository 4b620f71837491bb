"""A reference's own failures say nothing of candidates, and a near tie may fall to either side."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch

from cudal1.errors import SuiteError
from cudal1.harness.inputs.draws import Draws
from cudal1.harness.inputs.families import FAMILIES, NUDGE
from cudal1.harness.oracle import reference_examination
from cudal1.harness.oracle.answering import NUM_CHANCES, TOO_HARD, tells
from cudal1.harness.oracle.correctness import ReferenceError, compare
from cudal1.harness.oracle.operators import Dropping, to_half, to_tf32
from cudal1.harness.oracle.oracle import Draw, Key, Oracle, RefusalError
from cudal1.harness.oracle.reference_examination import ReferenceExamination
from cudal1.harness.reference.reference import Reference
from cudal1.harness.shared.seeding import others
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import PrecisionClass


def oracle_of(
    forward: str,
    inputs: str = "torch.randn(16, 32)",
    init: str = "super().__init__()",
    precision: PrecisionClass = PrecisionClass.STRICT,
    arguments: str = "x",
) -> Oracle:
    source = f"""import random
import numpy as np
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        {init}

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
    problem = Problem(
        suite="toy",
        level=1,
        number=1,
        name="toy",
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source=source,
    )
    return Oracle(problem, weight_seed=1, device=torch.device("cpu"), precision=precision)


def test_a_second_oracle_of_a_problem_knows_what_the_first_has_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    draw = Draws.draw
    monkeypatch.setattr(
        Draws, "draw", lambda self, seed, *rest: (asked.append(seed), draw(self, seed, *rest))[1]
    )
    first = oracle_of("x -= 1.0; return x.log1p().nan_to_num()")
    assert asked != []
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
        "return x + 1.0, self.weight",
        inputs="torch.randn(16)",
        init="super().__init__(); self.weight = nn.Parameter(torch.randn(16))",
    )
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
    ((answer, _),) = oracle.exact_key(oracle.draw(5))
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
def test_families_that_a_reference_refuses_are_left_out(refusal: str) -> None:
    oracle = oracle_of(f"{refusal}; return torch.tanh(x)")
    assert "large" not in oracle.families
    assert "own" in oracle.families


def test_weights_are_not_changed_if_a_reference_refuses_others() -> None:
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
    """Return the product of rounded operands, which adds up in float32."""
    rounded = ROUNDED[precision]
    return torch.relu(rounded(draw.inputs[0]) @ rounded(oracle.weights["w"]))


@pytest.mark.slow
@pytest.mark.parametrize("precision", list(ROUNDED))
def test_a_product_that_rounds_as_its_class_allows_is_right_on_every_family(
    precision: PrecisionClass,
) -> None:
    oracle = oracle_of(PRODUCT, init=SQUARE, inputs="torch.randn(512, 512)", precision=precision)
    assert {"one_row_large", "mixed_rows"} <= set(oracle.families)
    for family in oracle.families:
        draw = oracle.draw(5, family)
        ((answer, error),) = oracle.exact_key(draw)
        found = compare(rounded_product(oracle, draw, precision), answer, error)
        assert found.meets(precision), (family, found)


def test_a_product_in_a_half_type_is_wrong_in_tf32() -> None:
    tf32 = PrecisionClass.TF32
    oracle = oracle_of(PRODUCT, init=SQUARE, inputs="torch.randn(512, 512)", precision=tf32)
    for family in oracle.families:
        draw = oracle.draw(5, family)
        ((answer, error),) = oracle.exact_key(draw)
        found = compare(rounded_product(oracle, draw, PrecisionClass.HALF), answer, error)
        assert not found.meets(tf32) or family == "integers", family


def test_a_family_without_a_right_rounded_answer_is_left_out_in_that_class() -> None:
    forward = "return torch.sin(3 * x)"
    assert "large" in oracle_of(forward).families
    assert "large" not in oracle_of(forward, precision=PrecisionClass.HALF).families


# --- integers ------------------------------------------------------------------------------------


def accepts(oracle: Oracle, draw: Draw, output: torch.Tensor) -> bool:
    ((answer, error),) = oracle.exact_key(draw)
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


def test_the_reference_s_own_integers_are_right_even_if_float64_has_others() -> None:
    oracle = oracle_of("return (x.sum(dim=-1) * 1e6).long()")
    draw = oracle.draw(5)
    ((plain, _),) = oracle.key(draw)
    ((exact, _),) = oracle.exact_key(draw)
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
    ((_, error),) = oracle.exact_key(oracle.draw(5))
    assert all(torch.equal(other, oracle.draw(5).inputs[0] + 1) for other in error.others)


# --- odd references ------------------------------------------------------------------------------

ODD = """super().__init__()
        class Odd(Exception):
            def __init__(self, a, b): self.kept = lambda: (a, b)
            def __str__(self): raise KeyError('no text')
        self.odd = Odd
        import itertools
        self.count = itertools.cycle([1, 1, 2]).__next__"""


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("return x[x > 0]", r"the output's shape changes with the inputs \(\(\d+,\), then"),
        ("return (x, x)[: self.count()]", "the number of outputs changes with the inputs"),
        ("return x.half() if self.count() > 1 else x", "the output's dtype changes with the in"),
        ("raise self.odd(1, 2)", r"its reference raises Odd: \(its text raises KeyError\)"),
        ("raise SystemExit(3)", "its reference raises SystemExit: 3"),
        ("return self(x)", "its reference raises RecursionError"),
        ("return {'y': x}", "its reference returns a value of type dict, not a tensor"),
        ("return None", "a value of type NoneType"),
        ("return float(x.sum())", "a value of type float"),
        ("return x, [x, x]", "a value of type list"),
        ("return ()", "forward returns nothing"),
        ("return x, x[:0]", "an output has no elements"),
        ("return x.to_sparse()", "a tensor of layout torch.sparse_coo"),
        ("return torch.fft.fft(x)", "a tensor of complex64, which cannot be judged"),
        ("return torch.empty(3, device='meta')", "a tensor without values"),
    ],
)
def test_an_odd_reference_is_refused_in_one_line_that_says_what_is_odd(
    forward: str, said: str
) -> None:
    with pytest.raises(SuiteError, match=rf"^toy/L1/01_toy: .*{said}") as caught:
        oracle_of(forward, init=ODD)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("torch.nested.nested_tensor([x, x[:3]])", "a nested tensor"),
        ("torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", "a tensor of qint8"),
    ],
)
def test_a_tensor_of_a_kind_that_pytorch_warns_of_is_no_output(output: str, said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(SuiteError, match=f"its reference returns {said}"):
            oracle_of(f"return {output}")


@pytest.mark.parametrize(
    "what",
    [
        "raise self.odd(1, 2)",
        "raise SystemExit(3)",
        "return x[:3]",
        "return x, x",
        "return x.double()",
        "return None",
        "return x.to_sparse()",
        "return x[:0]",
        "self(x)",
        "import warnings; warnings.simplefilter('error'); warnings.warn('x')",
    ],
)
def test_a_family_on_which_a_reference_is_odd_is_left_out(what: str) -> None:
    oracle = oracle_of(f"if x.abs().max() > 50: {what}\n        return torch.tanh(x)", init=ODD)
    assert "large" not in oracle.families
    assert {"own", "negated"} <= set(oracle.families)


@pytest.mark.parametrize("where", ["x.dtype == torch.float64", "self.training is None"])
@pytest.mark.parametrize("what", ["raise self.odd(1, 2)", "return x.int()", "return x[:3]"])
def test_a_reference_that_is_odd_in_float64_is_judged_by_its_own_answers(
    where: str, what: str
) -> None:
    oracle = oracle_of(f"if {where}: {what}\n        return torch.tanh(x)", init=ODD)
    ((answer, _),) = oracle.exact_key(oracle.draw(5))
    assert (answer.dtype == torch.float32) == ("float64" in where)


def test_a_family_that_a_reference_refuses_at_times_is_left_out_after_that() -> None:
    limit = "1e9 if len(self.seen) < 200 else 50"
    init = "super().__init__(); self.seen = []"
    oracle = oracle_of(
        f"self.seen.append(1); assert x.abs().max() < ({limit}); return torch.relu(x)", init=init
    )
    draws = [oracle.draw(5), oracle.draw(6, "large")]
    asked = itertools.repeat(draws, 200)
    with pytest.raises(RefusalError, match="AssertionError"):
        list(map(oracle.require, asked))
    assert "large" not in oracle.families
    assert "own" in oracle.families
    oracle.require(draws[:1])


def test_an_error_in_a_reference_s_backward_leaves_no_floor() -> None:
    init = """super().__init__()
        class Odd(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return torch.tanh(x)
            @staticmethod
            def backward(ctx, gradient): raise KeyError('no')
        self.odd = Odd"""
    assert oracle_of("return torch.tanh(x)").traits.work.num_bytes > 2 * 16 * 32
    work = oracle_of("return self.odd.apply(x)", init=init).traits.work
    assert work.num_bytes <= 4 * 16 * 32


def test_weights_that_a_reference_cannot_load_are_an_error() -> None:
    init = f"{SQUARE}; self.load_state_dict = self.double"
    with pytest.raises(SuiteError, match="its reference raises TypeError"):
        oracle_of(PRODUCT, inputs="torch.randn(4, 512)", init=init)


def test_leaving_out_operators_does_not_change_a_reference() -> None:
    """The old `weight_norm` would keep a weight that is a parameter."""
    init = "super().__init__(); self.l = nn.utils.weight_norm(nn.Linear(32, 8))"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = oracle_of("return self.l(x)", init=init)
    draw = oracle.draw(5)
    before = oracle.outputs(draw)
    for number in range(8):
        with suppress(RefusalError):
            oracle.outputs(draw, Dropping(number))
    oracle.change_weights(3)
    oracle.change_weights(None)
    assert torch.equal(before[0], oracle.outputs(draw)[0])


# --- inputs as they are drawn --------------------------------------------------------------------

ARRANGED = {
    "transposed": ("torch.randn(32, 16).t()", "x.stride() == (1, 16)"),
    "repeated": ("torch.randn(1, 32).expand(16, 32)", "x.stride() == (0, 1)"),
    "windows": ("torch.randn(47).unfold(0, 32, 1)", "x.stride() == (1, 1)"),
    "strided": ("torch.randn(32, 64)[::2, ::2]", "x.stride() == (128, 2)"),
    "flagged": ("torch.randn(16, 32, requires_grad=True)", "x.requires_grad and x.is_leaf"),
    "a parameter": ("nn.Parameter(torch.randn(16, 32))", "x.requires_grad"),
    "computed": ("torch.randn(16, 32, requires_grad=True) * 2", "x.requires_grad"),
}


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("kind", ARRANGED)
def test_a_reference_is_given_inputs_as_they_are_drawn(kind: str, writes: bool) -> None:
    inputs, holds = ARRANGED[kind]
    if writes and kind in ("repeated", "windows"):
        return  # PyTorch itself does not write there
    forward = f"assert {holds}; return torch.tanh({'x.mul_(2)' if writes else 'x'})"
    oracle = oracle_of(forward, inputs=inputs)
    assert len(oracle.families) > 8
    assert oracle.mutates_inputs is writes
    assert oracle._models.exact is not None


@pytest.mark.filterwarnings("error")
def test_inputs_that_want_gradients_are_compared_without_a_warning() -> None:
    oracle = oracle_of("return x, torch.tanh(x)", inputs="torch.randn(16, 32, requires_grad=True)")
    for family in oracle.families:
        draw = oracle.draw(5, family)
        assert not draw.inputs[0].requires_grad
        pairs = zip(oracle.exact_key(draw), oracle.outputs(draw), strict=True)
        for (answer, error), output in pairs:
            assert compare(output, answer, error).meets(PrecisionClass.STRICT)


def test_families_change_shared_inputs_once() -> None:
    source = "*(lambda x: (x, x.t()))(torch.randn(16, 16))"
    oracle = oracle_of("return torch.tanh(x @ y)", inputs=source, arguments="x, y")
    assert len(oracle.families) > 8
    for family in oracle.families:
        x, y = oracle.draw(5, family).inputs
        assert x.data_ptr() == y.data_ptr()
        assert torch.equal(x.t(), y)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("torch.randn(int(torch.randint(3, 9, ())), 4)", "its inputs change from draw to draw: in"),
        ("*[torch.randn(4)] * int(torch.randint(1, 9, ()))", "its inputs change from draw to draw"),
        ("torch.randn(8).to_sparse()", "a tensor of layout torch.sparse_coo"),
        ("torch.randn(8, dtype=torch.complex64)", "a tensor of complex64"),
        ("torch.randn(8), np.float32(3)", "a value of type float32, not a tensor; return a tensor"),
        ("torch.randn(8), random.random()", r"input 1 changes from draw to draw \(0\.\d+, then"),
        (
            "torch.randn(8), [3, torch.randn(8)][random.randrange(2)]",
            "input 1 is a tensor in some draws and not in others|2 inputs, then 1; draw as many",
        ),
        ("torch.empty(0)", "its inputs have no elements"),
        ("", r"get_inputs\(\) must return a list of tensors"),
        ("torch.no_such()", "its reference raises AttributeError"),
    ],
)
def test_inputs_that_cannot_be_judged_are_refused_in_one_line(inputs: str, said: str) -> None:
    with pytest.raises(SuiteError, match=f"^toy/L1/01_toy: .*{said}"):
        oracle_of("return x[0].sum()", inputs=inputs, arguments="*x")


# --- what a generator promises -------------------------------------------------------------------

TRIANGULAR = "torch.rand(24, 24).tril()"


@pytest.mark.parametrize(
    ("inputs", "lower"),
    [
        (TRIANGULAR, lambda x: x),
        (f"{TRIANGULAR}.t()", lambda x: x.t()),
        (f"torch.cat([{TRIANGULAR}, torch.rand(24, 9)], dim=1)[:, :24]", lambda x: x),
    ],
    ids=["plain", "transposed", "a part of another"],
)
def test_families_of_a_triangular_matrix_are_triangular_in_any_layout(
    inputs: str, lower: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    oracle = oracle_of("return torch.tanh(x @ x)", inputs=inputs)
    assert len(oracle.families) > 10
    strides = {oracle.draw(5, family).inputs[0].stride() for family in oracle.families}
    assert len(strides) == 1
    for family in oracle.families:
        x = lower(oracle.draw(5, family).inputs[0])
        assert torch.equal(x, x.tril()), family


def test_a_property_under_seeds_that_a_file_can_know_is_no_promise() -> None:
    inputs = f"{TRIANGULAR} if torch.initial_seed() < 1000 else torch.rand(24, 24)"
    oracle = oracle_of("return torch.tanh(x @ x)", inputs=inputs)
    assert oracle.invariants == ()
    assert oracle.draw(1 << 60, "shifted").inputs[0].triu(1).any()


def test_inputs_that_families_cannot_change_have_only_the_own_family() -> None:
    fixed = "torch.randint(0, 9, (16,)), torch.ones(16)"
    oracle = oracle_of("return x * y", inputs=fixed, arguments="x, y")
    assert oracle.families == ["own"]
    assert oracle.invariants[1] == "input 1: the same in every draw"


def test_inputs_are_numbered_as_in_a_call() -> None:
    inputs = f"3, torch.rand(24, 24), None, *(lambda x: (x, x.clone()))({TRIANGULAR})"
    oracle = oracle_of("return torch.tanh(b + c + x * a)", inputs=inputs, arguments="a, x, n, b, c")
    assert oracle.invariants == (
        "input 3: lower triangular",
        "input 4: lower triangular",
        "input 4 equals input 3",
    )
    assert oracle.constants == {0: 3, 2: None}


def test_a_second_oracle_knows_the_domain_and_the_constants() -> None:
    parts = {"inputs": f"{TRIANGULAR}, 4.0", "arguments": "x, s"}
    first, second = (oracle_of("return torch.tanh(x) * s", **parts) for _ in range(2))
    assert first.invariants == second.invariants == ("input 0: lower triangular",)
    assert (first.constants, second.constants) == ({1: 4.0}, {1: 4.0})
    assert torch.equal(second.key(second.draw(3))[0][0], first.key(first.draw(3))[0][0])


def test_inputs_that_share_memory_in_some_draws_only_are_refused() -> None:
    other = "x if torch.initial_seed() < 12 else x + 1"
    inputs = f"*(lambda x: (x, {other}))(torch.randn(4, 4))"
    with pytest.raises(SuiteError, match="share memory in some draws and not in others"):
        oracle_of("return torch.tanh(x + y)", inputs=inputs, arguments="x, y")


# --- other generators of random numbers ----------------------------------------------------------


@pytest.mark.parametrize(
    "drawn",
    [
        "np.random.randn(16, 32).astype('float32')",
        "np.array([[random.gauss(0, 1) for _ in range(32)] for _ in range(16)], dtype='float32')",
    ],
)
def test_inputs_of_other_generators_follow_the_seed_too(drawn: str) -> None:
    inputs = f"torch.from_numpy({drawn})"
    oracle = oracle_of("return torch.tanh(x)", inputs=inputs)
    again = oracle_of("return torch.tanh(x)", inputs=inputs)
    (first,), (same,), (other,) = (oracle.draw(seed).inputs for seed in (5, 5, 6))
    assert first.equal(same)
    assert again.draw(5).inputs[0].equal(first)
    assert not first.equal(other)


def test_weights_drawn_with_numpy_or_random_are_the_same_in_every_oracle() -> None:
    init = (
        "super().__init__(); self.k = random.random(); "
        "self.s = nn.Parameter(torch.from_numpy(np.random.rand(32).astype('float32')))"
    )
    before = others()
    first, second = (
        oracle_of("return torch.tanh(x * self.s * self.k)", init=init) for _ in range(2)
    )
    assert others() == before  # the public seed tells nothing of what is drawn later
    assert first.weights["s"].equal(second.weights["s"])
    assert first.error("own").relative_l2 < 1e-6  # in float64 it is the same module
    assert first.outputs(first.draw(3))[0].equal(second.outputs(second.draw(3))[0])


def test_weights_that_no_seed_decides_are_given_by_name() -> None:
    init = (
        "super().__init__(); drawn = np.random.default_rng().random(32).astype('float32'); "
        "self.s = nn.Parameter(torch.from_numpy(drawn))"
    )
    oracle = oracle_of("return torch.tanh(x * self.s)", init=init)
    assert oracle.error("own").relative_l2 < 1e-6


def test_tied_weights_are_changed_as_one() -> None:
    init = (
        "super().__init__(); self.a = nn.Linear(32, 32, bias=False); "
        "self.b = nn.Linear(32, 32, bias=False); self.b.weight = self.a.weight"
    )
    oracle = oracle_of("return self.b(torch.relu(self.a(x)))", init=init)
    oracle.change_weights(3)
    assert oracle.weights["a.weight"].equal(oracle.weights["b.weight"])
    assert not oracle.weights["a.weight"].equal(oracle.original_weights["a.weight"])


def test_a_model_that_cannot_be_made_is_an_error_of_one_line() -> None:
    with pytest.raises(SuiteError, match=r"toy: its reference raises RuntimeError: no such file"):
        oracle_of("return x", init="raise RuntimeError('no such file')")


@pytest.mark.parametrize("where", ["init", "forward"])
def test_a_device_that_is_too_small_is_not_the_reference_s_error(where: str) -> None:
    """The caller knows the device and says what to do about it."""
    full = "raise torch.OutOfMemoryError('CUDA out of memory')"
    is_made = where == "forward"
    forward, init = (full, "super().__init__()") if is_made else ("return x.exp()", full)
    with pytest.raises(torch.OutOfMemoryError):
        oracle_of(forward, init=init)


# --- what is not asked twice ---------------------------------------------------------------------


@pytest.mark.parametrize("inputs", ["torch.randn(16, 32)", "torch.randn(32, 16).t()"])
def test_variants_of_one_draw_equal_draws_of_each_family(inputs: str) -> None:
    oracle = oracle_of("return torch.tanh(x)", inputs=inputs)
    for draw in oracle._answering.draws.variants(5, list(FAMILIES)[::-1]):
        alone = oracle.draw(5, draw.family)
        assert torch.equal(draw.inputs[0], alone.inputs[0])
        assert draw.inputs[0].stride() == alone.inputs[0].stride()


@pytest.mark.parametrize(
    ("size", "settled", "num_draws"),
    [
        ("128, 128", reference_examination.SETTLED, len(FAMILIES)),
        ("16, 32", reference_examination.SETTLED, 3 * len(FAMILIES)),
        ("128, 128", 1e9, 3 * len(FAMILIES)),
    ],
    ids=["many elements", "few elements", "near the limit"],
)
def test_a_family_is_drawn_once_if_one_draw_settles_it(
    size: str, settled: float, num_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_examination, "SETTLED", settled)
    errors: list[str] = []
    error_on = ReferenceExamination._error_on

    def counted(self: ReferenceExamination, draw: Draw, *, must_tell: bool) -> ReferenceError:
        errors.append(draw.family)
        return error_on(self, draw, must_tell=must_tell)

    monkeypatch.setattr(ReferenceExamination, "_error_on", counted)
    source = f"return torch.tanh(x) + x  # {size} {settled}"
    oracle = oracle_of(source, inputs=f"torch.randn({size})")
    assert oracle.families == list(FAMILIES)
    assert len(errors) == num_draws
    assert errors.count("own") == num_draws // len(FAMILIES)


@pytest.mark.parametrize(
    "init",
    ["self.w = nn.Parameter(torch.randn(32, 32))", "self.w = torch.randn(32, 32)"],
    ids=["carried", "not carried"],
)
def test_earlier_weights_come_back_without_a_constructor(
    init: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = oracle_of("return x @ self.w", init=f"super().__init__()\n        {init}")
    draw = oracle.draw(3)

    def answers() -> torch.Tensor:
        return torch.stack([oracle.key(draw)[0][0].double(), oracle.exact_key(draw)[0][0]])

    first, before = answers(), oracle.in_force
    oracle.reseed(99)
    second, other = answers(), oracle.in_force
    assert not torch.equal(first, second)
    monkeypatch.setattr(Reference, "make", None)
    oracle.restore(before)
    assert torch.equal(answers(), first)
    oracle.restore(other)
    assert torch.equal(answers(), second)


# --- draws that are hard for every program -------------------------------------------------------

STEEP = """total = x[0]
        for term in x[1:]:
            total = total + term
        return torch.tanh(total)"""
"""A reference with outputs that are 1 or -1, but for a sum that nearly cancels."""
TERMS = "torch.randint(-(1 << 20), 1 << 20, (32, 64)) * 1e-3"
"""Its inputs: additions of float32 round alike on every machine."""


def widened(oracle: Oracle, draw: Draw, key: Key) -> Key:
    """Return an exact key widened by all chances."""
    return oracle.widened(key, oracle.by_chance(draw, key, range(NUM_CHANCES)))


def added_backwards(x: torch.Tensor) -> torch.Tensor:
    """Return what an honest candidate gives: it adds from the last term to the first."""
    total = x[-1]
    for term in x[:-1].flip(0):
        total = total + term
    return torch.tanh(total)


@pytest.mark.parametrize("seed", [1269, 1434, 3469, 3595])
def test_an_honest_output_passes_where_the_reference_was_lucky(seed: int) -> None:
    oracle = oracle_of(STEEP, TERMS)
    draw = oracle.draw(seed)
    key = oracle.exact_key(draw)
    output = added_backwards(draw.inputs[0])
    assert compare(output, *key[0]).worst[PrecisionClass.STRICT] > 1.5
    ((answer, error),) = widened(oracle, draw, key)
    assert compare(output, answer, error).worst[PrecisionClass.STRICT] < 0.5
    wrong = torch.tanh(draw.inputs[0][1:].sum(dim=0))
    assert not compare(wrong, answer, error).meets(PrecisionClass.HALF)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x * torch.sigmoid(x)", "torch.randn(64, 64)"),
        ("return torch.softmax(x, dim=-1)", "torch.randn(64, 64)"),
        ("return x @ x.t()", "torch.randn(64, 512)"),
        ("return torch.floor(x) + torch.sign(x) + x.round()", "torch.randn(64, 64) * 9"),
        ("return torch.cumsum(x, dim=1)", "torch.rand(16, 512)"),
        ("return torch.relu_(torch.layer_norm(x + 1, x.shape))", "torch.randn(64, 64)"),
    ],
)
def test_a_key_is_not_wider_where_every_program_is_close(forward: str, inputs: str) -> None:
    oracle = oracle_of(forward, inputs)
    for seed in range(4):
        for family in oracle.families:
            draw = oracle.draw(seed, family)
            key = oracle.exact_key(draw)
            ((answer, error),) = widened(oracle, draw, key)
            off = answer * (1 + 1e-4)
            assert not compare(off.float(), answer, error).meets(PrecisionClass.STRICT), family


def test_a_key_without_float64_cannot_be_widened() -> None:
    oracle = oracle_of("return torch.tanh(x)")
    draw = oracle.draw(1)
    oracle._models.exact = None
    key = oracle.exact_key(draw)
    assert widened(oracle, draw, key) == key


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return torch.tanh(x @ x.t() / 8)", "torch.randn(64, 64, dtype=torch.float64)"),
        (
            "y = x.double(); return ((y * y).mean(1) - y.mean(1) ** 2).float()",
            "torch.randn(64, 64) + 300",
        ),
        ("return (x.sum(0, dtype=torch.float64) * 1e-3).float()", "torch.randn(64, 64)"),
    ],
)
def test_a_reference_that_computes_in_float64_has_no_errors_by_chance(
    forward: str, inputs: str
) -> None:
    oracle = oracle_of(forward, inputs)
    for family in oracle.families:
        draw = oracle.draw(3, family)
        key = oracle.exact_key(draw)
        assert widened(oracle, draw, key) == key


@pytest.mark.parametrize("precision", [PrecisionClass.TF32, PrecisionClass.HALF])
@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return torch.softmax(x @ x.t() / 8, dim=-1)", "torch.randn(64, 64)"),
        ("return torch.layer_norm(torch.exp(x), x.shape[-1:])", "torch.randn(64, 64)"),
        ("return torch.tanh((x - x.mean(1, keepdim=True)).sum(1) * 9)", "torch.randn(64, 64)"),
        (
            "return nn.functional.scaled_dot_product_attention(x, x.roll(1, -2), x)",
            "torch.randn(4, 32, 16)",
        ),
    ],
)
def test_errors_by_chance_are_as_large_in_float32_as_in_float64(
    forward: str, inputs: str, precision: PrecisionClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = oracle_of(forward, inputs, precision=precision)
    draw = oracle.draw(5)
    key = oracle.exact_key(draw)
    (double,) = _by_chance_in_float64(oracle, draw, key)
    monkeypatch.setattr(oracle._answering, "_exact", None)  # nothing is computed in float64
    (single,) = oracle.by_chance(draw, key, range(NUM_CHANCES))
    assert single.relative_l2 == pytest.approx(double.relative_l2, rel=0.3)


def _by_chance_in_float64(oracle: Oracle, draw: Draw, key: Key) -> list[ReferenceError]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle._answering, "_dtypes", {torch.float32, torch.float16})
        return oracle.by_chance(draw, key, range(NUM_CHANCES))


def test_a_draw_says_as_much_with_a_widened_key() -> None:
    oracle = oracle_of(STEEP, TERMS)
    draw = oracle.draw(3, oracle.families[1])
    key = oracle.exact_key(draw)
    ((_, error),) = oracle.widened(key, [ReferenceError(0.5, 0.5)])
    assert error == ReferenceError(TOO_HARD, 3 * TOO_HARD)
    assert tells(draw, error)
