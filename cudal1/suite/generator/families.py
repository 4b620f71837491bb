"""The operations that generated problems are composed of, each in the spelling of its reference.

Every stage maps a matrix `x` (rows, columns) to a matrix of the same shape; only stages that end a
problem may not. Parameters carry the stage's number, `{k}` in the text; sizes are the constructor's
`rows` and `columns`. `tests/llm/test_rewriter_rules.py` checks that the rewriter's rules recognise
these spellings.
"""

# ruff: noqa: E501 -- one operation a line
from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Family:
    """One operation of a generated problem."""

    name: str
    forward: str
    """Statements; `{k}` is the number of the stage, `{c1}` to `{c4}` drawn constants."""
    init: str = ""
    """Statements that make the operation's parameters."""
    ends: bool = False
    """True if the result has another shape, so that nothing can follow."""
    max_rows: int | None = None
    """Maximum number of rows; more would make it far slower than other stages."""
    max_columns: int | None = None
    cubic: bool = False
    """True if it multiplies matrices: sizes stay smaller where tensors are large."""
    prefers_tall: bool = False
    """True if the best form depends on the number of rows: the operation is also drawn with
    many."""
    has_knob: bool = False
    """True if the best form depends on the sizes, and has to be measured: it has sizes of its
    own."""


_WEIGHT = "self.w{k} = nn.Parameter(torch.randn(columns))"
_BIAS = "self.b{k} = nn.Parameter(torch.randn(columns))"
_SQUARE = "self.w{k} = nn.Parameter(torch.randn(columns, columns) / columns ** 0.5)"
_LINEAR = "self.linear{k} = nn.Linear(columns, columns)"
_EXP = """
m = x.max(dim=-1, keepdim=True).values
e = torch.exp(x - m)
"""
_MOMENTS = """
mean = x.mean(dim={d}, keepdim=True)
var = ((x - mean) ** 2).mean(dim={d}, keepdim=True)
x = (x - mean) / torch.sqrt(var + 1e-05)
"""

FAMILIES: Final[tuple[Family, ...]] = (
    Family("softmax", _EXP + "x = e / e.sum(dim=-1, keepdim=True)"),
    Family(
        "log_softmax",
        "m = x.max(dim=-1, keepdim=True).values\nx = x - m\nx = x - torch.log(torch.exp(x).sum(dim=-1, keepdim=True))",
    ),
    Family("logsumexp", _EXP + "x = m + torch.log(e.sum(dim=-1, keepdim=True))", ends=True),
    Family(
        "layer_norm",
        _MOMENTS.replace("{d}", "-1") + "x = x * self.w{k} + self.b{k}",
        f"{_WEIGHT}\n{_BIAS}",
    ),
    Family("standardize", _MOMENTS.replace("{d}", "-1")),
    Family(
        "rms_norm",
        "ms = (x ** 2).mean(dim=-1, keepdim=True)\nx = x / torch.sqrt(ms + 1e-05) * self.w{k}",
        _WEIGHT,
    ),
    Family(
        "l2_normalize", "n = torch.sqrt((x ** 2).sum(dim=-1, keepdim=True))\nx = x / (n + 1e-12)"
    ),
    Family("column_norm", _MOMENTS.replace("{d}", "0")),
    Family("gelu_tanh", "x = 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))"),
    Family("gelu_erf", "x = 0.5 * x * (1.0 + torch.erf(x / 1.4142135624))"),
    Family("silu", "x = x * torch.sigmoid(x)"),
    Family("softplus", "x = torch.clamp(x, min=0.0) + torch.log(1.0 + torch.exp(-torch.abs(x)))"),
    Family("mish", "x = x * torch.tanh(torch.log(1.0 + torch.exp(x)))"),
    Family("hardswish", "x = x * torch.clamp(x + 3.0, min=0.0, max=6.0) / 6.0"),
    Family("leaky_relu", "x = torch.where(x > 0, x, {c1} * x)"),
    Family("elu", "x = torch.where(x > 0, x, torch.exp(x) - 1.0)"),
    Family("relu_square", "x = torch.relu(x) * torch.relu(x)"),
    Family(
        "diag_left",
        "x = torch.diag(self.s{k}) @ x",
        "self.s{k} = nn.Parameter(torch.randn(rows))",
        cubic=True,
    ),
    Family(
        "diag_right",
        "x = x @ torch.diag(self.s{k})",
        "self.s{k} = nn.Parameter(torch.randn(columns))",
        cubic=True,
    ),
    Family(
        "linear_sum",
        "x = self.linear{k}(x)\nx = x.sum(dim=-1, keepdim=True)",
        _LINEAR,
        ends=True,
        cubic=True,
    ),
    Family(
        "linear_mean",
        "x = self.linear{k}(x)\nx = x.mean(dim=-1, keepdim=True)",
        _LINEAR,
        ends=True,
        cubic=True,
    ),
    Family(
        "matmul_mean",
        "x = x @ self.w{k}\nx = x.mean(dim=0, keepdim=True)",
        _SQUARE,
        ends=True,
        cubic=True,
    ),
    Family(
        "explicit_linear",
        'x = torch.einsum("bi,oi->bo", x, self.w{k}) + self.b{k}'.replace('"', "'"),
        f"{_SQUARE}\n{_BIAS}",
        cubic=True,
    ),
    Family(
        "broadcast_matmul",
        "x = (x.unsqueeze(2) * self.w{k}).sum(dim=1)",
        _SQUARE,
        max_rows=64,
        max_columns=64,
    ),
    Family(
        "linear_chain",
        "x = self.linear{k}(x)\nx = self.second{k}(x)",
        f"{_LINEAR}\nself.second{{k}} = nn.Linear(columns, columns)",
        cubic=True,
    ),
    Family(
        "low_rank",
        "x = x @ (self.u{k} @ self.v{k})",
        "self.u{k} = nn.Parameter(torch.randn(columns, 16) / columns ** 0.5)\nself.v{k} = nn.Parameter(torch.randn(16, columns) / 4.0)",
        cubic=True,
    ),
    Family(
        "linear_affine",
        "x = self.linear{k}(x)\nx = x * self.s{k} + self.b{k}",
        f"{_LINEAR}\n{_WEIGHT.replace('self.w', 'self.s')}\n{_BIAS}",
        cubic=True,
    ),
    Family(
        "diag_of_product",
        "x = torch.diagonal(x @ self.w{k}.T)\nx = x.unsqueeze(1)",
        "self.w{k} = nn.Parameter(torch.randn(rows, columns))",
        ends=True,
        cubic=True,
    ),
    Family(
        "pairwise_square",
        "x = ((x.unsqueeze(1) - self.w{k}) ** 2).sum(dim=2)",
        "self.w{k} = nn.Parameter(torch.randn(16, columns))",
        ends=True,
        max_rows=128,
        max_columns=128,
    ),
    Family("row_loop", "x = torch.stack([{f}(x[i]) for i in range(x.shape[0])])", max_rows=96),
    Family(
        "row_softmax",
        "rows = []\nfor i in range(x.shape[0]):\n    rows.append(torch.softmax(x[i], dim=0))\nx = torch.stack(rows)",
        max_rows=96,
    ),
    Family(
        "list_cat",
        "x = torch.cat([{f}(x[:, i:i + {n}]) for i in range(0, x.shape[1], {n})], dim=1)",
    ),
    Family(
        "attention",
        "a = x @ x.T * 0.02\nm = a.max(dim=-1, keepdim=True).values\ne = torch.exp(a - m)\na = e / e.sum(dim=-1, keepdim=True)\nx = a @ x",
        cubic=True,
    ),
    Family(
        "head_loop",
        "x = torch.cat([torch.softmax(x[:, h * {n}:(h + 1) * {n}] @ x[:, h * {n}:(h + 1) * {n}].T * {scale}, dim=-1) @ x[:, h * {n}:(h + 1) * {n}] for h in range({heads})], dim=1)",
        cubic=True,
    ),
    Family("affine_chain", "x = x * {c1}\nx = x + {c2}\nx = x * {c3}"),
    Family("polynomial", "x = {c1} + {c2} * x + {c3} * x ** 2 + {c4} * x ** 3"),
    Family("clamp_twice", "x = torch.clamp(x, min=-{c1})\nx = torch.clamp(x, max={c2})"),
    Family("double_transpose", "x = x.t().contiguous()\nx = x.t()"),
    Family("power", "x = x ** 3 + x ** 2"),
    Family("repeated_tanh", "x = torch.tanh(x) + torch.tanh(x) * torch.tanh(x)"),
    Family("repeated_sigmoid", "x = torch.sigmoid(x) * (1.0 - torch.sigmoid(x))"),
    Family(
        "cumulative_sum",
        "x = torch.stack([x[:i + 1].sum(dim=0) for i in range(x.shape[0])])",
        max_rows=96,
    ),
    Family(
        "expand",
        "x = x * self.s{k}.unsqueeze(0).repeat(x.shape[0], 1)",
        "self.s{k} = nn.Parameter(torch.randn(columns))",
    ),
    Family(
        "long_chain",
        "x = torch.sin(x) + 0.1 * x\nx = torch.tanh(x * {c1} + {c2})\nx = x * torch.exp(-torch.abs(x))\nx = torch.relu(x + {c3}) - {c4} * x",
        prefers_tall=True,
    ),
    Family(
        "wave_chain",
        "x = torch.sin(x * {c1}) * torch.exp(-x * x)\nx = torch.cos(x + {c2}) + x\nx = x / (1.0 + torch.abs(x))",
        prefers_tall=True,
    ),
)

KNOBS: Final[tuple[Family, ...]] = (
    Family(
        "order_chain",
        "x = x @ self.u{k} @ self.v{k} @ self.w{k}",
        "self.u{k} = nn.Parameter(torch.randn(columns, {d1}) / columns ** 0.5)\nself.v{k} = nn.Parameter(torch.randn({d1}, {d2}) / {d1} ** 0.5)\nself.w{k} = nn.Parameter(torch.randn({d2}, columns) / {d2} ** 0.5)",
        has_knob=True,
    ),
    Family(
        "repeated_product",
        "x = x @ self.w{k} @ self.w{k} @ self.w{k} @ self.w{k} @ self.w{k} @ self.w{k}",
        _SQUARE,
        has_knob=True,
    ),
    Family(
        "long_order",
        "x = x @ self.u{k} @ self.v{k} @ self.w{k} @ self.z{k}",
        "self.u{k} = nn.Parameter(torch.randn(columns, {d1}) / columns ** 0.5)\nself.v{k} = nn.Parameter(torch.randn({d1}, {d2}) / {d1} ** 0.5)\nself.w{k} = nn.Parameter(torch.randn({d2}, {d3}) / {d2} ** 0.5)\nself.z{k} = nn.Parameter(torch.randn({d3}, columns) / {d3} ** 0.5)",
        has_knob=True,
    ),
)
"""Operations with a fastest form that is a property of the problem. They are drawn only on request;
all other problems do not depend on them."""

BY_NAME: Final = {family.name: family for family in (*FAMILIES, *KNOBS)}
