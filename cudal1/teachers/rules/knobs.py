"""Rules without a best form: which one is fastest depends on a problem's sizes and on the device.

Every correct form is labelled MID: the prior says nothing, so an author has to measure.
"""

from __future__ import annotations

from typing import Final

from cudal1.teachers.rule import Rule

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
        wrong=("_x @ (_v @ _u) @ _w", "_x @ _u @ _w", "_x @ _w @ _v @ _u", "_x @ _u @ _v @ _w.t()"),
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
        "long_order",
        ("_x @ _u @ _v @ _w @ _z",),
        mid=(
            "_x @ (_u @ _v) @ _w @ _z",
            "_x @ _u @ (_v @ _w) @ _z",
            "_x @ _u @ _v @ (_w @ _z)",
            "_x @ (_u @ _v) @ (_w @ _z)",
            "_x @ (_u @ _v @ _w) @ _z",
            "_x @ _u @ (_v @ _w @ _z)",
            "_x @ (_u @ _v @ _w @ _z)",
            "_x @ (_u @ _v @ (_w @ _z))",
        ),
        wrong=(
            "_x @ (_v @ _u) @ _w @ _z",
            "_x @ _u @ (_w @ _v) @ _z",
            "_x @ _u @ _v @ _z",
            "_x @ _u @ _v @ _w @ _z.t()",
        ),
    ),
)
FAMILIES: Final = frozenset(rule.family for rule in KNOBS)
