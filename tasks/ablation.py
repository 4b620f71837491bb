"""Stage `ablation@ROW`: stage `rl` once more with other settings, a row of the table of methods.

A row's policy is examined like every other, and `search` asks it as its settings say
(`search.methods`), so that it is compared with the others at equal budget. It is never a champion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.rl import FILTERED, reinforce
from tasks.stage import Stage, main


def train_row(stage: Stage) -> Mapping[str, float | int]:
    """Train data/policy/INIT into data/policy/ROW, and examine it on held-out problems."""
    row = stage.params.ablation.row(stage.instance, stage.params.rl)
    stage = replace(stage, params=stage.params.model_copy(update={"rl": row}))
    return reinforce(stage, policy=stage.instance, history=FILTERED, registers=False)


if __name__ == "__main__":
    main("ablation", train_row)
