"""Stage `challenger` of a night: train the champion on the lessons.

If no lesson is newer than the champion, there is nothing to learn, and the challenger is the
champion itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from cudal1.ledger import Ledger
from cudal1.train.sft import Pair, SftSettings, train_sft
from tasks.examine import examine
from tasks.learning.training import pair, refuse_unready, tracked, training
from tasks.night.lessons import LESSONS
from tasks.night.night import current_night
from tasks.products import admitted_problems, product
from tasks.stage import DATA, Stage, log, main


def train(stage: Stage) -> Mapping[str, float | int]:
    """data/policy/champion → data/policy/challenger, with its marks on held-out problems."""
    refuse_unready(stage)
    section, night = stage.params.challenger, current_night()
    champion, out = DATA / "policy" / "champion", DATA / "policy" / "challenger"
    lessons = product(LESSONS)
    num_new = sum(bool(row["is_new"]) for row in lessons)
    pairs = _pairs(stage, lessons) if num_new else []
    num_long = 0
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        if pairs:
            knobs = {**section.model_dump(), "seed": section.seed + night.number}
            with tracked(stage, ledger) as run:
                with training(stage, ledger, run, steps=section.steps) as steps:
                    num_long = train_sft(
                        champion,
                        out,
                        pairs,
                        SftSettings(scale=stage.params.scale, **knobs),
                        work=stage.work,
                        on_log=steps.log,
                    )
                marks = examine(stage, ledger, out)
        else:
            log.info("%s: no lesson is newer than the champion: nothing to learn", stage.name)
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(champion, out)
            marks = examine(stage, ledger, out)
            ledger.export()
    return {
        "night": night.number,
        "num_pairs": len(pairs) - num_long,
        "num_new": num_new,
        "num_too_long": num_long,
        **marks,
    }


def _pairs(stage: Stage, lessons: Sequence[Mapping[str, object]]) -> list[Pair]:
    """Return each lesson as the answer to its problem's prompt."""
    problems = {problem.id: problem for problem in admitted_problems()}
    return [
        pair(stage.params, problems[str(row["problem_id"])], str(row["source"])) for row in lessons
    ]


if __name__ == "__main__":
    main("challenger", train)
