"""The spelling of PyTorch code: aliases, argument orders, and the pointwise operations."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Final

REQUIRED: Final = object()
"""Stands in place of a default: the argument must be given."""

_REDUCE = (("dim", None), ("keepdim", False))
SIGNATURES: Final[dict[str, tuple[tuple[str, object], ...]]] = {
    **dict.fromkeys(("sum", "mean", "max", "min", "amax", "amin", "prod"), _REDUCE),
    "logsumexp": (("dim", REQUIRED), ("keepdim", False)),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "cumprod"), (("dim", REQUIRED),)),
    **dict.fromkeys(("cat", "stack"), (("dim", 0),)),
    **dict.fromkeys(("unsqueeze",), (("dim", REQUIRED),)),
    "transpose": (("dim0", REQUIRED), ("dim1", REQUIRED)),
    "clamp": (("min", None), ("max", None)),
    "linear": (("weight", REQUIRED), ("bias", None)),
    "layer_norm": (("normalized_shape", REQUIRED), ("weight", None), ("bias", None), ("eps", 1e-5)),
    "gelu": (("approximate", "none"),),
    "flatten": (("start_dim", 0), ("end_dim", -1)),
    "leaky_relu": (("negative_slope", 0.01),),
    "split": (("split_size", REQUIRED), ("dim", 0)),
    "chunk": (("chunks", REQUIRED), ("dim", 0)),
    "size": (("dim", None),),
}
"""Optional arguments after the first, in order; they make keywords and positions equal."""

ALIASES: Final = {
    "axis": "dim",
    "keepdims": "keepdim",
    "mm": "matmul",
    "bmm": "matmul",
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "concat": "cat",
    "concatenate": "cat",
    "clip": "clamp",
    "absolute": "abs",
    "special.erf": "erf",
    "negative": "neg",
    "t": "T",
    "adjoint": "T",
    "softmax_": "softmax",
    "view": "reshape",
    "swapaxes": "transpose",
}
MODULE_FUNCTIONS: Final = {
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "GELU": "gelu",
    "SiLU": "silu",
    "Softplus": "softplus",
    "Hardswish": "hardswish",
    "Mish": "mish",
    "ReLU6": "relu6",
    "Identity": "identity",
}
NAMESPACES: Final = frozenset(
    {"torch", "F", "torch.nn.functional", "nn.functional", "math", "torch.special", "torch.linalg"}
)
BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}
POINTWISE: Final = frozenset(
    {
        "relu",
        "tanh",
        "sigmoid",
        "exp",
        "sqrt",
        "abs",
        "sin",
        "cos",
        "silu",
        "gelu",
        "softplus",
        "mish",
        "hardswish",
        "erf",
        "neg",
        "recip",
        "add",
        "mul",
        "pow",
        "log",
        "log1p",
        "square",
        "clamp",
        "leaky_relu",
        "elu",
        "relu6",
        "expm1",
    }
)
SUM_OF_LOOP: Final = "sum_of_loop"
"""Name by which patterns write a loop that adds to zeros: `sum_of_loop([f(i) for i in
range(n)])`."""

COMMUTATIVE: Final = frozenset({"add", "mul"})


def _floor_quotient(a: float, b: float) -> float:
    return a // b


def _remainder(a: float, b: float) -> float:
    return a % b


MATH: Final[dict[str, Callable[..., float]]] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "floordiv": _floor_quotient,
    "mod": _remainder,
    "pow": pow,
    "tanh": math.tanh,
    "float": float,
    "int": int,
}


def dotted(node: ast.expr) -> str | None:
    """Return `a.b.c` for an attribute chain on a name, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None
