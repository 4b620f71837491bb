"""Rules for single operators, as in KernelBench's level 1: another form of one call.

Few of them gain on their own: the library is good at its own operators. They give an answer that is
no copy to a problem of one call.
"""

from __future__ import annotations

from typing import Final

from cudal1.teachers.rule import Rule

_SHIFTED = """
e = torch.exp(_x - _x.amax(dim=_d, keepdim=True))
e / e.sum(dim=_d, keepdim=True)
"""
_PRODUCTS: Final = (
    Rule(
        "matmul",
        ("_a @ _b",),
        mid=('torch.einsum("...ij,...jk->...ik", _a, _b)', "_a @ _b"),
        wrong=("_b @ _a", "_a * _b", "_a @ _b.mT"),
    ),
    Rule(
        "matmul_left_transposed",
        ("_a.T @ _b",),
        fast=("torch.mm(_a.t(), _b)",),
        mid=('torch.einsum("ki,kj->ij", _a, _b)', "(_b.t() @ _a).t()"),
        wrong=("_a @ _b", "torch.mm(_b.t(), _a)"),
    ),
    Rule(
        "matmul_right_transposed",
        ("_a @ _b.T",),
        fast=("F.linear(_a, _b)",),
        mid=('torch.einsum("ik,jk->ij", _a, _b)', "torch.mm(_a, _b.t())"),
        wrong=("_a @ _b", "F.linear(_b, _a)"),
    ),
    Rule(
        "matmul_both_transposed",
        ("_a.T @ _b.T",),
        fast=("(_b @ _a).t()",),
        mid=("F.linear(_a.t(), _b)", "(_b @ _a).t().contiguous()"),
        wrong=("_b @ _a", "(_a @ _b).t()"),
    ),
    *(
        Rule(
            f"matmul_{half}",
            (f"torch.{half}(_a @ _b)",),
            fast=(f"(_a @ _b).{half}_()",),
            mid=(f'torch.einsum("ij,jk->ik", _a, _b).{half}_()',),
            wrong=("_a @ _b", f"torch.{other}(_a @ _b)"),
        )
        for half, other in (("triu", "tril"), ("tril", "triu"))
    ),
    Rule(
        "einsum_last",
        ('torch.einsum("bijl,lk->bijk", _a, _b)',),
        fast=("_a @ _b",),
        mid=("F.linear(_a, _b.t())",),
        wrong=("_a @ _b.t()", "(_a @ _b).sum(dim=-1)"),
    ),
    Rule(
        "scale_rows",
        ("_a.unsqueeze(1) * _b",),
        fast=("torch.mul(_b, _a[:, None])",),
        mid=('torch.einsum("i,ij->ij", _a, _b)',),
        wrong=("_a * _b", "_a.unsqueeze(0) * _b"),
    ),
    Rule("product", ("_x * _y",), mid=("torch.mul(_x, _y)",), wrong=("_x + _y", "_x * _y * _y")),
    Rule(
        "attention_call",
        ("F.scaled_dot_product_attention(_q, _k, _v)",),
        mid=("torch.softmax((_q * _q.shape[-1] ** -0.5) @ _k.mT, dim=-1) @ _v",),
        slow=("torch.softmax(_q @ _k.mT / _q.shape[-1] ** 0.5, dim=-1) @ _v",),
        wrong=("torch.softmax(_q @ _k.mT, dim=-1) @ _v", "_q @ _k.mT @ _v"),
    ),
)
_ACTIVATIONS: Final = (
    Rule(
        "relu_call",
        ("torch.relu(_x)",),
        fast=("F.relu(_x)",),
        mid=("torch.clamp(_x, min=0.0)",),
        wrong=("torch.abs(_x)", "torch.clamp(_x, max=0.0)"),
    ),
    Rule(
        "leaky_relu_call",
        ("F.leaky_relu(_x, _c)",),
        mid=("torch.maximum(_x, _x * _c)", "torch.where(_x > 0, _x, _x * _c)"),
        wrong=("torch.relu(_x)", "torch.minimum(_x, _x * _c)"),
    ),
    Rule(
        "sigmoid_call",
        ("torch.sigmoid(_x)",),
        fast=("torch.special.expit(_x)",),
        mid=("F.sigmoid(_x)", "0.5 + 0.5 * torch.tanh(0.5 * _x)"),
        slow=("1.0 / (1.0 + torch.exp(-_x))",),
        wrong=("torch.tanh(_x)", "torch.sigmoid(-_x)"),
    ),
    Rule(
        "tanh_call",
        ("torch.tanh(_x)",),
        fast=("F.tanh(_x)",),
        mid=("2.0 * torch.sigmoid(2.0 * _x) - 1.0",),
        wrong=("torch.sigmoid(_x)", "torch.tanh(2.0 * _x)"),
    ),
    Rule(
        "softmax_call",
        ("torch.softmax(_x, dim=_d)",),
        fast=("F.softmax(_x, dim=_d)",),
        mid=("_x.softmax(dim=_d)", "torch.exp(F.log_softmax(_x, dim=_d))"),
        slow=(_SHIFTED,),
        wrong=("torch.exp(_x)", "F.softmax(_x, dim=0)", "F.log_softmax(_x, dim=_d)"),
    ),
    Rule(
        "log_softmax_call",
        ("torch.log_softmax(_x, dim=_d)",),
        fast=("F.log_softmax(_x, dim=_d)",),
        mid=("_x - torch.logsumexp(_x, dim=_d, keepdim=True)",),
        slow=("torch.log(torch.softmax(_x, dim=_d))",),
        wrong=("F.softmax(_x, dim=_d)", "F.log_softmax(_x, dim=0)"),
    ),
    Rule(
        "gelu_call",
        ("F.gelu(_x)",),
        mid=("_x * torch.special.ndtr(_x)",),
        slow=("0.5 * _x * (1.0 + torch.erf(_x * 0.7071067811865476))",),
        wrong=("_x * torch.sigmoid(_x)", "torch.relu(_x)"),
    ),
    Rule(
        "selu_call",
        ("torch.selu(_x)", "F.selu(_x)"),
        fast=("F.selu(_x)",),
        mid=("1.0507009873554805 * F.elu(_x, 1.6732632423543772)",),
        wrong=("F.elu(_x)", "F.elu(_x, 1.6732632423543772)"),
    ),
    Rule(
        "hardsigmoid_call",
        ("F.hardsigmoid(_x)",),
        mid=("torch.clamp(_x / 6.0 + 0.5, 0.0, 1.0)", "F.relu6(_x + 3.0) / 6.0"),
        wrong=("torch.clamp(_x + 0.5, 0.0, 1.0)", "torch.sigmoid(_x)"),
    ),
    Rule(
        "softplus_call",
        ("F.softplus(_x)",),
        mid=("torch.clamp(_x, min=0.0) + torch.log1p(torch.exp(-torch.abs(_x)))",),
        slow=("-F.logsigmoid(-_x)",),
        wrong=("torch.relu(_x)", "torch.log(torch.exp(_x))"),
    ),
    Rule(
        "softsign",
        ("_x / (1 + torch.abs(_x))",),
        fast=("F.softsign(_x)",),
        mid=("torch.div(_x, _x.abs().add_(1.0))",),
        wrong=("_x / torch.abs(_x)", "torch.tanh(_x)"),
    ),
    Rule(
        "elu_call",
        ("F.elu(_x, alpha=_c)",),
        fast=("F.elu(_x, _c)",),
        mid=("torch.where(_x > 0, _x, _c * torch.expm1(_x))",),
        wrong=("F.selu(_x)", "torch.where(_x > 0, _x, torch.exp(_x))"),
    ),
    Rule(
        "hardtanh_call",
        ("F.hardtanh(_x, min_val=_c1, max_val=_c2)",),
        fast=("torch.clamp(_x, _c1, _c2)",),
        mid=("torch.clamp(torch.clamp(_x, min=_c1), max=_c2)",),
        wrong=("torch.clamp(_x, min=_c1)", "torch.tanh(_x)"),
    ),
    Rule(
        "clamp_call",
        ("torch.clamp(_x, _c1, _c2)",),
        fast=("F.hardtanh(_x, _c1, _c2)",),
        mid=("torch.clamp(torch.clamp(_x, min=_c1), max=_c2)",),
        wrong=("torch.clamp(_x, min=_c1)", "torch.clamp(_x, max=_c2)"),
    ),
    Rule(
        "mish_call",
        ("F.mish(_x)",),
        mid=("_x * torch.tanh(F.softplus(_x))",),
        wrong=("F.silu(_x)", "torch.tanh(F.softplus(_x))"),
    ),
    Rule(
        "hardswish_call",
        ("F.hardswish(_x)",),
        mid=("_x * F.hardsigmoid(_x)", "_x * F.relu6(_x + 3.0) / 6.0"),
        wrong=("F.silu(_x)", "F.hardsigmoid(_x)"),
    ),
    Rule(
        "leaky_relu_twice",
        ("F.leaky_relu(F.leaky_relu(_x, _c1), _c2)",),
        fast=("F.leaky_relu(_x, _c1 * _c2)",),
        wrong=("F.leaky_relu(_x, _c1 + _c2)", "F.leaky_relu(_x, _c1)"),
    ),
    Rule(
        "double",
        ("_x + _x",),
        fast=("_x * 2.0",),
        mid=("torch.add(_x, _x)",),
        wrong=("_x * _x", "_x"),
    ),
)
_REDUCTIONS: Final = (
    *(
        Rule(
            f"{name}_of_rows" + ("_kept" if kept else ""),
            (f"torch.{name}(_x, dim=_d{kept})",),
            mid=(other.format(kept=kept), f"_x.{name}(dim=_d{kept})"),
            wrong=(f"torch.{name}(_x, dim=0{kept})", f"torch.{wrong}(_x, dim=_d{kept})"),
        )
        for name, other, wrong in (
            ("sum", "_x.mean(dim=_d{kept}) * _x.shape[_d]", "mean"),
            ("mean", "_x.sum(dim=_d{kept}) / _x.shape[_d]", "sum"),
        )
        for kept in ("", ", keepdim=True")
    ),
    *(
        Rule(
            f"{name}_of_rows" + ("_kept" if kept else ""),
            (f"torch.{name}(_x, dim=_d{kept})[0]",),
            fast=(f"torch.a{name}(_x, dim=_d{kept})",),
            mid=(f"_x.a{name}(dim=_d{kept})",),
            wrong=(f"torch.a{other}(_x, dim=_d{kept})", f"torch.a{name}(_x, dim=0{kept})"),
        )
        for name, other in (("max", "min"), ("min", "max"))
        for kept in ("", ", keepdim=True")
    ),
    *(
        Rule(
            f"arg{name}",
            (f"torch.arg{name}(_x, dim=_d)",),
            fast=(f"_x.arg{name}(dim=_d)",),
            mid=(f"torch.{name}(_x, dim=_d).indices",),
            wrong=(f"torch.arg{other}(_x, dim=_d)", f"torch.a{name}(_x, dim=_d)"),
        )
        for name, other in (("max", "min"), ("min", "max"))
    ),
    Rule(
        "logsumexp_call",
        ("torch.logsumexp(_x, dim=_d, keepdim=True)",),
        mid=("_x.logsumexp(dim=_d, keepdim=True)",),
        slow=(
            """
m = _x.amax(dim=_d, keepdim=True)
m + torch.log(torch.exp(_x - m).sum(dim=_d, keepdim=True))
""",
        ),
        wrong=("torch.amax(_x, dim=_d, keepdim=True)", "torch.logsumexp(_x, dim=_d)"),
    ),
    Rule(
        "pooled_to_one",
        ("F.adaptive_avg_pool2d(_x, 1)",),
        fast=("_x.mean(dim=(2, 3), keepdim=True)",),
        mid=("F.avg_pool2d(_x, _x.shape[-2:])",),
        wrong=("_x.mean(dim=1, keepdim=True)", "F.adaptive_max_pool2d(_x, 1)"),
    ),
    *(
        Rule(
            name,
            (f"torch.{name}(_x, dim=_d)",),
            fast=(f"_x.{name}(dim=_d)",),
            mid=(f"torch.{name}(_x.contiguous(), _d)",),
            wrong=(f"torch.{name}(_x, dim=0)", f"_x.{other}(dim=_d)"),
        )
        for name, other in (("cumsum", "cumprod"), ("cumprod", "cumsum"))
    ),
    Rule(
        "cumsum_backwards",
        ("torch.cumsum(_x.flip(_d), dim=_d).flip(_d)",),
        fast=("_x + (_x.sum(dim=_d, keepdim=True) - torch.cumsum(_x, dim=_d))",),
        mid=("torch.flip(torch.flip(_x, [_d]).cumsum(_d), [_d])",),
        wrong=("torch.cumsum(_x, dim=_d).flip(_d)", "_x.sum(dim=_d) - torch.cumsum(_x, dim=_d)"),
    ),
)
_NORMS: Final = (
    Rule(
        "rms_of_channels",
        (
            "rms = torch.sqrt(torch.mean(_x ** 2, dim=_d, keepdim=True) + _c)\n_x / rms",
            "_x * torch.rsqrt(torch.mean(_x ** 2, dim=_d, keepdim=True) + _c)",
        ),
        fast=("_x * torch.rsqrt(torch.mean(_x * _x, dim=_d, keepdim=True) + _c)",),
        mid=(
            "_x * torch.rsqrt(torch.linalg.vector_norm(_x, dim=_d, keepdim=True).square_() "
            "/ _x.shape[_d] + _c)",
        ),
        wrong=(
            "_x * torch.rsqrt(torch.sum(_x * _x, dim=_d, keepdim=True) + _c)",
            "_x * torch.rsqrt(torch.mean(_x, dim=_d, keepdim=True) + _c)",
        ),
    ),
    Rule(
        "frobenius",
        ('_x / torch.norm(_x, p="fro")', "_x / torch.norm(_x)"),
        fast=("_x * (1.0 / torch.linalg.vector_norm(_x))",),
        mid=("_x / torch.linalg.vector_norm(_x)", "_x * torch.rsqrt((_x * _x).sum())"),
        wrong=("_x / (_x * _x).sum()", "_x / torch.linalg.vector_norm(_x, ord=1)"),
    ),
    Rule(
        "mean_of_absolutes",
        ("_x / torch.mean(torch.abs(_x), dim=_d, keepdim=True)",),
        fast=("_x * (_x.shape[_d] / torch.linalg.vector_norm(_x, ord=1, dim=_d, keepdim=True))",),
        mid=("_x / _x.abs().mean(dim=_d, keepdim=True)",),
        wrong=("F.normalize(_x, p=1.0, dim=_d)", "_x / torch.mean(_x, dim=_d, keepdim=True)"),
    ),
)
_LOSSES: Final = (
    Rule(
        "squared_error",
        ("torch.mean((_a - _b) ** 2)",),
        fast=("F.mse_loss(_a, _b)",),
        mid=("torch.square(_a - _b).mean()", "(_a - _b).square_().mean()"),
        wrong=("torch.abs(_a - _b).mean()", 'F.mse_loss(_a, _b, reduction="sum")'),
    ),
    Rule(
        "cross_entropy_call",
        ("F.cross_entropy(_a, _b)",),
        mid=(
            "F.nll_loss(F.log_softmax(_a, dim=1), _b)",
            "(torch.logsumexp(_a, dim=1) - _a.gather(1, _b.unsqueeze(1)).squeeze(1)).mean()",
        ),
        wrong=("F.nll_loss(_a, _b)", 'F.cross_entropy(_a, _b, reduction="sum")'),
    ),
    Rule(
        "smooth_error",
        ("F.smooth_l1_loss(_a, _b)",),
        fast=("F.huber_loss(_a, _b)",),
        wrong=("F.l1_loss(_a, _b)", "F.mse_loss(_a, _b)"),
    ),
    Rule(
        "divergence",
        ('F.kl_div(torch.log(_a), _b, reduction="batchmean")',),
        mid=("(torch.xlogy(_b, _b) - _b * torch.log(_a)).sum() / _a.shape[0]",),
        wrong=("F.kl_div(torch.log(_a), _b)", "(_b * torch.log(_a)).sum() / _a.shape[0]"),
    ),
    Rule(
        "hinge",
        ("torch.mean(torch.clamp(1 - _a * _b, min=0))",),
        fast=("torch.mean((1.0 - _a * _b).relu_())",),
        mid=("torch.relu(1.0 - _a * _b).mean()",),
        wrong=("torch.mean(1.0 - _a * _b)", "torch.relu(_a * _b).mean()"),
    ),
)

OPERATORS: Final = (*_PRODUCTS, *_ACTIVATIONS, *_REDUCTIONS, *_NORMS, *_LOSSES)
