"""Tests that the practitioner's rules for layers and operators compute what the reference does."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from cudal1.teachers import Kind, Weights, compose, places, variant

FORWARDS = {
    "conv": ("nn.Conv2d(3, 4, 3, padding=1)", "self.layer(x)", (2, 3, 8, 8)),
    "conv without bias": ("nn.Conv1d(3, 4, 3, bias=False)", "self.layer(x) * 2.0", (2, 3, 8)),
    "conv scaled": ("nn.Conv3d(3, 4, 2)", "self.layer(x) * 3.0", (2, 3, 4, 4, 4)),
    "conv shifted": ("nn.Conv2d(3, 4, 3)", "(self.layer(x) - 0.5) / 2.0", (2, 3, 8, 8)),
    "conv biased": ("nn.Conv2d(3, 4, 3)", "self.layer(x) + self.p", (2, 3, 8, 8)),
    "conv by channel": ("nn.Conv2d(3, 4, 3)", "self.layer(x) * self.p", (2, 3, 8, 8)),
    "transposed": (
        "nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1, groups=2)",
        "self.layer(x) - self.p",
        (2, 4, 5, 5),
    ),
    "linear": ("nn.Linear(6, 4)", "self.layer(x) / 4.0", (3, 6)),
    "batch norm": ("nn.BatchNorm2d(3)", "self.layer(x)", (4, 3, 5, 5)),
    "group norm": ("nn.GroupNorm(2, 4)", "self.layer(x)", (4, 4, 5)),
    "layer norm": ("nn.LayerNorm(6)", "self.layer(x)", (4, 6)),
    "max pool": ("nn.MaxPool2d(3, stride=2, padding=1)", "self.layer(x)", (2, 3, 9, 9)),
    "average pool": ("nn.AvgPool3d(2)", "self.layer(self.layer(x))", (2, 3, 9, 9, 9)),
    "leaky relu": ("nn.LeakyReLU(0.2)", "self.layer(x)", (5, 7)),
    "product": (None, "torch.matmul(x, x)", (6, 6)),
    "both transposed": (None, "torch.matmul(x.T, x.T)", (6, 6)),
    "triangle": (None, "torch.tril(torch.matmul(x, x))", (6, 6)),
    "softmax": (None, "torch.softmax(x, dim=1)", (5, 7)),
    "largest": (None, "torch.max(x, dim=1, keepdim=True)[0]", (5, 7)),
    "sum backwards": (None, "torch.cumsum(x.flip(1), dim=1).flip(1)", (5, 7)),
    "hinge": (None, "torch.mean(torch.clamp(1 - x * torch.tanh(x), min=0))", (5, 7)),
    "frobenius": (None, "x / torch.norm(x, p='fro')", (5, 7)),
}
MODULE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}
        self.p = nn.Parameter(torch.randn({shape}))

    def forward(self, x):
        return {value}
"""
MATMUL = MODULE.format(layer="None", shape="1", value="torch.matmul(x, x)")


def source_of(name: str) -> str:
    layer, value, shape = FORWARDS[name]
    channels = "1" if layer is None else ", ".join(["4", *["1"] * (len(shape) - 2)])
    return MODULE.format(layer=layer, value=value, shape=channels)


def output(source: str, cls: str, x: torch.Tensor) -> torch.Tensor:
    names: dict[str, Any] = {}
    exec(source, names)
    torch.manual_seed(0)
    with torch.no_grad():
        return names[cls]()(x.clone())


@pytest.mark.parametrize("name", FORWARDS)
def test_every_honest_form_computes_what_the_reference_does(name: str) -> None:
    source = source_of(name)
    torch.manual_seed(1)
    x = torch.randn(FORWARDS[name][2])
    expected, found = output(source, "Model", x), places(source, operators=True)
    num_forms = 0
    for at, place in enumerate(found):
        for number, option in enumerate(place.options):
            if option.kind is Kind.WRONG:
                continue
            choices: list[int | None] = [None] * len(found)
            choices[at] = number
            made = output(compose(source, choices, operators=True).source, "ModelNew", x)
            torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5, msg=option.name)
            num_forms += 1
    assert num_forms > 0


def test_a_layer_that_may_lack_a_bias_has_nothing_folded_into_it() -> None:
    found = places(source_of("conv without bias"), operators=True)
    assert "conv1d_scaled" not in {family for place in found for family in place.families}


def test_other_teachers_leave_single_operators_alone() -> None:
    assert places(MATMUL) == ()
    always = Weights({Kind.FAST: 0.5, Kind.MID: 0.5})
    made = variant(MATMUL, rng=random.Random(0), weights=always)
    assert made.kind is Kind.REFERENCE
