"""The definition of the tables, and the upgrade of an older database to a newer one.

`migrations/NNNN_WHAT.sql`, applied in their order, are the only source of the tables. A database
remembers the last one that was applied. `views.sql` is applied again whenever its text has changed.

A migration adds tables, indexes, comments, and columns that may be null or have a default. It drops
no column, because shards and journals of older code are imported by the names of their columns. A
column that it renames is in `RENAMED`. (A column with a new meaning needs a new name.)
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb

FOLDER = Path(__file__).parent
RENAMED = {"reviews": {"judge_id": "reviewer_id"}}
"""New names of columns by their old ones, for each table."""


def newest() -> int:
    """Return the version of the tables that this code makes, in the database and in shards."""
    return max(_migrations())


def oldest() -> int:
    """Return the oldest version that can be upgraded."""
    return min(_migrations())


def present_name(table: str, column: str) -> str:
    """Return the present name of a column that older code may have called otherwise."""
    return RENAMED.get(table, {}).get(column, column)


def version_of(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the version of a database; 0 for one that is no ledger."""
    found = connection.execute("select value from meta where name = 'schema'").fetchall()
    return int(found[0][0]) if found else 0


def is_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether tables and views are this code's."""
    found = connection.execute("select value from meta where name = 'views'").fetchall()
    return version_of(connection) == newest() and found == [(_digest_of_views(),)]


def upgrade(connection: duckdb.DuckDBPyConnection, *, found: int) -> None:
    """Upgrade a database of version `found`, 0 for an empty one.

    Everything is done in one transaction, so that a kill leaves the file unchanged.
    """
    connection.execute("begin")
    views = connection.execute("select view_name from duckdb_views() where not internal")
    for (view,) in views.fetchall():  # a view that this code lacks must not stay
        connection.execute(f"drop view {view}")
    for version, path in sorted(_migrations().items()):
        if version > found:
            connection.execute(path.read_text(encoding="utf-8"))
    connection.execute((FOLDER / "views.sql").read_text(encoding="utf-8"))
    for name, value in (("schema", str(newest())), ("views", _digest_of_views())):
        connection.execute("insert or replace into meta values (?, ?)", [name, value])
    connection.execute("commit")


def _migrations() -> dict[int, Path]:
    return {int(path.name[:4]): path for path in (FOLDER / "migrations").glob("*.sql")}


def _digest_of_views() -> str:
    return hashlib.sha256((FOLDER / "views.sql").read_bytes()).hexdigest()
