"""Stage `sft` (stage 1): supervised fine-tuning, reference source → successful variant."""

from __future__ import annotations

from collections.abc import Mapping

from cudal1.errors import TrainingError
from cudal1.ledger import Ledger
from cudal1.settings.params import Params
from cudal1.train.sft import Pair, SftSettings, train_sft
from tasks.examine import examine, unprefixed
from tasks.learning.reading import is_copy, with_lessons
from tasks.learning.training import pair, refuse_unready, refuse_untrainable, tracked, training
from tasks.products import admitted_problems, product
from tasks.stage import DATA, Stage, main


def fine_tune(stage: Stage) -> Mapping[str, float | int]:
    """data/filter.parquet → data/policy/sft, with its marks on held-out problems."""
    base, out = DATA / "policy" / "base", DATA / "policy" / "sft"
    refuse_unready(stage)
    refuse_untrainable(stage, base, stage.params.reinforced())
    section = stage.params.sft
    pairs = _pairs(stage.params)
    mixed = with_lessons(pairs, section.reading, params=stage.params, seed=section.seed)
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with tracked(stage, ledger, init="base") as run:
            with training(stage, ledger, run, steps=section.steps) as steps:
                num_long = train_sft(
                    base,
                    out,
                    mixed,
                    SftSettings(
                        scale=stage.params.scale, **section.model_dump(exclude={"reading"})
                    ),
                    work=stage.work,
                    on_log=steps.log,
                )
            marks = examine(stage, ledger, out)
            run.mark(unprefixed(marks))
    counts = {"num_pairs": len(pairs), "num_lessons": len(mixed) - len(pairs)}
    return {**counts, "num_too_long": num_long, **marks}


def _pairs(params: Params) -> list[Pair]:
    """Return what stage 1 learns: each kept candidate as the answer to its problem's prompt.

    A candidate that several providers found counts once: agreement of teachers is no reason to
    learn it more. The reference itself teaches nothing.

    Raises:
        TrainingError: nothing else was kept.
    """
    problems = {problem.id: problem for problem in admitted_problems()}
    distinct = {str(row["candidate_id"]): row for row in product(DATA / "filter.parquet")}
    told = [(problems[str(row["problem_id"])], str(row["source"])) for row in distinct.values()]
    pairs = [
        pair(params, problem, source) for problem, source in told if not is_copy(source, problem)
    ]
    if not pairs:
        raise TrainingError(
            "sft: every candidate that was kept is its reference, so there is nothing to learn: "
            "raise generate.attempts, or add providers"
        )
    return pairs


if __name__ == "__main__":
    main("sft", fine_tune)
