"""Best so far at equal budget: what each method and policy has found after so many verdicts.

Counting is `cudal1.selection.budget`; `contenders` chooses the methods and the equal terms.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import polars as pl

from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent, times
from cudal1.report.tables.contenders import Comparison, Contender, comparison
from cudal1.report.tables.table import Row, Table
from cudal1.selection import budget
from cudal1.selection.progress import IMPROVED, REFERENCE_SCORE

ROUND = "search.answers_per_round"
"""The parameter that says how many answers come before the first exemplars are shown."""


def budget_table(given: ReportInput) -> Table:
    """Return the best so far of every method and policy, at equal budget, with the echo of each."""
    among = comparison(given)
    size = int(given.provenance.params.get(ROUND, 0))
    rows: list[Row] = []
    for contender in among.contenders:
        rows += _rows(contender, among, size)
    return Table(
        title="Best so far at equal budget",
        caption=_caption(among, size),
        columns=(
            "Method",
            "Best of 1",
            f"Best of {among.num_answers}",
            "Area",
            f"Best of {among.num_answers} over the first row",
            "Later answers over echo",
            "Copies",
            f"Progress ≥ {IMPROVED:g}×",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no method was run, or no two on the same problems.",
    )


def _caption(among: Comparison, size: int) -> str:
    echo = (
        "Echo is a control without a model: it repeats the best of the first round. If a method's "
        "later answers are worth no more, it has learned nothing from its exemplars."
        if 0 < size < among.num_answers
        else "There is no echo: no method has more answers than its first round."
    )
    return (
        f"What a method has found for each of {len(among.problems):,} problems after so many "
        "verdicts: the mean over problems of the best certified speedup so far, a failure as 0×. "
        f"Area: its mean over 1 to {among.num_answers} verdicts. ±: 95 % over problems; the ratio "
        "to the first row has a bootstrap's interval over problems. "
        f"{echo} Copies and progress: of the answers to prompts with exemplars (of refine: with "
        "earlier attempts), the share that repeats one in other words, and the share that beats "
        f"the best one by {IMPROVED - 1:.0%} or more."
    )


def _rows(contender: Contender, among: Comparison, size: int) -> list[Row]:
    rewards = contender.rewards(among.problems, among.num_answers)
    shown = contender.answers.filter(
        pl.col("problem_id").is_in(list(among.problems)),
        pl.col("attempt") < among.num_answers,
        pl.col("best_shown").is_not_null(),
    )
    first = among.contenders[0].rewards(among.problems, among.num_answers)
    own = _cells(contender.label, rewards, first, among.num_answers)
    if shown.is_empty() or not 0 < size < among.num_answers:
        return [Row(cells=(*own, "–", *_shares(shown)))]
    echoed = budget.echo(rewards, size)
    later, repeated = _later(rewards, size), _later(echoed, size)
    return [
        Row(cells=(*own, _ratio(budget.ratio(later, repeated)), *_shares(shown))),
        Row(cells=(*_cells("– its echo", echoed, first, among.num_answers), "1.00×", "–", "–")),
    ]


def _cells(
    label: str,
    rewards: Mapping[str, Sequence[float]],
    first: Mapping[str, Sequence[float]],
    num_answers: int,
) -> tuple[str, ...]:
    def bests(given: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        return {problem: [max(each, default=0.0)] for problem, each in given.items()}

    return (
        label,
        _estimate(budget.end(rewards, 1)),
        _estimate(budget.end(rewards, num_answers)),
        _estimate(budget.area(rewards, num_answers)),
        _ratio(budget.ratio(bests(rewards), bests(first))),
    )


def _later(rewards: Mapping[str, Sequence[float]], size: int) -> dict[str, list[float]]:
    """Return each problem's rewards after the first round."""
    return {problem: list(each[size:]) for problem, each in rewards.items() if each[size:]}


def _shares(shown: pl.DataFrame) -> tuple[str, str]:
    if shown.is_empty():
        return "–", "–"
    copies = shown["is_copy"].fill_null(value=False).to_list()
    least = IMPROVED * shown["best_shown"].clip(REFERENCE_SCORE)
    ahead = (shown["reward"].fill_null(0.0) >= least).to_list()
    better = [is_ahead and not is_copy for is_ahead, is_copy in zip(ahead, copies, strict=True)]
    return percent(fmean(copies)), percent(fmean(better))


def _estimate(found: budget.Estimate) -> str:
    return f"{times(found.value)} ± {found.half_width:.2f}"


def _ratio(found: budget.Ratio | None) -> str:
    return "–" if found is None else f"{times(found.value)} [{found.low:.2f}–{found.high:.2f}]"
