"""Stage `tuned` of a night: fine-tune the champion on the lessons, as a short warm start.

Reinforcement can only reward what a policy samples, and the duel asks plain prompts. So what others
have found is first taught as the answer to its problem's plain prompt.

If no lesson is newer than the champion, there is nothing to learn, and the policy is the champion
itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from cudal1.ledger import Ledger
from cudal1.train.sft import Pair, SftSettings, train_sft
from tasks.learning.reading import with_lessons
from tasks.learning.training import pair, refuse_unready, tracked, training
from tasks.night.lessons import LESSONS, num_new
from tasks.night.night import current_night
from tasks.products import admitted_problems, product
from tasks.stage import DATA, Stage, log, main


def fine_tune(stage: Stage) -> Mapping[str, float | int]:
    """Train data/policy/champion into data/policy/tuned, from which stage `challenger` goes on."""
    refuse_unready(stage)
    section, night = stage.params.tuned, current_night()
    champion, out = DATA / "policy" / "champion", DATA / "policy" / "tuned"
    lessons = product(LESSONS)
    pairs = _pairs(stage, lessons) if num_new(lessons) else []
    mixed = with_lessons(
        pairs, section.reading, params=stage.params, seed=section.seed + night.number
    )
    num_long = 0
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        if pairs:
            knobs = section.model_dump(exclude={"reading"})
            knobs["seed"] += night.number
            with (
                tracked(stage, ledger, whole=night.whole, init="champion", registers=False) as run,
                training(stage, ledger, run, steps=section.steps) as steps,
            ):
                num_long = train_sft(
                    champion,
                    out,
                    mixed,
                    SftSettings(scale=stage.params.scale, **knobs),
                    work=stage.work,
                    on_log=steps.log,
                )
        else:
            log.info("%s: no lesson is newer than the champion: nothing to learn", stage.name)
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(champion, out)
            ledger.export()
    counts = {"num_pairs": len(pairs), "num_lessons": len(mixed) - len(pairs)}
    return {"night": night.number, **counts, "num_too_long": num_long}


def _pairs(stage: Stage, lessons: Sequence[Mapping[str, object]]) -> list[Pair]:
    """Return each lesson as the answer to its problem's prompt."""
    problems = {problem.id: problem for problem in admitted_problems()}
    return [
        pair(stage.params, problems[str(row["problem_id"])], str(row["source"])) for row in lessons
    ]


if __name__ == "__main__":
    main("tuned", fine_tune)
