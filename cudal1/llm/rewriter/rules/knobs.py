"""Rules without a best form: which one is fastest depends on a problem's sizes and on the device.

Every correct form is labelled MID: the prior says nothing, so whoever rewrites has to measure.
"""

from __future__ import annotations

from typing import Final

from cudal1.llm.rewriter.rule import Rule

PARTS: Final = (2, 4, 8, 16, 32)
"""Into how many sums a product over many rows may be split."""
_SPLIT = """
s = _x.reshape({n}, -1, _x.shape[1])
torch.bmm(s.transpose(1, 2), s).sum(dim=0)
"""

KNOBS: Final = (
    Rule(
        "order_chain",
        ("_x @ _u @ _v @ _w",),
        mid=(
            "_x @ _u @ (_v @ _w)",
            "_x @ (_u @ _v) @ _w",
            "_x @ (_u @ (_v @ _w))",
            "_x @ (_u @ _v @ _w)",
        ),
        wrong=(
            "_x @ (_v @ _u) @ _w",
            "_x @ _u @ _w",
            "_x @ _w @ _v @ _u",
            "_x @ _u @ _v @ _w.t()",
        ),
    ),
    Rule(
        "repeated_product",
        ("_x @ _w @ _w @ _w @ _w @ _w @ _w",),
        mid=(
            """
p = _w @ _w
_x @ p @ p @ p
""",
            """
p = _w @ _w @ _w
_x @ p @ p
""",
            """
p = _w @ _w
_x @ (p @ p @ p)
""",
            "_x @ torch.linalg.matrix_power(_w, 6)",
        ),
        wrong=(
            """
p = _w @ _w
_x @ p @ p
""",
            "_x @ _w ** 6",
            """
p = _w @ _w
_x @ (p @ p @ p @ p)
""",
        ),
    ),
    Rule(
        "gram",
        ("_x.T @ _x",),
        mid=tuple(_SPLIT.format(n=n) for n in PARTS),
        wrong=(
            "_x @ _x.T",
            """
s = _x.reshape(4, -1, _x.shape[1])
torch.bmm(s.transpose(1, 2), s).mean(dim=0)
""",
            """
s = _x.reshape(8, -1, _x.shape[1])
torch.bmm(s.transpose(1, 2), s)[0]
""",
        ),
    ),
)
FAMILIES: Final = frozenset(rule.family for rule in KNOBS)
