"""Weights are sent and loaded by name, whatever else a module has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cudal1.harness.shared.weights import MAX_LENGTH, MAX_NAMES, Weights, is_lazy, load_by_name

CPU = torch.device("cpu")


def module(**tensors: Any) -> nn.Module:
    made = nn.Module()
    for name, tensor in tensors.items():
        made.register_buffer(name, tensor)
    return made


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2.0


# --- loading -------------------------------------------------------------------------------------


def test_weights_of_the_same_name_and_shape_are_loaded_beside_others() -> None:
    target = module(w=torch.zeros(3), mask=torch.ones(5))
    assert load_by_name(target, {"w": torch.full((3,), 7.0)}) == ""
    state = target.state_dict()
    assert state["w"].tolist() == [7.0] * 3
    assert state["mask"].tolist() == [1.0] * 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32], ids=str)
def test_weights_are_cast_to_the_module_s_own_type(dtype: torch.dtype) -> None:
    target = module(w=torch.zeros(3, dtype=dtype))
    assert load_by_name(target, {"w": torch.full((3,), 7.0)}) == ""
    assert target.state_dict()["w"].equal(torch.full((3,), 7, dtype=dtype))


def test_missing_names_are_said_with_the_names_that_the_module_has_instead() -> None:
    said = load_by_name(module(v=torch.zeros(3)), {"w": torch.ones(3)})
    assert said == (
        "it has none called w, which the reference has; "
        "its own v kept the values that its constructor gave"
    )


def test_another_shape_is_said_and_the_module_s_value_is_kept() -> None:
    target = module(w=torch.zeros(3, 1), b=torch.zeros(2))
    said = load_by_name(target, {"w": torch.ones(3), "b": torch.ones(2)})
    assert said.startswith("w has another shape than the reference's; its own w kept")
    assert not target.state_dict()["w"].any()
    assert target.state_dict()["b"].all()


def test_only_a_few_names_are_said_and_long_ones_are_cut() -> None:
    many = {f"{'n' * 200}{number}": torch.ones(1) for number in range(MAX_NAMES + 3)}
    said = load_by_name(module(), many)
    assert "and 3 more" in said
    assert said.count("n" * MAX_LENGTH) == MAX_NAMES
    assert "n" * (MAX_LENGTH + 1) not in said


def test_hooks_of_a_module_may_know_names_that_it_lacks() -> None:
    """The hooks of a parametrisation know the names of the old `weight_norm`."""
    target = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    given = {"bias": torch.ones(3), "weight_g": torch.full((3, 1), 2.0), "weight_v": torch.eye(3)}
    assert load_by_name(target, given) == ""
    assert target.weight.equal(2 * torch.eye(3))


def test_loading_makes_the_weights_that_the_first_call_would_make() -> None:
    lazy = nn.LazyLinear(2)
    assert is_lazy(lazy)
    assert load_by_name(lazy, {"weight": torch.ones(2, 5), "bias": torch.ones(2)}) == ""
    assert not is_lazy(lazy)
    assert lazy.weight.shape == (2, 5)


def test_a_buffer_that_repeats_elements_keeps_its_values() -> None:
    target = module(w=torch.zeros(1).expand(3))
    assert "w has another shape" in load_by_name(target, {"w": torch.ones(3)})
    assert not target.state_dict()["w"].any()


# --- what is sent --------------------------------------------------------------------------------


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.none = nn.Parameter(torch.empty(0, 3))
        self.register_buffer("complex", torch.ones(3, dtype=torch.complex64))
        self.register_buffer("sparse", torch.eye(3).to_sparse())
        self.register_buffer("repeated", torch.ones(1).expand(3))
        self.register_buffer("hidden", torch.ones(3), persistent=False)

    def get_extra_state(self) -> object:
        return {"what": "ever"}

    def set_extra_state(self, state: object) -> None:
        raise AssertionError(state)


def test_only_weights_that_can_be_loaded_by_name_are_sent() -> None:
    stateful = Stateful()
    weights = Weights(stateful, CPU)
    assert set(weights.original()) == {"w", "none"}
    assert [spec.shape for spec in weights.specs] == [(3,), (0, 3)]
    load_by_name(stateful, weights.changed(doubled))
    assert stateful.w.tolist() == [2.0] * 3


def test_originals_are_copies() -> None:
    source = module(w=torch.ones(3), v=torch.ones(3, 2).t())
    weights = Weights(source, CPU)
    for tensor in source.state_dict().values():
        tensor.zero_()
    assert all(tensor.all() for tensor in weights.original().values())


def tied() -> nn.Module:
    shared = torch.arange(12.0).view(3, 4)
    return module(
        other=torch.ones(2), first=shared, second=shared, part=shared[1:], turned=shared.t()
    )


def test_weights_that_share_memory_are_changed_once() -> None:
    weights = Weights(tied(), CPU)
    changed = weights.changed(doubled)
    assert all(changed[name].equal(2.0 * t) for name, t in weights.original().items())
    drawn = weights.changed(torch.rand_like)
    assert drawn["first"].equal(drawn["second"])
    assert drawn["part"].equal(drawn["first"][1:])
    assert drawn["turned"].equal(drawn["first"].t())


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_a_module_may_tie_weights_in_any_order(order: tuple[str, str]) -> None:
    drawn = Weights(tied(), CPU).changed(torch.rand_like)
    shared = torch.zeros(3, 4)
    target = module(**dict.fromkeys(order, shared))
    load_by_name(target, drawn)
    assert shared.equal(drawn["first"])
