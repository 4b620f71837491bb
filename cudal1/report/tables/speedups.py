"""Speedups over the reference by split and level, as in the paper's table 4."""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

import polars as pl

from cudal1.problem import Split
from cudal1.protocol import EvalProtocol, Rule
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.tables.cells import (
    AS_ONE,
    AS_ZERO,
    LARGEST,
    cells,
    failures,
    null_note,
    statistics,
    titled,
)
from cudal1.report.tables.table import Row, RowKind, Table

PAPER_ALL = ("250", "3.12×", "120×", "2.25×", "1.42×", "1.17×", "249 (99.6 %)", "226 (90 %)")
"""The paper's table 4, default baseline, all levels; a failure as 1×."""


def speedup_table(given: ReportInput, failed_as: float) -> Table:
    """Return the best certified speedup of each problem, by split and level, like table 4."""
    thresholds = given.provenance.fast_p
    rows = [
        Row(cells=(label, *cells(frame["certified"].to_list(), thresholds, failed_as)), kind=kind)
        for label, frame, kind in groups(facts.best(given))
    ]
    rows += null_rows(given, failed_as) if rows else []
    if rows and failed_as == AS_ONE:
        blanks = ("–",) * (2 + len(thresholds))
        rows.append(Row(cells=("Paper", *PAPER_ALL, *blanks), kind=RowKind.PAPER))
    return Table(
        title=titled("Speedup over the reference (as table 4)", failed_as),
        caption=_caption(given, failed_as),
        columns=("Problems", *statistics(thresholds)),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no problem was admitted.",
        is_folded=failed_as == AS_ZERO,
    )


def null_rows(given: ReportInput, failed_as: float) -> list[Row]:
    """Return the row of the null test, where it was run."""
    null = facts.null_speedups(given)
    counted = cells(null, given.provenance.fast_p, failed_as)
    return [Row(cells=("Null test", *counted), kind=RowKind.NULL_TEST)] if null else []


def groups(best: pl.DataFrame) -> list[tuple[str, pl.DataFrame, RowKind]]:
    """Return all problems, then each split, level, split and level, and suite.

    A key that does not divide the problems is left out.
    """
    if best.is_empty():
        return []
    found = [("All", best, RowKind.TOTAL)]
    for keys in (["split"], ["level"], ["split", "level"], ["suite"]):
        if any(best[key].n_unique() == 1 for key in keys):
            continue
        parts = best.partition_by(keys, as_dict=True)
        # train before held-out
        for values in sorted(parts, key=lambda v: tuple(_order(value) for value in v)):
            label = ", ".join(_label(key, value) for key, value in zip(keys, values, strict=True))
            found.append((label, parts[values], RowKind.PLAIN))
    return found


def _caption(given: ReportInput, failed_as: float) -> str:
    if failed_as == AS_ZERO:
        return f"{failures(failed_as)} {null_note(given)}"
    return (
        "Best certified speedup of each problem, against the eager reference on "
        f"{given.provenance.device_kind}: {_meaning(given.provenance.protocol)}. "
        "It is the best of many first measurements, so partly luck; the headline is of second "
        f"ones. {failures(failed_as)} Top {LARGEST}: the share of all that lies above 1× that so "
        "many problems carry; where it is large, the mean says little about the others. "
        f"{null_note(given)} Paper: 250 KernelBench problems on an A100, whose times carry no "
        "bound; other problems and another device, so for orientation only."
    )


def _meaning(protocol: EvalProtocol) -> str:
    if protocol.rule is Rule.PAPER:
        return "what the paper's rule reads, which certifies nothing"
    return f"the largest lower bound that a measurement supports (alpha {protocol.alpha:g})"


def _order(value: object) -> tuple[bool, str]:
    return value == Split.HELDOUT.value, str(value)


def _label(key: str, value: object) -> str:
    match key:
        case "level":
            return f"level {value}"
        case "split":
            return "held out" if value == Split.HELDOUT.value else str(value)
        case _:
            return f"suite {value}"
