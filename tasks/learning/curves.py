"""Names of curves in MLflow, which draws them in sections, ordered by the alphabet.

What matters stands first: `answers`, `heldout`, `problems`, then `seconds`, `trainer` and
`validation`. The ledger has the numbers under their names alone.
"""

from __future__ import annotations

ANSWERS = frozenset(
    """reward_raw reward_raw_std success hacked reused best_speedup exemplars copied progressed
    over_best whole new distinct""".split()
)
"""Numbers of a step's answers, as `tasks.learning.world` logs them."""


def curve(name: str) -> str:
    """Return the name of a number's curve: its section, then its own name."""
    if name in ANSWERS or name.startswith("reward_turn_"):
        return f"answers/{name}"
    if name.startswith("best/"):
        return f"problems/{name}"
    if name.startswith("validation_"):
        return f"validation/{name.removeprefix('validation_')}"
    if name.endswith("_s") or name == "idle":
        return f"seconds/{name}"
    return f"trainer/{name}"
