"""Stage `challenger` of a night: stage `rl` once more, from the champion that was fine-tuned.

The contrastive step is that of the pipeline (`tasks.rl`), with the settings that section
`challenger` changes. Its first exemplars are the whole history of the training problems, which
stage `lessons` has written down, the night's answers among them.

If no lesson is newer than the champion, there is nothing to learn, and the challenger is the
champion itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace

from cudal1.ledger import Ledger
from tasks.examine import examine
from tasks.learning.history import History
from tasks.learning.training import refuse_unready
from tasks.night.lessons import HISTORY, LESSONS, num_new
from tasks.night.night import Night, current_night
from tasks.products import product
from tasks.rl import reinforce
from tasks.stage import DATA, Stage, log, main


def train(stage: Stage) -> Mapping[str, float | int]:
    """Train data/policy/tuned into data/policy/challenger, and examine it."""
    refuse_unready(stage, vllm_server=stage.params.nightly_rl().vllm_server)
    night = current_night()
    stage = with_settings(stage, night)
    found = num_new(product(LESSONS))
    if found:
        history = History.of_rows(product(HISTORY))
        numbers = reinforce(
            stage, policy="challenger", history=history, whole=night.whole, registers=False
        )
    else:
        numbers = _unchanged(stage)
    return {"night": night.number, "num_new": found, **numbers}


def with_settings(stage: Stage, night: Night) -> Stage:
    """Return a stage of the night with the settings of its reinforcement as section `rl`."""
    rl = stage.params.nightly_rl()
    rl = rl.model_copy(update={"seed": rl.seed + night.number})
    return replace(stage, params=stage.params.model_copy(update={"rl": rl}))


def _unchanged(stage: Stage) -> Mapping[str, float | int]:
    """Make the challenger of what it would start from, with the marks of the champion."""
    log.info("%s: no lesson is newer than the champion: nothing to learn", stage.name)
    out = DATA / "policy" / "challenger"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DATA / "policy" / stage.params.rl.init, out)
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        marks = examine(stage, ledger, out)
        ledger.export()
    return marks


if __name__ == "__main__":
    main("challenger", train)
