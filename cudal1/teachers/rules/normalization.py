"""Rules for softmax and its relatives, and for normalisations written out by hand.

The module is long because it is a table.
"""

# ruff: noqa: E501 -- a pattern is one expression
from __future__ import annotations

from typing import Final

from cudal1.teachers.rule import Rule

_CENTRED = """
mean = _x.mean(dim=_l, keepdim=True)
var = ((_x - mean) ** 2).mean(dim=_l, keepdim=True)
"""
_BUILT_IN_VARIANCE = """
mean = _x.mean(dim=_l, keepdim=True)
var = _x.var(dim=_l, keepdim=True, unbiased=False)
"""
_NORMED = "(_x - mean) / torch.sqrt(var + _c)"
_STATISTICS = (_CENTRED, _BUILT_IN_VARIANCE)

NORMALIZATION: Final = (
    Rule(
        "softmax",
        (
            """
m = _x.max(dim=_d, keepdim=True).values
e = torch.exp(_x - m)
e / e.sum(dim=_d, keepdim=True)
""",
            """
m = torch.amax(_x, dim=_d, keepdim=True)
e = torch.exp(_x - m)
e / e.sum(dim=_d, keepdim=True)
""",
            """
e = torch.exp(_x)
e / e.sum(dim=_d, keepdim=True)
""",
        ),
        fast=("torch.softmax(_x, dim=_d)",),
        mid=(
            "torch.exp(_x - torch.logsumexp(_x, dim=_d, keepdim=True))",
            """
e = torch.exp(_x - torch.amax(_x, dim=_d, keepdim=True))
e / e.sum(dim=_d, keepdim=True)
""",
            "torch.exp(torch.log_softmax(_x, dim=_d))",
        ),
        slow=("torch.softmax(_x.double(), dim=_d).float()",),
        wrong=(
            "torch.softmax(_x, dim=1 if _d == 0 else 0)",
            "torch.log_softmax(_x, dim=_d)",
            """
e = torch.exp(_x - torch.amax(_x, dim=_d, keepdim=True))
e / e.sum()
""",
        ),
    ),
    Rule(
        "log_softmax",
        (
            """
m = _x.max(dim=_d, keepdim=True).values
z = _x - m
z - torch.log(torch.exp(z).sum(dim=_d, keepdim=True))
""",
            """
m = torch.amax(_x, dim=_d, keepdim=True)
z = _x - m
z - torch.log(torch.exp(z).sum(dim=_d, keepdim=True))
""",
            "_x - torch.logsumexp(_x, dim=_d, keepdim=True)",
            "torch.log(torch.softmax(_x, dim=_d))",
        ),
        fast=("torch.log_softmax(_x, dim=_d)",),
        mid=(
            "torch.log(torch.softmax(_x, dim=_d))",
            "_x - torch.logsumexp(_x, dim=_d, keepdim=True)",
        ),
        slow=("torch.log_softmax(_x.double(), dim=_d).float()",),
        wrong=("torch.softmax(_x, dim=_d)", "torch.log_softmax(_x, dim=1 if _d == 0 else 0)"),
    ),
    Rule(
        "logsumexp",
        (
            """
m = _x.max(dim=_d, keepdim=True).values
m + torch.log(torch.exp(_x - m).sum(dim=_d, keepdim=True))
""",
            """
m = torch.amax(_x, dim=_d, keepdim=True)
m + torch.log(torch.exp(_x - m).sum(dim=_d, keepdim=True))
""",
            "torch.log(torch.exp(_x).sum(dim=_d, keepdim=True))",
        ),
        fast=("torch.logsumexp(_x, dim=_d, keepdim=True)",),
        mid=(
            """
m = torch.amax(_x, dim=_d, keepdim=True)
m + (_x - m).exp_().sum(dim=_d, keepdim=True).log_()
""",
            "torch.log(torch.exp(_x).sum(dim=_d, keepdim=True))",
        ),
        wrong=(
            "torch.logsumexp(_x, dim=_d)",
            "torch.amax(_x, dim=_d, keepdim=True)",
            "torch.log(_x.sum(dim=_d, keepdim=True))",
        ),
    ),
    Rule(
        "logsumexp_flat",
        (
            """
m = _x.max(dim=_d, keepdim=True).values
(m + torch.log(torch.exp(_x - m).sum(dim=_d, keepdim=True))).squeeze(_d)
""",
            "torch.log(torch.exp(_x).sum(dim=_d))",
        ),
        fast=("torch.logsumexp(_x, dim=_d)",),
        wrong=("torch.amax(_x, dim=_d)", "torch.logsumexp(_x, dim=_d, keepdim=True)"),
    ),
    Rule(
        "layer_norm",
        tuple(f"{s}\n{_NORMED} * _w + _b" for s in _STATISTICS),
        fast=("F.layer_norm(_x, _x.shape[-1:], _w, _b, eps=_c)",),
        mid=(
            "F.layer_norm(_x, _x.shape[-1:], eps=_c) * _w + _b",
            """
d = _x - _x.mean(dim=-1, keepdim=True)
d * torch.rsqrt((d * d).mean(dim=-1, keepdim=True) + _c) * _w + _b
""",
        ),
        slow=(
            "F.layer_norm(_x.double(), _x.shape[-1:], _w.double(), _b.double(), eps=_c).float()",
        ),
        wrong=(
            "F.layer_norm(_x, _x.shape[-1:], _w, eps=_c) + _b.mean()",
            "F.layer_norm(_x, _x.shape, _w.expand_as(_x), _b.expand_as(_x), eps=_c)",
            "F.layer_norm(_x, _x.shape[:1], _w, _b, eps=_c + 1.0)",
            "F.rms_norm(_x, _x.shape[-1:], _w, eps=_c) + _b + _x",
        ),
    ),
    Rule(
        "standardize",
        tuple(
            f"{s}\n{n}"
            for s in _STATISTICS
            for n in (_NORMED, "(_x - mean) * torch.rsqrt(var + _c)")
        ),
        fast=("F.layer_norm(_x, _x.shape[-1:], eps=_c)",),
        mid=(
            """
d = _x - _x.mean(dim=-1, keepdim=True)
d * torch.rsqrt((d * d).mean(dim=-1, keepdim=True) + _c)
""",
            """
var = _x.var(dim=-1, keepdim=True, unbiased=False)
(_x - _x.mean(dim=-1, keepdim=True)) * torch.rsqrt(var + _c)
""",
        ),
        slow=("F.layer_norm(_x.double(), _x.shape[-1:], eps=_c).float()",),
        wrong=(
            "F.layer_norm(_x, _x.shape, eps=_c)",
            "(_x - _x.mean(dim=-1, keepdim=True)) / (_x.var(dim=-1, keepdim=True) + _c)",
            "F.layer_norm(_x, _x.shape[-1:], eps=1.0)",
        ),
    ),
    Rule(
        "rms_norm",
        tuple(
            f"ms = (_x ** 2).mean(dim=_l, keepdim=True)\n{tail}"
            for tail in (
                "_x / torch.sqrt(ms + _c) * _w",
                "_x * torch.rsqrt(ms + _c) * _w",
                "_w * (_x / torch.sqrt(ms + _c))",
            )
        ),
        fast=("F.rms_norm(_x, _x.shape[-1:], _w, eps=_c)",),
        mid=(
            "_x * torch.rsqrt((_x * _x).mean(dim=-1, keepdim=True) + _c) * _w",
            "_x * torch.rsqrt(torch.linalg.vecdot(_x, _x).unsqueeze(-1) / _x.shape[-1] + _c) * _w",
        ),
        slow=("F.rms_norm(_x.double(), _x.shape[-1:], _w.double(), eps=_c).float()",),
        wrong=(
            "F.layer_norm(_x, _x.shape[-1:], _w, eps=1.0)",
            "_x * torch.rsqrt((_x * _x).sum(dim=-1, keepdim=True) + _c) * _w",
            "F.rms_norm(_x, _x.shape[-1:], eps=_c)",
        ),
    ),
    Rule(
        "rms_norm_plain",
        tuple(
            f"ms = (_x ** 2).mean(dim=_l, keepdim=True)\n{tail}"
            for tail in ("_x / torch.sqrt(ms + _c)", "_x * torch.rsqrt(ms + _c)")
        ),
        fast=("F.rms_norm(_x, _x.shape[-1:], eps=_c)",),
        mid=("_x * torch.rsqrt((_x * _x).mean(dim=-1, keepdim=True) + _c)",),
        wrong=(
            "F.rms_norm(_x, _x.shape, eps=_c)",
            "_x * torch.rsqrt((_x * _x).sum(dim=-1, keepdim=True) + _c)",
        ),
    ),
    Rule(
        "l2_normalize",
        tuple(
            f"n = {norm}\n{tail}"
            for norm in (
                "torch.sqrt((_x ** 2).sum(dim=_d, keepdim=True))",
                "_x.norm(dim=_d, keepdim=True)",
                "_x.norm(p=2, dim=_d, keepdim=True)",
            )
            for tail in ("_x / (n + _e)", "_x / n", "_x / torch.clamp(n, min=_e)")
        ),
        fast=("F.normalize(_x, dim=_d)",),
        mid=(
            "_x * torch.rsqrt((_x * _x).sum(dim=_d, keepdim=True))",
            "_x / torch.linalg.vector_norm(_x, dim=_d, keepdim=True)",
        ),
        wrong=(
            "F.normalize(_x, dim=1 if _d == 0 else 0)",
            "F.normalize(_x, p=1.0, dim=_d)",
            "_x / (_x * _x).sum(dim=_d, keepdim=True)",
            "F.normalize(_x, dim=_d, epsilon=1e-12)",
        ),
    ),
    Rule(
        "column_norm",
        tuple(
            f"mean = _x.mean(dim=0, keepdim=True)\nvar = {var}\n{tail}"
            for var in (
                "((_x - mean) ** 2).mean(dim=0, keepdim=True)",
                "_x.var(dim=0, keepdim=True, unbiased=False)",
            )
            for tail in (
                "(_x - mean) / torch.sqrt(var + _c)",
                "(_x - mean) * torch.rsqrt(var + _c)",
            )
        ),
        fast=("F.batch_norm(_x, None, None, training=True, eps=_c)",),
        mid=(
            """
d = _x - _x.mean(dim=0, keepdim=True)
d * torch.rsqrt((d * d).mean(dim=0, keepdim=True) + _c)
""",
            "F.layer_norm(_x.t().contiguous(), _x.shape[:1], eps=_c).t()",
        ),
        wrong=(
            "F.layer_norm(_x, _x.shape[-1:], eps=_c)",
            "F.batch_norm(_x, None, None, eps=_c)",
            "F.batch_norm(_x, None, None, training=True, eps=1.0)",
        ),
    ),
    Rule(
        "instance_norm",
        tuple(
            f"mean = _x.mean(dim={dims}, keepdim=True)\nvar = {var}\n{tail}"
            for dims in ("(2, 3)", "(-2, -1)", "[2, 3]")
            for var in (
                f"((_x - mean) ** 2).mean(dim={dims}, keepdim=True)",
                f"_x.var(dim={dims}, keepdim=True, unbiased=False)",
            )
            for tail in (
                "(_x - mean) / torch.sqrt(var + _c)",
                "(_x - mean) * torch.rsqrt(var + _c)",
            )
        ),
        fast=("F.instance_norm(_x, eps=_c)", "F.layer_norm(_x, _x.shape[-2:], eps=_c)"),
        mid=(
            """
d = _x - _x.mean(dim=(2, 3), keepdim=True)
d * torch.rsqrt((d * d).mean(dim=(2, 3), keepdim=True) + _c)
""",
        ),
        wrong=(
            "F.layer_norm(_x, _x.shape[-1:], eps=_c)",
            "F.layer_norm(_x, _x.shape[-3:], eps=_c)",
            "F.instance_norm(_x, eps=1.0)",
        ),
    ),
    Rule(
        "channel_norm",
        tuple(
            f"mean = _x.mean(dim=(0, 2, 3), keepdim=True)\nvar = {var}\n{tail}"
            for var in (
                "((_x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)",
                "_x.var(dim=(0, 2, 3), keepdim=True, unbiased=False)",
            )
            for tail in (
                "(_x - mean) / torch.sqrt(var + _c)",
                "(_x - mean) * torch.rsqrt(var + _c)",
            )
        ),
        fast=("F.batch_norm(_x, None, None, training=True, eps=_c)",),
        mid=(
            """
d = _x - _x.mean(dim=(0, 2, 3), keepdim=True)
d * torch.rsqrt((d * d).mean(dim=(0, 2, 3), keepdim=True) + _c)
""",
        ),
        wrong=("F.instance_norm(_x, eps=_c + 1.0)", "F.batch_norm(_x, None, None, eps=_c)"),
    ),
    Rule(
        "batch_norm_inference",
        (
            "(_x - _m.view(1, -1, 1, 1)) / torch.sqrt(_v.view(1, -1, 1, 1) + _c) * _w.view(1, -1, 1, 1) + _b.view(1, -1, 1, 1)",
            "(_x - _m.reshape(1, -1, 1, 1)) / torch.sqrt(_v.reshape(1, -1, 1, 1) + _c) * _w.reshape(1, -1, 1, 1) + _b.reshape(1, -1, 1, 1)",
            "(_x - _m[None, :, None, None]) / torch.sqrt(_v[None, :, None, None] + _c) * _w[None, :, None, None] + _b[None, :, None, None]",
            "(_x - self.running_mean) / torch.sqrt(self.running_var + _c) * self.weight + self.bias",
        ),
        fast=(
            "F.batch_norm(_x, _m, _v, _w, _b, eps=_c)",
            """
scale = _w * torch.rsqrt(_v + _c)
torch.addcmul((_b - _m * scale).view(1, -1, 1, 1), _x, scale.view(1, -1, 1, 1))
""",
        ),
        wrong=(
            "F.batch_norm(_x, _m, _v, _w, _b, training=True, eps=_c)",
            "F.batch_norm(_x, _m, _v, _w, eps=_c)",
        ),
    ),
)
