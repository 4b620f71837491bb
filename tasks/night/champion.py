"""Stage `champion` of a night: fetch the policy that is to be challenged, and examine it."""

from __future__ import annotations

from collections.abc import Mapping

from cudal1.ledger import Ledger
from cudal1.tracking import runs as tracking
from tasks.examine import examine
from tasks.night.night import current_night
from tasks.stage import DATA, Stage, main


def bring_champion(stage: Stage) -> Mapping[str, float | int]:
    """The night's champion → data/policy/champion, with its marks on held-out problems."""
    night, out = current_night(), DATA / "policy" / "champion"
    tracking.bring(DATA, tracking.MODEL_NAME, version=night.champion, out=out)
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        marks = examine(stage, ledger, out)
        ledger.export()
    return {"night": night.number, "version": night.champion, **marks}


if __name__ == "__main__":
    main("champion", bring_champion)
