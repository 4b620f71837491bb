"""`cudal1 sql`: questions to the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cudal1.cli.ending import fail, say
from cudal1.errors import ConfigError, CudaL1Error

if TYPE_CHECKING:
    import polars as pl

    from cudal1.ledger import Ledger

PAGE = 200
"""Rows that are printed."""


def sql(
    query: Annotated[str | None, typer.Argument(help="One SQL statement")] = None,
    view: Annotated[
        str | None, typer.Option(metavar="NAME", help="All of a view or table; see --views")
    ] = None,
    views: Annotated[bool, typer.Option("--views", help="List views and tables")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write all rows to a file: .csv or .parquet")
    ] = None,
    data: Annotated[Path, typer.Option(help="Where ledger and shards are")] = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="All rows as JSON")] = False,
) -> None:
    """Ask the ledger. Reading never disturbs a running pipeline.

    Example: cudal1 sql "from best order by certified desc limit 5"

    Example: cudal1 sql --view leaderboard

    Example: cudal1 sql --view "lineage('1f0c93ab52d7e846')" --out lineage.csv
    """
    from cudal1.ledger import Ledger

    try:
        if (query is not None) + (view is not None) + views != 1:
            raise ConfigError("sql wants one of: a question, --view NAME, --views")
        if out is not None and (out.suffix not in (".csv", ".parquet") or as_json):
            raise ConfigError(f"{out}: --out wants a .csv or a .parquet file, and no --json")
        with Ledger.read(data) as ledger:
            if views:
                query = f"select name, kind, comment from ({LISTING}) order by kind desc, name"
            elif view is not None:
                query = f"from {_checked(ledger, view)}"
            assert query is not None
            if out is not None:
                ledger.save(query, out)
            elif views and not as_json:
                for name, kind, comment in ledger.sql(query).iter_rows():
                    typer.echo(f"{kind:<5}  {name:<17}  {comment}")
            else:
                _print(ledger.sql(query, limit=None if as_json else PAGE + 1), as_json=as_json)
    except CudaL1Error as error:
        fail(str(error))


LISTING = """
    select view_name as name, 'view' as kind, comment from duckdb_views() where not internal
    union all
    select table_name, 'table', comment from duckdb_tables()
    union all
    select function_name || '(''ID'')', 'view', comment from duckdb_functions()
    where function_type = 'table_macro' and not internal
"""


def _checked(ledger: Ledger, view: str) -> str:
    """The name, if it is one."""
    names = ledger.sql(f"select split_part(name, '(', 1) as name from ({LISTING}) order by name")
    if view.split("(", 1)[0].strip() not in names["name"].to_list():
        known = ", ".join(names["name"])
        raise ConfigError(f"no view or table {view!r}; there are {known}")
    return view


def _print(frame: pl.DataFrame, *, as_json: bool) -> None:
    import polars as pl
    import polars.selectors as cs

    if as_json:
        rows = frame.with_columns(cs.float().fill_nan(None)).to_dicts()  # JSON knows no NaN
        typer.echo(json.dumps(rows, default=str))
        return
    with pl.Config(
        tbl_rows=PAGE, tbl_cols=30, fmt_str_lengths=60, tbl_width_chars=160,
        tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True,
    ):  # fmt: skip
        typer.echo(str(frame.head(PAGE)))
    if frame.height > PAGE:
        say(f"the first {PAGE} rows; --out FILE.csv writes all")
