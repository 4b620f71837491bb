"""The cost of answers and verdicts: the bill, the part in doubt, and the cost of a success."""

# ruff: noqa: RUF001 (– is what readers see)
from __future__ import annotations

import polars as pl

from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.tables.table import Row, Table
from cudal1.verdict import Status

NOTHING = "–"


def cost_table(given: ReportInput) -> Table:
    """Return the costs of answers and verdicts."""
    # an answer that several stages used was paid for once: it counts where it comes first
    answers = facts.answers(given).unique("completion_id", keep="first", maintain_order=True)
    authors = answers["author"].unique(maintain_order=True).to_list()
    bills = {row["provider"]: row for row in given.bills.to_dicts()}
    rows = [
        _row(author, answers.filter(pl.col("author") == author), bills.get(author))
        for author in (*authors, *(name for name in bills if name not in authors))
    ]
    judged = facts.verdicts(given)
    if not judged.is_empty():
        rows.append(_hours(f"harness: {judged.height:,} verdicts", judged["judge_s"]))
        if judged["compiling_s"].drop_nulls().len():
            rows.append(_hours("of it, compiling while devices waited", judged["compiling_s"]))
    return Table(
        title="Answers and verdicts",
        caption=(
            "Tokens where the author reported them. Requests and dollars are of all runs that this "
            "ledger knows, failures included; in doubt is what may have been charged for requests "
            "whose answer never came. Judging is the wall time of the verdicts added up, on "
            "whatever number of devices."
        ),
        columns=(
            "Author",
            "Answers",
            "Prompt tokens",
            "Answer tokens",
            "Requests",
            "USD",
            "In doubt, USD",
            "USD a success",
            "Judging, h",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: nothing was asked or judged.",
    )


def _row(author: str, answers: pl.DataFrame, bill: dict[str, float] | None) -> Row:
    num_successes = answers.filter(pl.col("outcome") == Status.CORRECT.value).height
    money = (NOTHING,) * 4
    num_answers = answers.height
    if bill is not None:
        num_answers = num_answers or int(bill["num_answers"])
        each = bill["cost_usd"] / num_successes if num_successes else None
        money = (
            f"{bill['num_tries']:,}",
            f"{bill['cost_usd']:,.2f}",
            f"{bill['in_doubt_usd']:,.2f}",
            NOTHING if each is None else f"{each:,.3f}",
        )
    return Row(
        cells=(
            author,
            f"{num_answers:,}",
            _tokens(answers["num_prompt_tokens"]),
            _tokens(answers["num_completion_tokens"]),
            *money,
            NOTHING,
        )
    )


def _hours(what: str, seconds: pl.Series) -> Row:
    return Row(cells=(what, *(NOTHING,) * 7, f"{seconds.sum() / 3600:.2f}"))


def _tokens(values: pl.Series) -> str:
    return f"{values.sum():,}" if values.drop_nulls().len() else NOTHING
