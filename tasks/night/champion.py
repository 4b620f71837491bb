"""Stage `champion` of a night: fetch the policy that is to be challenged, and examine it.

What stage `challenger` could not train is refused here, before anything is sampled or judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from cudal1.ledger import Ledger
from cudal1.tracking import registry
from tasks.examine import examine
from tasks.learning.training import refuse_unready, refuse_untrainable
from tasks.night.night import current_night
from tasks.stage import DATA, Stage, main


def bring_champion(stage: Stage) -> Mapping[str, float | int]:
    """The night's champion → data/policy/champion, with its marks on held-out problems."""
    night, out = current_night(), DATA / "policy" / "champion"
    rl = stage.params.nightly_rl()
    refuse_unready(stage, vllm_server=rl.vllm_server)
    registry.bring(DATA, registry.MODEL_NAME, version=night.champion, out=out)
    refuse_untrainable(stage, out, {"challenger": rl})
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        marks = examine(stage, ledger, out)
        ledger.export()
    return {"night": night.number, "version": night.champion, **marks}


if __name__ == "__main__":
    main("champion", bring_champion)
