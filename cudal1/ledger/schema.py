"""What the tables are, and how an older database becomes a newer one.

`migrations/NNNN_WHAT.sql`, applied in their order, are the only source of the tables; a database
remembers how far it is. `views.sql` is made anew whenever its text has changed.

A migration adds tables, indexes, comments, and columns that may be null or have a default; it
renames and drops no column, because shards and journals of older code are taken in by the names of
their columns. (A column that means something else needs another name.)
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb

FOLDER = Path(__file__).parent


def newest() -> int:
    """The version of the tables that this code makes, in the database and in shards."""
    return max(_migrations())


def oldest() -> int:
    """The oldest version that can be upgraded."""
    return min(_migrations())


def version_of(connection: duckdb.DuckDBPyConnection) -> int:
    """The version of a database; 0 for something else's."""
    found = connection.execute("select value from meta where name = 'schema'").fetchall()
    return int(found[0][0]) if found else 0


def is_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether tables and views are this code's."""
    found = connection.execute("select value from meta where name = 'views'").fetchall()
    return version_of(connection) == newest() and found == [(_digest_of_views(),)]


def upgrade(connection: duckdb.DuckDBPyConnection, *, found: int) -> None:
    """Bring a database of version `found`, 0 for an empty one, up to date.

    All in one transaction, so that a kill leaves the file as it was.
    """
    connection.execute("begin")
    for version, path in sorted(_migrations().items()):
        if version > found:
            connection.execute(path.read_text(encoding="utf-8"))
    for (view,) in connection.execute(
        "select view_name from duckdb_views() where not internal"
    ).fetchall():
        connection.execute(f"drop view {view}")  # one that is gone must not stay behind
    connection.execute((FOLDER / "views.sql").read_text(encoding="utf-8"))
    for name, value in (("schema", str(newest())), ("views", _digest_of_views())):
        connection.execute("insert or replace into meta values (?, ?)", [name, value])
    connection.execute("commit")


def _migrations() -> dict[int, Path]:
    return {int(path.name[:4]): path for path in (FOLDER / "migrations").glob("*.sql")}


def _digest_of_views() -> str:
    return hashlib.sha256((FOLDER / "views.sql").read_bytes()).hexdigest()
