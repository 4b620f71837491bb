"""The tables and views of a ledger over all publications of a place.

Nothing is copied: a question reads those columns and parts of shards that it needs, and DuckDB
keeps them in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb

from cudal1.errors import StoreError
from cudal1.ledger import schema
from cudal1.ledger.published.place import Place, open_place
from cudal1.ledger.published.publication import Publication, publications
from cudal1.ledger.published.repeats import Rows


def connect(
    text: str | os.PathLike[str], *, endpoint: str | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables and views of a ledger over all facts of a place.

    It shows what was published until now, and stays as it is.

    Args:
        text: a folder, or `s3://BUCKET/PREFIX`.
        endpoint: see `open_place`.

    Raises:
        StoreError: the place cannot be reached, nothing is published there, or something there is
            damaged or of newer code.
    """
    place = open_place(text, endpoint=endpoint)
    found, sizes = publications(place)
    if not found:
        raise StoreError(
            f"{place.name}: nothing is published here; run `cudal1 publish {place.name}` in the "
            "folder of a run, or correct the name"
        )
    connection, rows = opened(place, found, sizes)
    for table, query in rows.of.items():
        _replace(connection, table, query)
    return connection


def opened(
    place: Place, found: Sequence[Publication], sizes: dict[str, int]
) -> tuple[duckdb.DuckDBPyConnection, Rows]:
    """Return a connection that reads a place, with empty tables, and the rows of each table.

    Raises:
        StoreError: a shard cannot be read.
    """
    spill = str(Path(tempfile.gettempdir()) / f"cudal1-duckdb-{os.getpid()}")  # DuckDB makes it
    connection = duckdb.connect(config={"temp_directory": spill})
    try:
        connection.execute("set parquet_metadata_cache = true")
        schema.upgrade(connection, found=0)
        place.prepare(connection, sizes)
        return connection, Rows(connection, place, found)
    except duckdb.Error as error:
        connection.close()
        said = str(error).split("\n", 1)[0]
        raise StoreError(
            f"{place.name}: a shard cannot be read ({said}); try again, or delete the publication "
            "that names it and publish again"
        ) from error


def _replace(connection: duckdb.DuckDBPyConnection, table: str, query: str) -> None:
    """Replace an empty table by a view of the same name, columns and comments."""
    comments = connection.execute(
        "select null, comment from duckdb_tables() where table_name = $table "
        "union all select column_name, comment from duckdb_columns() where table_name = $table",
        {"table": table},
    ).fetchall()
    connection.execute(f"drop table {table}")
    connection.execute(f"create view {table} as {query}")
    for column, comment in comments:
        what = f"view {table}" if column is None else f"column {table}.{column}"
        said = comment.replace("'", "''")
        connection.execute(f"comment on {what} is '{said}'")
