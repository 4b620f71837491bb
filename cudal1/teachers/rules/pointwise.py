"""Rules for chains of pointwise arithmetic, layout changes and small reductions."""

from __future__ import annotations

from typing import Final

from cudal1.teachers.rule import Rule

POINTWISE: Final = (
    Rule(
        "affine_chain",
        ("(_x * _c1 + _c2) * _c3",),
        fast=("_x * (_c1 * _c3) + _c2 * _c3",),
        mid=("(_x * _c1).add_(_c2).mul_(_c3)", "torch.add(_c2 * _c3, _x, alpha=_c1 * _c3)"),
        wrong=("_x * (_c1 * _c3) + _c2", "_x * (_c1 + _c3) + _c2 * _c3", "_x * _c1 + _c2 * _c3"),
    ),
    Rule(
        "affine_chain_4",
        ("(_x * _c1 + _c2) * _c3 + _c4",),
        fast=("_x * (_c1 * _c3) + (_c2 * _c3 + _c4)",),
        mid=("(_x * _c1).add_(_c2).mul_(_c3).add_(_c4)",),
        wrong=("_x * (_c1 * _c3) + (_c2 + _c4)", "_x * (_c1 * _c3) + _c2 * _c3"),
    ),
    Rule(
        "shift_scale",
        ("(_x + _c1) * _c2 + _c3",),
        fast=("_x * _c2 + (_c1 * _c2 + _c3)",),
        mid=("(_x + _c1).mul_(_c2).add_(_c3)",),
        wrong=("_x * _c2 + (_c1 + _c3)", "(_x + _c3) * _c2 + _c1"),
    ),
    Rule(
        "scale_twice",
        ("(_x * _c1) * _c2",),
        fast=("_x * (_c1 * _c2)",),
        mid=("(_x * _c1).mul_(_c2)",),
        wrong=("_x * (_c1 + _c2)", "_x * _c1"),
    ),
    Rule(
        "clamp_twice",
        (
            "torch.clamp(torch.clamp(_x, min=_c1), max=_c2)",
            "torch.clamp(torch.clamp(_x, max=_c2), min=_c1)",
            "torch.minimum(torch.maximum(_x, _c1), _c2)",
        ),
        fast=("torch.clamp(_x, min=_c1, max=_c2)", "F.hardtanh(_x, _c1, _c2)"),
        mid=("torch.clamp(_x, min=_c1).clamp_(max=_c2)",),
        wrong=(
            "torch.clamp(_x, min=_c1)",
            "torch.clamp(_x, max=_c2)",
            "torch.clamp(_x, _c1 + 0.5, _c2)",
            "torch.clamp(_x, low=_c1, high=_c2)",
        ),
    ),
    Rule(
        "double_transpose",
        (
            "_x.t().contiguous().t()",
            "_x.T.contiguous().T",
            "_x.transpose(0, 1).contiguous().transpose(0, 1)",
            "_x.t().clone().t()",
            "_x.T.T",
        ),
        fast=("_x",),
        mid=("_x.clone()",),
        wrong=("_x.t()", "_x.t().contiguous()"),
    ),
    Rule(
        "clone",
        ("_x.clone()", "_x.contiguous()", "_x.clone().contiguous()", "_x.contiguous().clone()"),
        fast=("_x",),
        mid=("_x.contiguous()",),
        slow=("_x.clone().clone()",),
        wrong=("_x.clone", "torch.zeros_like(_x)", "_x.clone().mul_(0.5)"),
    ),
    Rule(
        "power",
        ("_x ** 3 + _x ** 2", "_x ** 2 + _x ** 3"),
        fast=("_x * _x * (_x + 1.0)", "(_x + 1.0) * _x.square()"),
        mid=("_x * _x * _x + _x * _x",),
        slow=("torch.pow(_x, 3.0) + torch.pow(_x, 2.0)",),
        wrong=("_x * _x * (_x + 2.0)", "_x * (_x + 1.0)", "_x ** 5"),
    ),
    Rule(
        "cube",
        ("_x ** 3",),
        fast=("_x * _x * _x",),
        mid=("_x.square() * _x", "torch.pow(_x, 3)"),
        wrong=("_x * _x", "_x * 3.0"),
    ),
    Rule("quartic", ("_x ** 4",), fast=("_x.square().square_()",), wrong=("_x.square() * 2.0",)),
    Rule(
        "polynomial",
        (
            "_c1 + _x * _c2 + _x ** 2 * _c3 + _x ** 3 * _c4",
            "_c1 + _c2 * _x + _c3 * _x ** 2 + _c4 * _x ** 3",
        ),
        fast=("((_c4 * _x + _c3) * _x + _c2) * _x + _c1",),
        mid=("(_x * _c4).add_(_c3).mul_(_x).add_(_c2).mul_(_x).add_(_c1)",),
        wrong=("((_c3 * _x + _c4) * _x + _c2) * _x + _c1", "((_c4 * _x + _c3) * _x + _c2) * _x"),
    ),
    Rule(
        "repeated_tanh",
        (
            "torch.tanh(_x) + torch.tanh(_x) * torch.tanh(_x)",
            "torch.tanh(_x) * torch.tanh(_x) + torch.tanh(_x)",
        ),
        fast=(
            """
t = torch.tanh(_x)
t + t * t
""",
            """
t = torch.tanh(_x)
torch.addcmul(t, t, t)
""",
        ),
        mid=(
            """
t = torch.tanh(_x)
t * (t + 1.0)
""",
        ),
        wrong=("torch.tanh(_x + _x * _x)", "torch.tanh(_x) * 2.0", "torch.tanh(_x)"),
    ),
    Rule(
        "repeated_sigmoid",
        ("torch.sigmoid(_x) * (1.0 - torch.sigmoid(_x))",),
        fast=(
            """
t = torch.sigmoid(_x)
t - t * t
""",
        ),
        mid=(
            """
t = torch.sigmoid(_x)
t * (1.0 - t)
""",
            "torch.sigmoid(_x) * torch.sigmoid(-_x)",
        ),
        wrong=("torch.sigmoid(_x) * torch.sigmoid(_x)", "1.0 - torch.sigmoid(_x)"),
    ),
    Rule(
        "residual_scale",
        ("_x + _x * _c",),
        fast=("_x * (1.0 + _c)",),
        mid=("torch.add(_x, _x, alpha=_c)",),
        wrong=("_x * _c", "_x + _c"),
    ),
    Rule(
        "cumulative_sum",
        (
            "torch.stack([_x[:i + 1].sum(dim=0) for i in range(_x.shape[0])])",
            "torch.stack([_x[:i + 1].sum(dim=0) for i in range(_x.shape[0])], dim=0)",
            "torch.cat([_x[:i + 1].sum(dim=0, keepdim=True) for i in range(_x.shape[0])])",
            "torch.cat([_x[:i + 1].sum(dim=0, keepdim=True) for i in range(_x.shape[0])], dim=0)",
            "torch.tril(torch.ones(_x.shape[0], _x.shape[0])) @ _x",
        ),
        fast=("torch.cumsum(_x, dim=0)",),
        mid=("torch.tril(torch.ones(_x.shape[0], _x.shape[0], device=_x.device)) @ _x",),
        wrong=(
            "torch.cumsum(_x, dim=1)",
            "torch.cumsum(_x, dim=0) - _x",
            "torch.triu(torch.ones(_x.shape[0], _x.shape[0], device=_x.device)) @ _x",
            "torch.cumprod(_x, dim=0)",
        ),
    ),
    Rule(
        "cumulative_row_sum",
        tuple(
            f"_x @ torch.tril(torch.ones(_n1, _n1{device})).T"
            for device in ("", ", device=_x.device")
        ),
        fast=("torch.cumsum(_x, dim=-1)",),
        mid=("_x @ torch.triu(torch.ones(_x.shape[-1], _x.shape[-1], device=_x.device))",),
        wrong=(
            "torch.cumsum(_x, dim=0)",
            "_x @ torch.tril(torch.ones(_x.shape[-1], _x.shape[-1]))",
            "_x.sum(dim=-1, keepdim=True).expand_as(_x)",
        ),
    ),
    Rule(
        "relu_affine",
        ("torch.relu(_x) * _c1 + _c2",),
        fast=("torch.relu(_x).mul_(_c1).add_(_c2)",),
        mid=("torch.add(_c2, torch.relu(_x), alpha=_c1)",),
        wrong=(
            "torch.relu(_x * _c1 + _c2)",
            "torch.relu(_x).add_(_c2).mul_(_c1)",
            "_x * _c1 + _c2",
        ),
    ),
    Rule(
        "relu_of_sum",
        ("torch.relu(_x + _y)",),
        fast=("torch.add(_x, _y).relu_()",),
        mid=("torch.clamp(_x + _y, min=0.0)",),
        wrong=("torch.relu(_x) + torch.relu(_y)", "torch.relu(_x) + _y"),
    ),
    Rule(
        "broadcast_expand",
        (
            "_x * _s.unsqueeze(0).expand(_x.shape[0], _x.shape[1]).contiguous()",
            "_x * _s.unsqueeze(0).repeat(_x.shape[0], 1)",
            "_x * _s.repeat(_x.shape[0], 1)",
        ),
        fast=("_x * _s",),
        mid=("_x * _s.unsqueeze(0).expand_as(_x)",),
        wrong=("_x * _s[0]", "_x + _s"),
    ),
    Rule(
        "affine_vector",
        ("_x * _p1 + _p2",),
        fast=("torch.addcmul(_p2, _x, _p1)",),
        mid=("(_x * _p1).add_(_p2)",),
        wrong=("_x * _p1 - _p2", "(_x + _p2) * _p1", "_x * _p1"),
    ),
)
