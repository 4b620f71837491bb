"""Tests that an expression draws tensors of the kind that was seen."""

from __future__ import annotations

import pytest
import torch

from cudal1.capturing.refusal import CaptureError
from cudal1.capturing.tensors import described

N = 8


def drawn(tensor: torch.Tensor, *, keeps_data: bool = False) -> torch.Tensor:
    return eval(described(tensor, "x", keeps_data=keeps_data).expression, {"torch": torch})


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3, 4),
        torch.randn(()),
        torch.randn(2, 3, 4).transpose(1, 2),
        torch.randn(2, 3, 5, 6).to(memory_format=torch.channels_last),
        torch.randn(1, 3, 5, 6).to(memory_format=torch.channels_last),
        torch.randn(2, 1, 4).expand(2, 5, 4),
        torch.randn(4).expand(3, 4),
        torch.randn(1, 4).expand(3, 4).unsqueeze(0),
        torch.randint(3, 9, (4, 4), dtype=torch.int32),
        torch.randn(16, 16).to(torch.bfloat16),
        torch.randn(16, 16).to(torch.float16) > 0,
        torch.arange(5),
        torch.arange(2, 7).expand(3, 5),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}-{tensor.stride()}",
)
def test_shape_dtype_and_strides_are_kept(tensor: torch.Tensor) -> None:
    made = drawn(tensor)
    assert (made.shape, made.dtype) == (tensor.shape, tensor.dtype)
    if tensor.dtype.is_floating_point:
        strides = zip(tensor.shape, tensor.stride(), made.stride(), strict=True)
        assert all(mine == seen for size, seen, mine in strides if size > 1)


def test_integers_stay_within_the_seen_bounds() -> None:
    made = drawn(torch.tensor([[3, 9, 4], [8, 8, 5]]).repeat(50, 50))
    assert (made.min(), made.max()) == (3, 9)


def test_bounds_of_several_calls_are_those_of_all() -> None:
    first, second = (
        described(torch.tensor(values), "x", keeps_data=False) for values in ([5, 3, 7], [9, 4, 4])
    )
    assert "randint(3, 10," in first.merged(second).expression


def test_promises_that_a_later_call_breaks_are_dropped() -> None:
    counted = described(torch.arange(4), "x", keeps_data=False)
    shuffled = described(torch.tensor([2, 0, 0, 1]), "x", keeps_data=False)
    assert "randint(0, 3," in counted.merged(shuffled).expression


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(N, N, dtype=torch.bool).tril(),
        torch.ones(2, N, N, dtype=torch.bool).triu(1),
        torch.full((N, N), float("-inf")).triu(1),
        torch.zeros(1, 1, N, N).masked_fill(torch.ones(N, N).triu(1).bool(), -3e38),
        torch.arange(N).repeat(3, 1),
        torch.full((3, 3), 7),
        torch.zeros(4, 4),
        torch.ones(4, dtype=torch.bool),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}-{tensor.flatten()[-1]}",
)
def test_masks_counts_and_constants_are_drawn_as_they_were(tensor: torch.Tensor) -> None:
    assert torch.equal(drawn(tensor), tensor)


def test_a_permutation_stays_one() -> None:
    made = drawn(torch.randperm(32))
    assert torch.equal(made.sort().values, torch.arange(32))


def test_offsets_stay_in_order_between_the_same_ends() -> None:
    made = drawn(torch.tensor([0, 3, 3, 9, 20]))
    assert torch.equal(made, made.sort().values)
    assert (len(made), made[0], made[-1]) == (5, 0, 20)


def test_few_values_stay_the_values() -> None:
    made = drawn(torch.tensor([0.5, -1.0, 2.0]).repeat(100))
    assert set(made.unique().tolist()) == {0.5, -1.0, 2.0}


def test_rows_that_sum_to_one_still_do() -> None:
    made = drawn(torch.randn(16, 64).softmax(-1))
    assert torch.allclose(made.sum(-1), torch.ones(16))


def test_floats_have_the_seen_mean_and_deviation() -> None:
    made = drawn(torch.randn(200, 200) * 3 + 10)
    assert abs(made.mean() - 10) < 0.2
    assert abs(made.std() - 3) < 0.2


def test_floats_that_were_never_negative_stay_in_their_range() -> None:
    seen = torch.rand(200, 200) * 2 + 1
    made = drawn(seen)
    assert seen.min() - 0.01 <= made.min()
    assert made.max() <= seen.max() + 0.01


def test_values_are_written_only_on_request() -> None:
    tensor = torch.tensor([[0.123456, 7.0], [-3.0, float("nan")]]).T
    assert torch.equal(drawn(tensor, keeps_data=True).nan_to_num(), tensor.nan_to_num())
    assert "0.123456" not in described(tensor.nan_to_num(), "x", keeps_data=False).expression


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.zeros(2, dtype=torch.complex64), "x is a tensor of complex64"),
        (torch.zeros(0, 3), r"x has no elements \(shape \(0, 3\)\)"),
        (torch.eye(3).to_sparse(), "x is no dense tensor"),
        (
            torch.cat([torch.randn(50), torch.tensor([float("inf")])]),
            "x holds NaN or infinities .* data=True",
        ),
    ],
    ids=["complex", "empty", "sparse", "infinite"],
)
def test_a_tensor_that_cannot_be_drawn_is_refused_with_its_name(
    tensor: torch.Tensor, said: str
) -> None:
    with pytest.raises(CaptureError, match=said):
        described(tensor, "x", keeps_data=False)
