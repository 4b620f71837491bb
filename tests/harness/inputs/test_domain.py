"""Promises of a generator are found, luck is not, and families keep all promises."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from cudal1.harness.inputs.domain import Domain, domain_of, num_draws
from cudal1.harness.inputs.families import FAMILIES, change_inputs

Generator = Callable[[], list[torch.Tensor]]


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def domain(draw: Generator, seed: int = 0) -> Domain:
    torch.manual_seed(seed)
    return domain_of(iter([draw() for _ in range(num_draws(draw()))]))


def one_hot() -> torch.Tensor:
    return F.one_hot(torch.randint(0, 10, (64,)), 10)


def symmetric(a: torch.Tensor) -> torch.Tensor:
    return (a + a.mT) / 2


def masked_softmax(a: torch.Tensor) -> torch.Tensor:
    above = torch.ones_like(a).triu(1).bool()
    return a.masked_fill(above, float("-inf")).softmax(-1)


def with_transpose(a: torch.Tensor) -> list[torch.Tensor]:
    return [a, a.t().clone()]


def with_larger(a: torch.Tensor) -> list[torch.Tensor]:
    return [a, a + torch.rand_like(a)]


PROMISES: dict[str, tuple[Generator, list[str]]] = {
    "lower triangular": (lambda: [rand(32, 32).tril()], ["input 0: lower triangular"]),
    "strictly upper": (lambda: [randn(3, 9, 9).triu(1)], ["input 0: strictly upper triangular"]),
    "rectified lower": (lambda: [randn(9, 9).relu().tril()], ["input 0: lower triangular"]),
    "diagonal": (lambda: [randn(32).diag()], ["input 0: diagonal"]),
    "banded": (
        lambda: [randn(32, 32).tril(2).triu(-1)],
        ["input 0: zero where column - row > 2 and where column - row < -1"],
    ),
    "blocks": (
        lambda: [torch.block_diag(randn(2, 3), randn(4, 1), randn(3, 3))],
        ["input 0: block diagonal, 3 blocks"],
    ),
    "unit diagonal": (
        lambda: [randn(16, 16).tril(-1) + torch.eye(16)],
        ["input 0: lower triangular; always 1 on the diagonal"],
    ),
    "padded": (lambda: [F.pad(randn(8, 8), (1, 1))], ["input 0: 16 of 80 elements always 0"]),
    "column of ones": (
        lambda: [torch.cat([randn(64, 3), torch.ones(64, 1)], 1)],
        ["input 0: 64 of 256 elements always 1"],
    ),
    "fixed": (
        lambda: [randn(4, 4), torch.full((4, 4), float("-inf")).triu(1)],
        ["input 1: the same in every draw"],
    ),
    "fixed number": (lambda: [randn(4, 4), torch.tensor(0.5)], ["input 1: the same in every draw"]),
    "symmetric": (lambda: [symmetric(rand(32, 32))], ["input 0: symmetric"]),
    "nearly symmetric": (lambda: [(lambda a: a @ a.mT)(randn(64, 48))], ["input 0: symmetric"]),
    "signs": (
        lambda: [torch.randint(0, 2, (32, 1)).float() * 2 - 1],
        ["input 0: values in {-1, 1}"],
    ),
    "mask": (
        lambda: [torch.where(rand(32, 32) > 0.5, 0.0, float("-inf"))],
        ["input 0: values in {-inf, 0}"],
    ),
    "one-hot": (
        lambda: [one_hot().float()],
        ["input 0: values in {0, 1}; non-negative, sums to one along dim 1"],
    ),
    "whole": (
        lambda: [torch.randint(0, 100, (512,)).float()],
        ["input 0: whole numbers, 0 to 99 seen"],
    ),
    "probabilities": (
        lambda: [randn(64, 10).softmax(0)],
        ["input 0: positive, sums to one along dim 0"],
    ),
    "half probabilities": (
        lambda: [randn(64, 100).half().softmax(-1)],
        ["input 0: positive, sums to one along dim 1"],
    ),
    "attention": (
        lambda: [masked_softmax(randn(8, 9, 9))],
        [
            "input 0: lower triangular; 8 of 648 elements always 1; "
            "non-negative, sums to one along dim 2"
        ],
    ),
    "unit vectors": (lambda: [F.normalize(randn(64, 10))], ["input 0: unit norm along dim 1"]),
    "sorted": (lambda: [randn(64, 10).sort().values], ["input 0: ascending along dim 1"]),
    "sorted down": (
        lambda: [randn(64).sort(descending=True).values],
        ["input 0: descending along dim 0"],
    ),
    "repeated": (lambda: [randn(64, 1).expand(64, 10).clone()], ["input 0: equal along dim 1"]),
    "absolute": (lambda: [randn(64, 64).abs()], ["input 0: at least 0"]),
    "rectified": (lambda: [randn(64, 64).relu()], ["input 0: at least 0"]),
    "clamped": (lambda: [randn(64, 64).clamp(-2.5, 2.0)], ["input 0: from -2.5 to 2"]),
    "negative": (lambda: [-randn(64, 64).abs()], ["input 0: at most 0"]),
    "equal": (lambda: [*[randn(8, 8)] * 2], ["input 1 equals input 0"]),
    "transposed": (lambda: with_transpose(randn(8, 6)), ["input 1 is input 0 transposed"]),
    "ordered": (lambda: with_larger(rand(64)), ["input 0 nowhere exceeds input 1"]),
    "offsets": (
        lambda: [torch.randint(1, 8, (10,)).cumsum(0)],
        ["input 0: whole numbers, 1 to 70 seen; ascending along dim 0"],
    ),
    "causal mask": (
        lambda: [torch.ones(8, 8, dtype=torch.bool).tril()],
        ["input 0: the same in every draw"],
    ),
    "random mask, lower": (lambda: [(rand(16, 16) > 0.5).tril()], ["input 0: lower triangular"]),
}


@pytest.mark.parametrize("name", PROMISES)
def test_a_property_of_every_draw_is_found_and_no_other(name: str) -> None:
    draw, expected = PROMISES[name]
    said = list(domain(draw).lines())
    if name == "offsets":  # the bounds of "offsets" are what was seen
        said = [said[0].replace(said[0].split("to ")[1].split(" seen")[0], "70")]
    assert said == expected


LUCK: dict[str, Generator] = {
    "rand": lambda: [rand(64, 64)],
    "rand of another scale": lambda: [rand(64, 64) * rand(1), rand(64, 64) * 2 - 1],
    "rand, shifted": lambda: [rand(64, 64) + 0.5],
    "randn": lambda: [randn(64, 64), randn(64, 64)],
    "large by luck": lambda: [randn(64, 64) + 10],
    "apart by luck": lambda: [rand(64), rand(64) + 1],
    "apart by luck, nearly": lambda: [randn(20), randn(20) + 5],
    "far from a bound": lambda: [randn(64, 64).sigmoid(), randn(64, 64).exp()],
    "some zeros": lambda: [F.dropout(randn(64, 64))],
    "few": lambda: [rand(3), rand(1), rand(2, 2), torch.rand(())],
    "coarse": lambda: [rand(64, 64).bfloat16(), randn(64, 64).half()],
    "coarser": lambda: [(rand(5, 5) / 10 + 10).bfloat16(), (randn(8, 8) / 10 + 10).half()],
    "masked rand": lambda: [F.dropout(rand(64, 64)), rand(64, 64) * (rand(64, 64) > 0.9)],
    "images": lambda: [randn(2, 3, 8, 8)],
    "random mask": lambda: [rand(8, 8) > 0.5],
}


@pytest.mark.parametrize("name", LUCK)
@pytest.mark.parametrize("seed", range(5))
def test_luck_is_no_promise(name: str, seed: int) -> None:
    assert domain(LUCK[name], seed).lines() == ()


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 40), columns=st.integers(1, 40))
def test_no_shape_of_random_numbers_has_an_invariant(seed: int, rows: int, columns: int) -> None:
    for draw in (lambda: [rand(rows, columns)], lambda: [randn(rows, columns)]):
        assert domain(draw, seed).is_free


@pytest.mark.slow
def test_a_number_that_is_drawn_alike_four_times_is_not_called_fixed() -> None:
    """Large inputs have few draws, and one of two values is easily the same in all of them."""
    for seed in range(30):
        found = domain(lambda: [randn(1 << 20), torch.randint(0, 2, (1,)).float()], seed)
        assert "the same" not in " ".join(found.lines())


def test_a_draw_that_breaks_an_invariant_removes_it() -> None:
    whole = randn(9, 9)
    usual: Iterator[list[torch.Tensor]] = iter([[randn(9, 9).tril()] for _ in range(20)])
    assert domain_of(usual).lines() == ("input 0: lower triangular",)
    assert domain_of(iter([*[[randn(9, 9).tril()] for _ in range(20)], [whole]])).lines() == ()


@pytest.mark.parametrize("name", PROMISES)
def test_a_domain_survives_as_json(name: str) -> None:
    found = domain(PROMISES[name][0])
    assert Domain.model_validate_json(found.model_dump_json()) == found


# --- families inside -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", list(FAMILIES)[1:])
@pytest.mark.parametrize("name", PROMISES)
def test_a_family_keeps_all_invariants_or_is_left_out(name: str, family: str) -> None:
    draw, _ = PROMISES[name]
    found = domain(draw)
    own = [tensor.contiguous() for tensor in draw()]
    kept = found.kept(change_inputs(own, family), own)
    if kept is None:
        return
    assert not all(mine is drawn for mine, drawn in zip(kept, own, strict=True))
    for invariants, mine, drawn in zip(found.inputs, kept, own, strict=True):
        assert (mine.shape, mine.dtype) == (drawn.shape, drawn.dtype)
        assert all(each.holds(mine, drawn) for each in invariants)
    assert all(relation.holds(kept) for relation in found.relations)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("lower triangular", set[str]()),
        ("symmetric", set[str]()),
        ("equal", set[str]()),
        ("absolute", {"negated", "alternating"}),
        ("fixed number", set[str]()),  # the other input is free
        ("causal mask", set(FAMILIES) - {"own"}),
        ("one-hot", set(FAMILIES) - {"own", "rows_alike"}),
    ],
)
def test_only_families_that_change_nothing_are_left_out(name: str, left_out: set[str]) -> None:
    draw, _ = PROMISES[name]
    found, without = domain(draw), set[str]()
    for family in list(FAMILIES)[1:]:
        own = draw()
        if found.kept(change_inputs(own, family), own) is None:
            without.add(family)
    assert without == left_out


def test_an_input_without_invariants_is_changed_beside_a_fixed_one() -> None:
    draw, _ = PROMISES["fixed"]
    own = draw()
    kept = domain(draw).kept(change_inputs(own, "negated"), own)
    assert kept is not None
    assert kept[0].equal(-own[0])
    assert kept[1].equal(own[1])


def test_one_large_element_stays_large_inside() -> None:
    """In a diagonal matrix nearly every element must stay zero."""
    for name in ("diagonal", "symmetric", "absolute", "lower triangular"):
        draw, _ = PROMISES[name]
        found = domain(draw)
        for seed in range(10):
            torch.manual_seed(seed)
            own = draw()
            kept = found.kept(change_inputs(own, "one_element_large"), own)
            assert kept is not None
            assert kept[0].abs().max() > 2 * own[0].abs().max()


def test_a_draw_outside_of_the_seen_domain_ends_no_family() -> None:
    found = domain(lambda: with_larger(rand(64)))
    own = list(reversed(with_larger(rand(64))))
    kept = found.kept(change_inputs(own, "negated"), own)
    assert kept is None or found.relations[0].holds(kept) or kept[0] is own[0]


def test_a_domain_from_a_file_fits_its_own_inputs_and_no_others() -> None:
    for draw, _ in PROMISES.values():
        found, shapes = domain(draw), [tuple(each.shape) for each in draw()]
        assert found.fits(shapes)
        assert not found.fits([*shapes, (3,)])
    for name in ("lower triangular", "blocks", "padded", "symmetric", "sorted", "unit diagonal"):
        assert not domain(PROMISES[name][0]).fits([(5,)])


def test_a_mask_from_a_file_unpacks_to_no_more_than_its_size() -> None:
    (kept,) = domain(PROMISES["padded"][0]).inputs[0]
    bomb = base64.b64encode(zlib.compress(bytes(1 << 26))).decode()
    began = torch.zeros(()).device
    mask = kept.model_copy(update={"packed": bomb}).outside(began)
    assert mask.shape == kept.shape
    assert not mask.any()
