"""Counts without a model in the paper: providers, outcomes, reliability, precision, hack flags."""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

import math

import polars as pl

from cudal1.protocol import EvalProtocol, PrecisionClass, Rule
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import share, times
from cudal1.report.tables.cells import null_note
from cudal1.report.tables.table import Row, RowKind, Table
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP
from cudal1.verdict import FlagSource, Status

_CORRECT = pl.col("outcome") == Status.CORRECT.value
_FOUND = pl.col("candidate_id").is_not_null()
NULL_FLAGS = "Null test: references, judged as candidates, that were taken for cheats; none is one."


def provider_table(given: ReportInput) -> Table:
    """Return the achievements of each author of answers."""
    answers = facts.answers(given)
    rows: list[Row] = []
    for author in answers["author"].unique(maintain_order=True).to_list():
        part = answers.filter(pl.col("author") == author)
        asked = part.height
        correct = part.filter(_CORRECT)
        rows.append(
            Row(
                cells=(
                    author,
                    f"{asked:,}",
                    share(part.filter(_FOUND).height, asked),
                    share(correct.height, asked),
                    f"{part.filter(pl.col('outcome') == Status.HACKED.value).height:,}",
                    f"{correct['problem_id'].n_unique():,} of {part['problem_id'].n_unique():,}",
                    times(_largest(correct["certified"])),
                )
            )
        )
    return Table(
        title="Authors of answers",
        caption=(
            "Providers, our own policies under the stage that sampled them (training and held-out "
            "problems together), and methods that ask frozen weights. Extracted: a candidate was "
            "found in the answer. Shares are of the answers asked for. Best: the largest certified "
            "speedup."
        ),
        columns=("Author", "Asked", "Extracted", "Correct", "Hacked", "Problems solved", "Best"),
        rows=tuple(rows),
        nothing_yet="Nothing yet: nobody was asked for an answer.",
    )


def outcome_table(given: ReportInput) -> Table:
    """Return the outcomes of the answers, stage by stage."""
    answers = facts.answers(given)
    seen = set(answers["outcome"].to_list())
    outcomes = [outcome for outcome in facts.OUTCOMES if outcome in seen]
    rows = [
        Row(
            cells=(
                label,
                f"{part.height:,}",
                *(f"{part.filter(pl.col('outcome') == outcome).height:,}" for outcome in outcomes),
            ),
            kind=kind,
        )
        for label, part, kind in [
            *(
                (stage, answers.filter(pl.col("stage") == stage), RowKind.PLAIN)
                for stage in facts.stages(answers)
            ),
            *([("all", answers, RowKind.TOTAL)] if not answers.is_empty() else []),
        ]
    ]
    return Table(
        title="What became of the answers",
        caption=(
            "The first gate that each answer failed, or correct. Equal sources share one verdict "
            "and count once for each answer. no_source: no candidate in the text; not_judged: the "
            "stage did not need a verdict."
        ),
        columns=("Stage", "Answers", *outcomes),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no answers.",
    )


def file_table(given: ReportInput) -> Table:
    """Return the outcomes of the candidates of each file, where stages are files."""
    answers = facts.answers(given)
    null = given.null_test.rename({"status": "outcome"})
    seen = {*answers["outcome"], *(null["outcome"] if answers.height else ())}
    outcomes = [outcome for outcome in facts.OUTCOMES if outcome in seen]

    def row(label: str, part: pl.DataFrame, kind: RowKind = RowKind.PLAIN) -> Row:
        correct = part.filter(_CORRECT)
        counts = (part.filter(pl.col("outcome") == outcome).height for outcome in outcomes)
        return Row(
            cells=(
                label,
                f"{part.height:,}",
                *(f"{count:,}" for count in counts),
                f"{correct['problem_id'].n_unique():,} of {part['problem_id'].n_unique():,}",
                times(_largest(correct["certified"])),
            ),
            kind=kind,
        )

    files = answers.partition_by("stage", as_dict=True, maintain_order=True)
    rows = [row(str(stage), part) for (stage,), part in files.items()]
    if rows and not null.is_empty():
        rows.append(row("Null test", null, RowKind.NULL_TEST))
    return Table(
        title="Candidates",
        caption=(
            "Different candidates that have a verdict, by the first gate that each failed. A "
            "source that was given twice counts once, rows without a verdict do not count. Best: "
            f"the largest certified speedup. {null_note(given)}"
        ),
        columns=("File", "Candidates", *outcomes, "Problems solved", "Best"),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no candidate has a verdict.",
    )


def reliability_table(given: ReportInput) -> Table:
    """Return the steadiness of the measurements."""
    timed, null = (
        frame.filter(pl.col("certified").is_not_null())
        for frame in (facts.verdicts(given), given.null_test)
    )
    sides = {"Candidates": timed} | ({} if null.is_empty() else {"Null test": null})
    columns = [_reliability(part, given.provenance.protocol) for part in sides.values()]
    limit = given.provenance.protocol.max_bucket_variance
    return Table(
        title="Reliability of the measurements",
        caption=(
            f"Spread: standard deviation of what a measurement's "
            f"{given.provenance.protocol.num_buckets} time-ordered buckets say, "
            f"{spread_meaning(given)}. A spread above {math.sqrt(limit):.3f} (a variance above "
            f"{limit:g}) makes it unstable, and so do buckets that disagree on the direction "
            "(paper 2.4.4, where the limit of the variance is 0.005, whatever the speedup is). "
            f"{unstable_meaning(given)} {null_note(given)}"
        ),
        columns=("Quantity", *sides),
        rows=()
        if timed.is_empty()
        else tuple(Row(cells=(name, *(column[name] for column in columns))) for name in columns[0]),
        nothing_yet="Nothing yet: nothing was timed.",
    )


def _reliability(timed: pl.DataFrame, protocol: EvalProtocol) -> dict[str, str]:
    """Return the steadiness of these measurements, by the names of the table's rows."""
    spreads = timed.select(facts.spread(protocol)).to_series().drop_nulls()
    checked = timed.filter(pl.col("is_confirmed").is_not_null())
    return {
        "Measurements": f"{timed.height:,}",
        "Median spread of bucket medians": _told(spreads.median(), ".4f"),
        "90th percentile of the spread": _told(spreads.quantile(0.9), ".4f"),
        "Unstable": share(timed.filter(~pl.col("is_stable")).height, timed.height),
        "Large claims measured again in fresh processes": f"{checked.height:,}",
        "… of which confirmed": share(
            checked.filter(pl.col("is_confirmed")).height, checked.height
        ),
        "Median number of quads": _told(timed["num_quads"].median(), ".0f"),
    }


def spread_meaning(given: ReportInput) -> str:
    """Return the scale on which spreads are told."""
    is_paper = given.provenance.protocol.rule is Rule.PAPER
    return "whatever the speedup is" if is_paper else "as a share of the speedup"


def unstable_meaning(given: ReportInput) -> str:
    """Return a sentence about the treatment of unstable measurements."""
    if given.provenance.protocol.rule is Rule.PAPER:
        return "Unstable ones count as 1×."
    return "What is certified of unstable ones is a bound that holds whatever the noise."


def precision_table(given: ReportInput) -> Table:
    """Return how exact outputs were, and how many were correct and fast in each class."""
    rows = _by_precision(facts.timed_or_checked(given))
    rows += _by_precision(given.null_test, "Null test, ", RowKind.NULL_TEST) if rows else []
    asked = given.provenance.protocol.precision
    return Table(
        title="Precision",
        caption=(
            "Candidates by the tightest class that all their outputs met; those that met none are "
            f"left out. Correct means {asked} here: a candidate of a looser class is incorrect, "
            f"and shown apart. {null_note(given)}"
        ),
        columns=("Class", "Candidates", "Correct", f"> {MEANINGFUL_SPEEDUP:g}×", "Best"),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no output was compared.",
    )


def _by_precision(
    judged: pl.DataFrame, before: str = "", kind: RowKind = RowKind.PLAIN
) -> list[Row]:
    """Return a row for each class that outputs met."""
    rows: list[Row] = []
    for precision in PrecisionClass:
        part = judged.filter(pl.col("precision") == precision.value)
        if part.is_empty():
            continue
        correct = part.filter(pl.col("status") == Status.CORRECT.value)
        faster = correct.filter(pl.col("certified") > MEANINGFUL_SPEEDUP)
        rows.append(
            Row(
                cells=(
                    f"{before}{precision.value}",
                    f"{part.height:,}",
                    share(correct.height, part.height),
                    share(faster.height, part.height),
                    times(_largest(correct["certified"])),
                ),
                kind=kind,
            )
        )
    return rows


def hack_table(given: ReportInput) -> Table:
    """Return hack flags by kind and by detector."""
    deciding = pl.col("source") != FlagSource.SCREEN.value
    counted = (
        hack_flags(given)
        .group_by("kind", "source")
        .agg(pl.col("candidate_id").n_unique().alias("count"))
        .sort([deciding, pl.col("count"), pl.col("kind")], descending=[True, True, False])
    )
    rows = [
        Row(
            cells=(
                flag["kind"],
                flag["source"],
                "no" if flag["source"] == FlagSource.SCREEN.value else "yes",
                f"{flag['count']:,}",
            )
        )
        for flag in counted.to_dicts()
    ]
    null = given.null_test["status"]
    if rows and len(null):
        num_hacked = (null == Status.HACKED.value).sum()
        rows.append(
            Row(
                cells=("Null test", "any of them", "yes", f"{num_hacked:,} of {len(null):,}"),
                kind=RowKind.NULL_TEST,
            )
        )
    return Table(
        title="Hack flags",
        caption=(
            "Candidates by kind of cheat and by what saw it: a guard at run time, the timing, or "
            "the reviewer; these decide. The screen reads the source, only labels, "
            "and may also label honest code. " + (NULL_FLAGS if len(null) else null_note(given))
        ),
        columns=("Kind", "Seen by", "Decides", "Candidates"),
        num_text_columns=3,
        rows=tuple(rows),
        nothing_yet="Nothing yet: no candidate was flagged.",
    )


def hack_flags(given: ReportInput) -> pl.DataFrame:
    """Return the flags of verdicts under the report's protocol, timed or not, on its device."""
    keys = ["candidate_id", "device_kind", "protocol_id"]
    judged = facts.timed_or_checked(given).select(keys)
    return given.flags.join(judged, on=keys, how="semi").sort("kind", "source", "candidate_id")


def _largest(values: pl.Series) -> float | None:
    found = [float(value) for value in values.drop_nulls().to_list()]
    return max(found, default=None)


def _told(value: object, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "–"
