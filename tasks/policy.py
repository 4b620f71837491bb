"""Stage `policy`: fetch the base language model, and examine it untrained."""

from __future__ import annotations

from collections.abc import Mapping

from cudal1.ledger import Ledger
from cudal1.train import policy
from tasks.examine import examine
from tasks.stage import DATA, Stage, main


def bring_policy(stage: Stage) -> Mapping[str, float | int]:
    """params.policy → data/policy/base, with its marks on held-out problems."""
    section = stage.params.policy
    base = DATA / "policy" / "base"
    policy.bring(section.source, base, revision=section.revision)
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        marks = examine(stage, ledger, base)
        ledger.export()
    return marks


if __name__ == "__main__":
    main("policy", bring_policy)
