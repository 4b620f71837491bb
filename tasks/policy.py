"""Stage `policy`: fetch the base language model, and examine it untrained.

What stage `rl` could not train is refused here, before a provider is asked or anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping

from cudal1.ledger import Ledger
from cudal1.train import policy
from tasks.examine import examine
from tasks.learning.training import refuse_unready, refuse_untrainable
from tasks.stage import DATA, Stage, main


def bring_policy(stage: Stage) -> Mapping[str, float | int]:
    """params.policy → data/policy/base, with its marks on held-out problems."""
    refuse_unready(stage)
    section = stage.params.policy
    base = DATA / "policy" / "base"
    policy.bring(section.source, base, revision=section.revision)
    refuse_untrainable(stage, base, stage.params.reinforced())
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        marks = examine(stage, ledger, base)
        ledger.export()
    return marks


if __name__ == "__main__":
    main("policy", bring_policy)
