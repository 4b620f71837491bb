"""A row of the ablation is stage rl with some settings changed, under the row's own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.selection.contrast import Sampling
from cudal1.settings.params import Params
from tasks import ablation
from tasks.rl import FILTERED
from tasks.stage import Stage

SHIPPED = Params.load(Path(__file__).parents[2] / "params.yaml")


def test_a_row_changes_the_settings_that_it_names_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = SHIPPED.ablation.model_copy(update={"rows": {"grpo": {"sampling": "none", "seed": 9}}})
    params = SHIPPED.model_copy(update={"ablation": rows})
    ran: list[Stage] = []

    def reinforce(stage: Stage, *, policy: str, **others: object) -> dict[str, float]:
        assert (policy, others) == ("grpo", {"history": FILTERED, "registers": False})
        ran.append(stage)
        return {"steps": 1}

    monkeypatch.setattr(ablation, "reinforce", reinforce)
    stage = Stage(name="ablation@grpo", item="grpo", params=params, run="r")
    assert ablation.train_row(stage) == {"steps": 1}
    assert (ran[0].name, ran[0].item) == ("ablation@grpo", "grpo")
    changed = {"sampling": Sampling.NONE, "seed": 9}
    assert ran[0].params.rl == SHIPPED.rl.model_copy(update=changed)
    assert ran[0].params.policy == SHIPPED.policy
