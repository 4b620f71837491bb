"""`cudal1 sql`: questions to the ledger."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cudal1 import interrupt
from cudal1.cli.terminal.answer import answer
from cudal1.cli.terminal.ending import fail, say
from cudal1.cli.terminal.utf8 import is_text
from cudal1.errors import ConfigError, CudaL1Error

if TYPE_CHECKING:
    import polars as pl

    from cudal1.ledger import Ledger

T = TypeVar("T")
PAGE = 200
"""Rows that are printed."""
WIDTH = 60
"""Characters of a text that are printed in a table; one row alone is printed with all of it."""


def sql(
    query: Annotated[str | None, typer.Argument(help="One SQL statement")] = None,
    view: Annotated[
        str | None, typer.Option(metavar="NAME", help="All of a view or table; see --views")
    ] = None,
    views: Annotated[bool, typer.Option("--views", help="List views and tables")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write all rows to a file: .csv or .parquet")
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="PLACE", help="A run's folder, or what was published to: s3://…")
    ] = "data",
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Server of s3://…, if not Amazon's")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All rows as JSON")] = False,
) -> None:
    """Ask the ledger. Reading never disturbs a running pipeline.

    DuckDB's SQL. Long texts are cut where several rows are shown; --json and --out have them whole.

    Example: cudal1 sql "from best order by certified desc limit 5"

    Example: cudal1 sql --view leaderboard

    Example: cudal1 sql --data s3://BUCKET/PREFIX --view success

    Example: cudal1 sql --view "lineage('1f0c93ab52d7e846')" --out lineage.csv
    """
    from cudal1.ledger import Ledger

    try:
        if (query is not None) + (view is not None) + views != 1:
            raise ConfigError("sql wants one of: a question, --view NAME, --views")
        if any(not is_text(str(each)) for each in (query, view, out, data, endpoint)):
            raise ConfigError("sql: an argument is not UTF-8 text; write it as UTF-8")
        if out is not None and (out.suffix not in (".csv", ".parquet") or as_json):
            raise ConfigError(f"{out}: --out wants a .csv or a .parquet file, and no --json")
        with Ledger.read(data, endpoint=endpoint) as ledger:
            if views:
                query = f"from ({LISTING}) order by kind desc, name"
            elif view is not None:
                query = f"from {_checked(ledger, view)}"
            assert query is not None
            if out is not None:
                _interruptible(ledger, partial(ledger.save, query, out))
            elif views and not as_json:
                answer(START)
                for name, kind, comment, columns in ledger.sql(query).iter_rows():
                    answer(f"{kind:<5}  {name:<17}  {comment}")
                    if columns:
                        answer(f"{'':<26}{', '.join(columns)}")
            elif as_json:
                answer(_interruptible(ledger, partial(_json, ledger, query)))
            else:
                _print(_interruptible(ledger, partial(_page, ledger, query)))
    except CudaL1Error as error:
        fail(str(error))


START = """Start with answers (what became of each answer), success (rates by stage), ranking and
best (what is fastest), flags (cheats), stage_runs (times), training_steps (numbers of training).
Example: cudal1 sql "select outcome, count(*) from answers group by outcome"
"""
LISTING = """
    with columns_of as (
        select table_name as name, list(column_name order by column_index) as columns
        from duckdb_columns() where not internal group by table_name
    )
    select name, kind, comment, coalesce(columns, []) as columns from (
        select view_name as name, 'view' as kind, comment from duckdb_views() where not internal
        union all
        select table_name, 'table', comment from duckdb_tables()
        where database_name = current_database()
        union all
        select function_name || '(''ID'')', 'view', comment from duckdb_functions()
        where function_type = 'table_macro' and not internal
    ) left join columns_of using (name)
"""


def _checked(ledger: Ledger, view: str) -> str:
    """Return the name of a view or table, if there is one of that name."""
    names = ledger.sql(f"select split_part(name, '(', 1) as name from ({LISTING}) order by name")
    known, asked = names["name"].to_list(), view.split("(", 1)[0].strip()
    if asked not in known:
        similar = difflib.get_close_matches(asked, known, n=1)
        meant = f" Did you mean {similar[0]}?" if similar else ""
        raise ConfigError(f"no view or table {view!r}.{meant} There are {', '.join(known)}")
    return view


def _interruptible(ledger: Ledger, ask: Callable[[], T]) -> T:
    """Return the result of `ask`; a Ctrl-C stops the query."""
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask)
        try:
            while not asked.done():  # the signal may reach a thread of DuckDB, and wake only that
                wait([asked], timeout=0.1)
                interrupt.check()
        except KeyboardInterrupt:
            while not asked.done():  # a query that has not begun hears nothing
                ledger.interrupt()
                wait([asked], timeout=0.1)
            raise
        return asked.result()


NOT_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|-?Infinity|NaN')
"""Pattern of a string, which is JSON whatever it says, or of a number that DuckDB writes and JSON
lacks."""


def _json(ledger: Ledger, query: str) -> str:
    """Return the rows as a list of objects in ASCII, with values as DuckDB writes them in JSON.

    Numbers keep every digit. NaN and infinities are null. A name that comes again is numbered.
    """
    with ledger.asked(query) as relation:
        if relation is None:
            return "[]"
        names = [json.dumps(name) for name in _told_apart(relation.columns)]
        rows = _as(relation, ["cast(to_json(#{}) as varchar)"] * len(names)).fetchall()
    objects = (
        ", ".join(f"{name}: {_number(value)}" for name, value in zip(names, row, strict=True))
        for row in rows
    )
    text = "[" + ", ".join(f"{{{each}}}" for each in objects) + "]"
    return re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)


def _number(value: str | None) -> str:
    return "null" if value is None else NOT_JSON.sub(lambda found: found[1] or "null", value)


def _as(relation: Any, columns: list[str]) -> Any:
    """Return the relation with each column as an expression, in which `#{}` is the column."""
    return relation.project(
        ", ".join(expression.format(number) for number, expression in enumerate(columns, start=1))
    )


def _told_apart(names: list[str]) -> list[str]:
    """Return the names; a repeated one gets the first free number: a, a_1, a_2."""
    found: list[str] = []
    for name in names:
        number, free = 0, name
        while free in found or (number and free in names):
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


PLAIN = re.compile(r"(U?(TINY|SMALL|BIG)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|VARCHAR|DECIMAL.*)")
"""Types that polars shows as they are; polars knows no intervals, unions or years after 9999."""


def _page(ledger: Ledger, query: str) -> pl.DataFrame | None:
    """Return the rows that are shown and one more; None where a statement has none."""
    with ledger.asked(query) as relation:
        if relation is None:
            return None
        shown = [
            "#{}" if PLAIN.fullmatch(str(kind)) else "cast(#{} as varchar)"
            for kind in relation.types
        ]
        names = _told_apart(relation.columns)
        frame: pl.DataFrame = _as(relation, shown).limit(PAGE + 1).pl()
        frame.columns = names
        return frame


def _is_long(value: object) -> bool:
    """Return whether a value is a text that a table would cut off."""
    return isinstance(value, str) and (len(value) > WIDTH or "\n" in value)


def _print(frame: pl.DataFrame | None) -> None:
    import polars as pl

    if frame is None:
        return
    if frame.height == 1 and any(_is_long(value) for value in frame.row(0)):
        for name, value in zip(frame.columns, frame.row(0), strict=True):
            answer(f"{name}:\n{value}\n" if _is_long(value) else f"{name}: {value}")
        return
    with pl.Config(
        tbl_rows=PAGE,
        tbl_cols=30,
        fmt_str_lengths=WIDTH,
        tbl_width_chars=160,
        tbl_hide_column_data_types=True,
        tbl_hide_dataframe_shape=True,
    ):
        answer(str(frame.head(PAGE)))
    if frame.height > PAGE:
        say(f"the first {PAGE} rows; --out FILE.csv writes all")
