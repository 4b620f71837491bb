"""`cudal1 sql`: questions to the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cudal1.cli.ending import fail
from cudal1.errors import CudaL1Error


def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement")],
    data: Annotated[Path, typer.Option(help="Where ledger and shards are")] = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON")] = False,
) -> None:
    """Ask the ledger. Reading never disturbs a running pipeline.

    Example: cudal1 sql "from best order by certified desc limit 5"
    """
    import polars as pl
    import polars.selectors as cs

    from cudal1.ledger import Ledger

    try:
        with Ledger.read(data) as ledger:
            frame = ledger.sql(query)
    except CudaL1Error as error:
        fail(str(error))
    if as_json:
        rows = frame.with_columns(cs.float().fill_nan(None)).to_dicts()  # JSON knows no NaN
        typer.echo(json.dumps(rows, default=str))
        return
    with pl.Config(
        tbl_rows=200, tbl_cols=30, fmt_str_lengths=60, tbl_width_chars=160,
        tbl_hide_column_data_types=True, tbl_hide_dataframe_shape=True,
    ):  # fmt: skip
        typer.echo(str(frame))
