"""Rules for attention written out by hand, whole or head by head."""

# ruff: noqa: E501 -- a pattern is one expression
from __future__ import annotations

from itertools import product
from typing import Final

from cudal1.teachers.rule import Rule

_SCORES = ("_q @ _k.T / _s", "_q @ _k.T * _c2", "_q @ _k.mT / _s", "_q @ _k.mT * _c2")
_EXPLICIT = """
m = s.max(dim=-1, keepdim=True).values
e = torch.exp(s - m)
p = e / e.sum(dim=-1, keepdim=True)
p @ _v
"""
_SOFTMAX = """
torch.softmax(s, dim=-1) @ _v
"""
_HEAD = "[:, h * _d1:(h + 1) * _d1]"


def _attention(factor: str, scores: tuple[str, ...]) -> Rule:
    masked = f"F.scaled_dot_product_attention(_q, _k, _v, scale={factor})"
    return Rule(
        "attention" if factor != "1.0" else "attention_unscaled",
        tuple(
            f"s = {score}\n{tail.strip()}" for score, tail in product(scores, (_EXPLICIT, _SOFTMAX))
        ),
        fast=(
            masked,
            f"F.scaled_dot_product_attention(_q.unsqueeze(0), _k.unsqueeze(0), _v.unsqueeze(0), scale={factor}).squeeze(0)",
        ),
        mid=(
            f"torch.softmax(_q @ _k.transpose(-2, -1) * ({factor}), dim=-1) @ _v",
            f"torch.softmax((_q * ({factor})) @ _k.transpose(-2, -1), dim=-1) @ _v",
        ),
        slow=(
            f"torch.softmax((_q.double() @ _k.double().transpose(-2, -1)) * ({factor}), dim=-1).float() @ _v",
        ),
        wrong=(
            f"F.scaled_dot_product_attention(_q, _k, _v, scale={factor}, is_causal=True)",
            f"torch.softmax(_q @ _k.transpose(-2, -1) * ({factor}), dim=-2) @ _v",
            f"F.scaled_dot_product_attention(_q, _k, _v, scale=4.0 * ({factor}))",
            f"F.scaled_dot_product_attention(_q, _k, scale={factor})",
        ),
    )


_HEAD_PATTERNS = tuple(
    f"torch.cat([torch.softmax(_q{_HEAD} @ _k{_HEAD}.{t} {o}, dim=-1) @ _v{_HEAD} for h in range(_d2)], dim={d})"
    for t, o, d in product(("T", "mT"), ("/ _s", "* _c2"), (1, -1))
)


def _heads(tensor: str) -> str:
    return f"{tensor}.reshape({tensor}.shape[0], _d2, _d1).transpose(0, 1)"


_HEADS = f"{_heads('_q')}, {_heads('_k')}, {_heads('_v')}"
_JOINED = ".transpose(0, 1).reshape(_q.shape[0], -1)"


def _head_loop(factor: str, patterns: tuple[str, ...], family: str) -> Rule:
    return Rule(
        family,
        patterns,
        fast=(f"F.scaled_dot_product_attention({_HEADS}, scale={factor}){_JOINED}",),
        mid=(
            f"""
q = {_heads("_q")}
k = {_heads("_k")}
v = {_heads("_v")}
p = torch.softmax(q @ k.transpose(1, 2) * ({factor}), dim=-1)
(p @ v){_JOINED}
""",
        ),
        wrong=(
            f"F.scaled_dot_product_attention({_HEADS}, scale={factor}).reshape(_q.shape[0], -1)",
            f"F.scaled_dot_product_attention({_HEADS}, scale=4.0 * ({factor})){_JOINED}",
            f"F.scaled_dot_product_attention(_q, _k, _v, scale={factor})",
        ),
    )


_PART = "[..., slice(h * _s, (h + 1) * _s)]"


def _split(tensor: str) -> str:
    return f"{tensor}.unflatten(-1, (_d2, -1)).transpose(-3, -2)"


_SPLIT = f"{_split('_q')}, {_split('_k')}, {_split('_v')}"

_SLICED_HEADS = Rule(
    "sliced_heads",
    (
        f"torch.cat([torch.softmax(_q{_PART} @ _k{_PART}.transpose(-2, -1) / _s ** 0.5, dim=-1) @ _v{_PART} for h in range(_d2)], dim=-1)",
    ),
    fast=(f"F.scaled_dot_product_attention({_SPLIT}).transpose(-3, -2).flatten(-2)",),
    mid=(
        f"""
q = {_split("_q")}
p = torch.softmax(q @ {_split("_k")}.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1)
(p @ {_split("_v")}).transpose(-3, -2).flatten(-2)
""",
    ),
    wrong=(
        f"F.scaled_dot_product_attention({_SPLIT}).flatten(-2)",
        f"F.scaled_dot_product_attention({_SPLIT}, scale=1.0).transpose(-3, -2).flatten(-2)",
        "F.scaled_dot_product_attention(_q, _k, _v)",
    ),
)
_EXPERTS = Rule(
    "expert_loop",
    (
        "sum_of_loop([_r[:, i:i + 1] * (_x @ _w[i]) for i in range(_w.shape[0])])",
        "sum_of_loop([_r[:, i:i + 1] * (_x @ _w[i]) for i in range(_n)])",
    ),
    fast=(
        "(torch.matmul(_x, _w) * _r.t().unsqueeze(2)).sum(dim=0)",
        "(_r.unsqueeze(2) * _x.unsqueeze(1)).flatten(1) @ _w.flatten(0, 1)",
    ),
    mid=('torch.einsum("be,bi,eio->bo", _r, _x, _w)',),
    wrong=(
        "(torch.matmul(_x, _w)).mean(dim=0)",
        "_x @ _w[0]",
        "(torch.matmul(_x, _w) * _r.unsqueeze(2)).sum(dim=0)",
    ),
)

ATTENTION: Final = (
    _SLICED_HEADS,
    _EXPERTS,
    _attention("1.0 / _s", tuple(s for s in _SCORES if "/ _s" in s)),
    _attention("_c2", tuple(s for s in _SCORES if "_c2" in s)),
    _attention("1.0", ("_q @ _k.T", "_q @ _k.mT")),
    _head_loop("1.0 / _s", tuple(p for p in _HEAD_PATTERNS if "/ _s" in p), "head_loop"),
    _head_loop("_c2", tuple(p for p in _HEAD_PATTERNS if "_c2" in p), "head_loop"),
)
