"""Rules for activation functions written as formulas."""

from __future__ import annotations

from itertools import product
from typing import Final

from cudal1.teachers.rule import Rule

_TANH_ARGUMENT = (
    "0.7978845608 * (_x + 0.044715 * _x ** 3)",
    "0.7978845608 * _x * (1.0 + 0.044715 * _x ** 2)",
)
_TANH_FORMS = (
    "0.5 * _x * (1.0 + torch.tanh({}))",
    "0.5 * (_x * (1.0 + torch.tanh({})))",
    "_x * (0.5 * (1.0 + torch.tanh({})))",
)
_ERF_ARGUMENT = ("_x / 1.4142135624", "_x * 0.7071067812")
_SIGMOIDS = ("torch.sigmoid(_x)", "1.0 / (1.0 + torch.exp(-_x))")
_SOFTPLUS = ("torch.log(1.0 + torch.exp(_x))", "torch.log1p(torch.exp(_x))")
_SOFTPLUS_REST = (
    "torch.log1p(torch.exp(-torch.abs(_x)))",
    "torch.log(1.0 + torch.exp(-torch.abs(_x)))",
)

ACTIVATIONS: Final = (
    Rule(
        "gelu_tanh",
        tuple(form.format(argument) for form, argument in product(_TANH_FORMS, _TANH_ARGUMENT)),
        fast=('F.gelu(_x, approximate="tanh")',),
        mid=(
            "_x * torch.sigmoid(1.5957691216 * (_x + 0.044715 * _x * _x * _x))",
            "0.5 * _x * (1.0 + torch.tanh(0.7978845608 * _x * (1.0 + 0.044715 * _x * _x)))",
        ),
        slow=('F.gelu(_x.double(), approximate="tanh").float()',),
        wrong=(
            "torch.relu(_x)",
            "_x * torch.sigmoid(_x)",
            "0.5 * _x * (1.0 + torch.tanh(0.44715 * _x))",
            'F.gelu(_x, approximation="tanh")',
        ),
    ),
    Rule(
        "gelu_erf",
        tuple(
            form.format(argument)
            for form in (
                "0.5 * _x * (1.0 + torch.erf({}))",
                "_x * 0.5 * (1.0 + torch.erf({}))",
                "0.5 * (_x * (1.0 + torch.erf({})))",
            )
            for argument in _ERF_ARGUMENT
        ),
        fast=("F.gelu(_x)",),
        mid=(
            "0.5 * torch.addcmul(_x, _x, torch.erf(_x * 0.7071067812))",
            "_x * torch.special.ndtr(_x)",
        ),
        slow=("F.gelu(_x.double()).float()",),
        wrong=(
            "torch.relu(_x)",
            "F.silu(_x)",
            "0.5 * _x * (1.0 + torch.erf(_x))",
            "F.gelu(_x) * 0.5",
        ),
    ),
    Rule(
        "silu",
        (*tuple(f"_x * {s}" for s in _SIGMOIDS), "_x / (1.0 + torch.exp(-_x))"),
        fast=("F.silu(_x)",),
        mid=(
            "torch.sigmoid(_x).mul_(_x)",
            "_x / (1.0 + torch.exp(-_x))",
            "torch.mul(_x, torch.sigmoid(_x))",
        ),
        slow=("0.5 * _x * (1.0 + torch.tanh(0.5 * _x))",),
        wrong=(
            "torch.relu(_x)",
            "torch.sigmoid(_x)",
            "F.silu(_x, beta=1.0)",
            "_x * torch.tanh(_x)",
        ),
    ),
    Rule(
        "quick_gelu",
        ("_x * torch.sigmoid(_c * _x)",),
        fast=("F.silu(_x * _c) * (1.0 / _c)",),
        mid=("torch.sigmoid(_x * _c).mul_(_x)",),
        wrong=("F.silu(_x)", "F.silu(_x * _c)"),
    ),
    Rule(
        "sigmoid_formula",
        ("1.0 / (1.0 + torch.exp(-_x))",),
        fast=("torch.sigmoid(_x)",),
        mid=("torch.exp(-_x).add_(1.0).reciprocal_()", "0.5 + 0.5 * torch.tanh(0.5 * _x)"),
        wrong=("torch.sigmoid(-_x)", "torch.tanh(_x)", "1.0 / (1.0 + torch.exp(_x))"),
    ),
    Rule(
        "tanh_formula",
        (
            "(torch.exp(_x) - torch.exp(-_x)) / (torch.exp(_x) + torch.exp(-_x))",
            "2.0 * torch.sigmoid(2.0 * _x) - 1.0",
        ),
        fast=("torch.tanh(_x)",),
        mid=("2.0 * torch.sigmoid(2.0 * _x) - 1.0",),
        wrong=("torch.sigmoid(_x)", "torch.tanh(2.0 * _x)"),
    ),
    Rule(
        "softplus",
        (
            *_SOFTPLUS,
            *(
                f"{positive} + {rest}"
                for positive, rest in product(
                    ("torch.clamp(_x, min=0.0)", "torch.relu(_x)"), _SOFTPLUS_REST
                )
            ),
        ),
        fast=("F.softplus(_x)",),
        mid=(
            "torch.clamp(_x, min=0.0) + torch.log1p(torch.exp(-torch.abs(_x)))",
            "-F.logsigmoid(-_x)",
        ),
        slow=("F.softplus(_x.double()).float()",),
        wrong=(
            "torch.relu(_x)",
            "F.softplus(_x, beta=2.0)",
            "torch.log(torch.exp(_x))",
            "F.softplus(-_x)",
        ),
    ),
    Rule(
        "mish",
        tuple(f"_x * torch.tanh({s})" for s in (*_SOFTPLUS, "F.softplus(_x)")),
        fast=("F.mish(_x)",),
        mid=("_x * torch.tanh(F.softplus(_x))",),
        wrong=("F.silu(_x)", "_x * torch.tanh(_x)", "F.mish(-_x)"),
    ),
    Rule(
        "hardswish",
        (
            "_x * torch.clamp(_x + 3.0, min=0.0, max=6.0) / 6.0",
            "_x * (torch.clamp(_x + 3.0, min=0.0, max=6.0) / 6.0)",
            "_x * F.relu6(_x + 3.0) / 6.0",
        ),
        fast=("F.hardswish(_x)",),
        mid=("_x * F.hardsigmoid(_x)", "(_x + 3.0).clamp_(0.0, 6.0).mul_(_x).mul_(0.16666666667)"),
        wrong=("F.hardsigmoid(_x)", "_x * torch.clamp(_x + 3.0, min=0.0, max=6.0)", "F.silu(_x)"),
    ),
    Rule(
        "hardsigmoid",
        (
            "torch.clamp(_x + 3.0, min=0.0, max=6.0) / 6.0",
            "torch.clamp(_x / 6.0 + 0.5, min=0.0, max=1.0)",
        ),
        fast=("F.hardsigmoid(_x)",),
        mid=("(_x + 3.0).clamp_(0.0, 6.0).mul_(0.16666666667)",),
        wrong=("F.hardswish(_x)", "torch.sigmoid(_x)"),
    ),
    Rule(
        "leaky_relu",
        (
            "torch.where(_x > 0, _x, _c * _x)",
            "torch.where(_x > 0.0, _x, _c * _x)",
            "torch.where(_x >= 0, _x, _c * _x)",
            "torch.relu(_x) - _c * torch.relu(-_x)",
            "torch.clamp(_x, min=0.0) + _c * torch.clamp(_x, max=0.0)",
        ),
        fast=("F.leaky_relu(_x, _c)",),
        mid=(
            "torch.clamp(_x, min=0.0) + _c * torch.clamp(_x, max=0.0)",
            "torch.relu(_x) - _c * torch.relu(-_x)",
        ),
        wrong=("torch.relu(_x)", "F.leaky_relu(_x, 0.5 + _c)", "F.leaky_relu(_x, slope=_c)"),
    ),
    Rule(
        "elu",
        (
            "torch.where(_x > 0, _x, torch.exp(_x) - 1.0)",
            "torch.where(_x > 0, _x, torch.expm1(_x))",
        ),
        fast=("F.elu(_x)",),
        mid=(
            "torch.where(_x > 0, _x, torch.expm1(_x))",
            "torch.relu(_x) + torch.expm1(torch.clamp(_x, max=0.0))",
        ),
        wrong=("torch.relu(_x)", "F.elu(_x, alpha=0.5)", "F.selu(_x)"),
    ),
    Rule(
        "relu_formula",
        (
            "torch.where(_x > 0, _x, torch.zeros_like(_x))",
            "torch.where(_x > 0, _x, 0.0)",
            "_x * (_x > 0)",
            "_x * (_x > 0).float()",
            "0.5 * (_x + torch.abs(_x))",
            "torch.maximum(_x, torch.zeros_like(_x))",
        ),
        fast=("torch.relu(_x)",),
        mid=("torch.clamp(_x, min=0.0)",),
        wrong=("torch.abs(_x)", "torch.clamp(_x, max=0.0)"),
    ),
    Rule(
        "relu_square",
        ("torch.relu(_x) * torch.relu(_x)", "torch.relu(_x) ** 2"),
        fast=("torch.relu(_x).square_()", "torch.relu(_x) * _x"),
        mid=(
            """
r = torch.relu(_x)
r * r
""",
        ),
        slow=("torch.relu(_x) * torch.clamp(_x, min=0.0)",),
        wrong=("torch.relu(_x)", "_x * _x", "torch.relu(_x) * torch.abs(_x) * 2.0"),
    ),
)
