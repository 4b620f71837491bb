"""Rules that remove or reorder linear algebra."""

# ruff: noqa: E501 -- a pattern is one expression
from __future__ import annotations

from typing import Final

from cudal1.teachers.rule import Rule

_EXPLICIT = (
    "_x @ _w.T + _b",
    'torch.einsum("bi,oi->bo", _x, _w) + _b',
    "torch.einsum('ij,kj->ik', _x, _w) + _b",
)

ALGEBRA: Final = (
    Rule(
        "diag_left",
        ("torch.diag(_s) @ _x",),
        fast=("_s.unsqueeze(1) * _x", "_x * _s[:, None]"),
        mid=(
            "torch.mm(torch.diag(_s), _x)",
            'torch.einsum("i,ij->ij", _s, _x)',
            "(_x.t() * _s).t()",
        ),
        slow=("torch.eye(_s.shape[0], device=_x.device) * _s @ _x",),
        wrong=(
            "_x * _s[0]",
            "_s.unsqueeze(1) + _x",
            "torch.diag(_s) * _x",
            "_s.unsqueeze(-1) * _x.T",
        ),
    ),
    Rule(
        "diag_right",
        ("_x @ torch.diag(_s)",),
        fast=("_x * _s",),
        mid=(
            "torch.mm(_x, torch.diag(_s))",
            'torch.einsum("ij,j->ij", _x, _s)',
            "(_x.t() * _s.unsqueeze(1)).t()",
        ),
        slow=("_x @ (torch.eye(_s.shape[0], device=_x.device) * _s)",),
        wrong=("_x * _s[0]", "_x + _s", "_x * torch.diag(_s)", "_x * _s.mean()"),
    ),
    Rule(
        "linear_sum",
        ("_lin(_x).sum(dim=_l, keepdim=True)",),
        fast=(
            "_x @ _lin.weight.sum(dim=0).unsqueeze(1) + _lin.bias.sum()",
            "F.linear(_x, _lin.weight.sum(dim=0, keepdim=True), _lin.bias.sum().unsqueeze(0))",
        ),
        mid=("(_lin(_x) @ torch.ones(_lin.weight.shape[0], 1, device=_x.device))",),
        wrong=(
            "_x @ _lin.weight.sum(dim=0).unsqueeze(1)",
            "_x @ _lin.weight.sum(dim=0) + _lin.bias.sum()",
            "_x @ _lin.weight.sum(dim=0).unsqueeze(1) + _lin.bias.mean()",
            "_lin(_x).sum(dim=0, keepdim=True)",
        ),
    ),
    Rule(
        "linear_sum_flat",
        ("_lin(_x).sum(dim=_l)",),
        fast=("_x @ _lin.weight.sum(dim=0) + _lin.bias.sum()",),
        wrong=("_x @ _lin.weight.sum(dim=0)", "_x @ _lin.weight.sum(dim=1) + _lin.bias.sum()"),
    ),
    Rule(
        "linear_mean",
        ("_lin(_x).mean(dim=_l, keepdim=True)",),
        fast=("_x @ _lin.weight.mean(dim=0).unsqueeze(1) + _lin.bias.mean()",),
        mid=("_lin(_x).sum(dim=_l, keepdim=True) / _lin.weight.shape[0]",),
        wrong=(
            "_x @ _lin.weight.sum(dim=0).unsqueeze(1) + _lin.bias.sum()",
            "_x @ _lin.weight.mean(dim=0).unsqueeze(1)",
            "_x.mean(dim=-1, keepdim=True) @ _lin.weight",
        ),
    ),
    Rule(
        "linear_mean_flat",
        ("_lin(_x).mean(dim=_l)",),
        fast=("_x @ _lin.weight.mean(dim=0) + _lin.bias.mean()",),
        wrong=("_x @ _lin.weight.mean(dim=0)",),
    ),
    Rule(
        "matmul_sum",
        ("(_x @ _w).sum(dim=_l, keepdim=True)", "torch.sum(_x @ _w, dim=_l, keepdim=True)"),
        fast=("_x @ _w.sum(dim=1, keepdim=True)",),
        wrong=(
            "_x.sum(dim=-1, keepdim=True) @ _w",
            "_x @ _w.mean(dim=1, keepdim=True)",
            "_x @ _w.sum(dim=1)",
        ),
    ),
    Rule(
        "matmul_sum_flat",
        ("(_x @ _w).sum(dim=_l)",),
        fast=("_x @ _w.sum(dim=-1)",),
        wrong=("_x @ _w.sum(dim=0)", "_x @ _w.mean(dim=-1)"),
    ),
    Rule(
        "matmul_mean",
        ("(_x @ _w).mean(dim=0, keepdim=True)", "torch.mean(_x @ _w, dim=0, keepdim=True)"),
        fast=("_x.mean(dim=0, keepdim=True) @ _w",),
        mid=("torch.ones(1, _x.shape[0], device=_x.device) @ (_x @ _w) / _x.shape[0]",),
        wrong=("_x.sum(dim=0, keepdim=True) @ _w", "_x.mean(dim=0) @ _w", "_x[:1] @ _w"),
    ),
    Rule(
        "linear_row_mean",
        ("_lin(_x).mean(dim=0, keepdim=True)",),
        fast=("_lin(_x.mean(dim=0, keepdim=True))",),
        wrong=("_lin(_x.sum(dim=0, keepdim=True))", "_lin(_x.mean(dim=0))"),
    ),
    Rule(
        "explicit_linear",
        _EXPLICIT,
        fast=("F.linear(_x, _w, _b)", "torch.addmm(_b, _x, _w.t())"),
        mid=(
            "torch.mm(_x, _w.t()) + _b",
            "torch.mm(_x, _w.t()).add_(_b)",
            "(_w @ _x.t()).t() + _b",
        ),
        slow=("F.linear(_x, _w.t().contiguous().t(), _b)",),
        wrong=(
            "F.linear(_x, _w)",
            "F.linear(_x, _w.t(), -_b)",
            "F.linear(_x, _w, _b + 1.0)",
            "F.linear(_x, bias=_b)",
        ),
    ),
    Rule(
        "einsum_matmul",
        (
            'torch.einsum("bi,oi->bo", _x, _w)',
            'torch.einsum("ij,kj->ik", _x, _w)',
            'torch.einsum("bi,io->bo", _x, _w.T)',
            "_x @ _w.T.contiguous()",
            "torch.matmul(_x, _w.transpose(0, 1).contiguous())",
        ),
        fast=("F.linear(_x, _w)", "_x @ _w.t()"),
        mid=("(_w @ _x.t()).t()",),
        wrong=("_x @ _w", "F.linear(_x, _w.t()) * 2.0"),
    ),
    Rule(
        "einsum_product",
        (
            'torch.einsum("bi,io->bo", _x, _w)',
            'torch.einsum("ij,jk->ik", _x, _w)',
            "(_x.unsqueeze(2) * _w).sum(dim=1)",
            "(_x.unsqueeze(-1) * _w).sum(dim=1)",
            "(_x.unsqueeze(2) * _w.unsqueeze(0)).sum(dim=1)",
            "torch.sum(_x.unsqueeze(2) * _w, dim=1)",
        ),
        fast=("_x @ _w", "torch.mm(_x, _w)"),
        mid=("(_w.t() @ _x.t()).t()", 'torch.einsum("ij,jk->ik", _x, _w)'),
        wrong=("_x @ _w.t() * 2.0", "_x @ _w + 1.0", "(_x @ _w) / _x.shape[1]"),
    ),
    Rule(
        "linear_chain",
        ("_lin2(_lin1(_x))",),
        fast=(
            "F.linear(_x, _lin2.weight @ _lin1.weight, F.linear(_lin1.bias, _lin2.weight, _lin2.bias))",
        ),
        mid=("torch.addmm(_lin2.bias, _lin1(_x), _lin2.weight.t())",),
        wrong=(
            "F.linear(_x, _lin1.weight @ _lin2.weight, _lin2.bias)",
            "F.linear(_x, _lin2.weight @ _lin1.weight, _lin1.bias + _lin2.bias)",
            "F.linear(_x, _lin2.weight @ _lin1.weight)",
        ),
    ),
    Rule(
        "low_rank",
        ("_x @ (_u @ _v)", "(_u @ _v).mul(1.0) @ _x"),
        fast=("(_x @ _u) @ _v", "torch.mm(torch.mm(_x, _u), _v)"),
        mid=("torch.linalg.multi_dot([_x, _u, _v])", "torch.mm(_x, torch.mm(_u, _v))"),
        wrong=("(_x @ _v.t()) @ _u.t() * 2.0", "(_x @ _u) @ _v / _u.shape[1]", "_x @ _u + _v"),
    ),
    Rule(
        "reassociate",
        ("(_a @ _b) @ _s.unsqueeze(1)", "(_a @ _b) @ _s"),
        fast=("_a @ (_b @ _s)",),
        wrong=("_b @ (_a @ _s)",),
    ),
    Rule(
        "diag_of_product",
        (
            "torch.diagonal(_a @ _b.T)",
            "torch.diag(_a @ _b.T)",
            "torch.diagonal(torch.matmul(_a, _b.transpose(0, 1)))",
        ),
        fast=(
            "(_a * _b).sum(dim=1)",
            'torch.einsum("ij,ij->i", _a, _b)',
            "torch.linalg.vecdot(_a, _b)",
        ),
        wrong=("(_a * _b).sum(dim=0)", "(_a * _b).mean(dim=1)", "(_a * _b)[:, 0]"),
    ),
    Rule(
        "trace_of_product",
        ("torch.trace(_a @ _b)", "torch.diagonal(_a @ _b).sum()"),
        fast=("(_a * _b.t()).sum()",),
        wrong=("(_a * _b).sum() + 1.0",),
    ),
    Rule(
        "linear_scale",
        ("_lin(_x) * _c1 + _c2", "_c1 * _lin(_x) + _c2"),
        fast=(
            "torch.addmm(_lin.bias * _c1 + _c2, _x, _lin.weight.t(), alpha=_c1)",
            "F.linear(_x, _lin.weight * _c1, _lin.bias * _c1 + _c2)",
        ),
        mid=("_lin(_x).mul_(_c1).add_(_c2)",),
        wrong=(
            "torch.addmm(_lin.bias + _c2, _x, _lin.weight.t(), alpha=_c1)",
            "F.linear(_x, _lin.weight * _c1, _lin.bias * _c1)",
            "_lin(_x) * (_c1 + _c2)",
        ),
    ),
    Rule(
        "linear_affine",
        ("_lin(_x) * _s + _b",),
        fast=("F.linear(_x, _lin.weight * _s.unsqueeze(1), _lin.bias * _s + _b)",),
        mid=("torch.addcmul(_b, _lin(_x), _s)", "_lin(_x).mul_(_s).add_(_b)"),
        wrong=(
            "F.linear(_x, _lin.weight * _s, _lin.bias * _s + _b)",
            "F.linear(_x, _lin.weight * _s.unsqueeze(1), _lin.bias + _b)",
            "F.linear(_x, _lin.weight * _s.unsqueeze(1), _b)",
        ),
    ),
    Rule(
        "linear_relu",
        ("torch.relu(_lin(_x))",),
        mid=("_lin(_x).relu_()", "torch.relu_(_lin(_x))", "torch.clamp_(_lin(_x), min=0.0)"),
        wrong=(
            "_lin(torch.relu(_x))",
            "F.linear(_x, _lin.weight).relu()",
            "torch.relu(_lin(_x)) + _lin.bias",
        ),
    ),
    Rule(
        "conv_relu",
        ("torch.relu(_conv(_x))",),
        mid=("torch.relu_(_conv(_x))",),
        wrong=("_conv(torch.relu(_x))", "torch.abs(_conv(_x))"),
    ),
    Rule(
        "pairwise_distance",
        (
            "torch.sqrt(((_x.unsqueeze(1) - _y.unsqueeze(0)) ** 2).sum(dim=-1))",
            "torch.sqrt(((_x.unsqueeze(1) - _y.unsqueeze(0)) ** 2).sum(dim=2))",
        ),
        fast=("torch.cdist(_x, _y)",),
        wrong=("torch.cdist(_x, _y, p=1.0)", "torch.cdist(_x, _y) ** 2"),
    ),
    Rule(
        "pairwise_square",
        (
            "((_x.unsqueeze(1) - _w) ** 2).sum(dim=2)",
            "((_x.unsqueeze(1) - _w) ** 2).sum(dim=-1)",
            "((_x.unsqueeze(1) - _w.unsqueeze(0)) ** 2).sum(dim=2)",
            "((_x.unsqueeze(1) - _w.unsqueeze(0)) ** 2).sum(dim=-1)",
        ),
        fast=(
            "(_x * _x).sum(dim=1, keepdim=True) - 2.0 * (_x @ _w.t()) + (_w * _w).sum(dim=1)",
            "torch.cdist(_x, _w) ** 2",
        ),
        wrong=(
            "(_x * _x).sum(dim=1, keepdim=True) - (_x @ _w.t()) + (_w * _w).sum(dim=1)",
            "torch.cdist(_x, _w)",
            "(_x * _x).sum(dim=1) - 2.0 * (_x @ _w.t()) + (_w * _w).sum(dim=1)",
        ),
    ),
)
