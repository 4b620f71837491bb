"""The database file: opened, recognised, moved aside when it is damaged.

It is a working copy, so nothing here tries to repair it: what cannot be read is rebuilt elsewhere.
"""

from __future__ import annotations

import re
import time
from importlib.resources import files
from pathlib import Path

import duckdb

from cudal1.errors import StoreError

SCHEMA_VERSION = 4
"""Of the tables, in the database and in shards."""
DATABASE = "ledger.duckdb"
_MACHINE = (
    "No space left", "Permission denied", "Read-only file system", "Too many open files",
    "Disk quota", "Out of Memory",
)  # fmt: skip
"""What the machine, not the file, is to blame for."""


LOCK_WAIT_S = 5.0
"""How long a writer waits for a reader."""


class DamagedError(Exception):
    """The file is not a usable database; it can be rebuilt."""


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the database for writing, with its tables.

    Raises:
        DamagedError: it is there, but is damaged or of an older layout.
        StoreError: somebody else is writing, it is of a newer layout, or the machine refuses.
    """
    try:
        connection = duckdb.connect(str(path))
    except (duckdb.Error, RuntimeError, ValueError) as error:
        raise _reading_failed(path, error) from error
    try:
        if connection.execute("select 1 from duckdb_tables() limit 1").fetchall():
            check_version(connection, path)
            _read_everything(connection)
    except (duckdb.Error, RuntimeError, ValueError) as error:
        connection.close()
        raise _reading_failed(path, error) from error
    except (StoreError, DamagedError):
        connection.close()
        raise
    create_tables(connection)
    return connection


def connect_soon(path: Path) -> duckdb.DuckDBPyConnection:
    """As `connect`, but wait a little for somebody who only reads: an open question takes seconds.

    Raises:
        DamagedError, StoreError: as `connect`.
    """
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return connect(path)
        except StoreError as error:
            if "is in use by" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def connect_read_only(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the database for reading.

    Raises:
        DamagedError: it is missing or cannot be read.
        StoreError: somebody is writing, it is of a newer layout, or the machine refuses.
    """
    try:
        connection = duckdb.connect(str(path), read_only=True)
        check_version(connection, path)
    except (duckdb.Error, RuntimeError, ValueError) as error:
        raise _reading_failed(path, error) from error
    return connection


def in_memory() -> duckdb.DuckDBPyConnection:
    """An empty ledger that no file holds."""
    connection = duckdb.connect(":memory:")
    create_tables(connection)
    return connection


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Make tables, views and comments that are not there yet."""
    schema = (files("cudal1.ledger") / "schema.sql").read_text(encoding="utf-8")
    # in one transaction, so that a kill leaves a file with all of it or an empty one
    connection.execute("begin")
    connection.execute(schema)
    connection.execute(f"insert or ignore into meta values ('schema', '{SCHEMA_VERSION}')")
    connection.execute("commit")


def check_version(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Refuse what newer code wrote.

    Raises:
        StoreError: it is newer.
        DamagedError: it is older, or not a ledger.
    """
    found = connection.execute("select value from meta where name = 'schema'").fetchall()
    version = int(found[0][0]) if found else 0
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} is of version {version}, newer than this code's {SCHEMA_VERSION}: update "
            "cudal1, or move the file away to rebuild it from its shards"
        )
    if version < SCHEMA_VERSION:
        raise DamagedError(f"its layout is older than version {SCHEMA_VERSION}")


def move_aside(path: Path) -> Path:
    """Rename the file, with its log, so that a new one can be made; returns where it went."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    path.rename(aside)
    log_file = path.with_name(f"{path.name}.wal")
    if log_file.exists():
        log_file.rename(aside.with_name(f"{aside.name}.wal"))
    return aside


def writing_failed(path: Path, error: duckdb.Error) -> StoreError:
    """What to tell about a write that the database refused."""
    return StoreError(
        f"{path}: the ledger cannot be used ({_first_line(error)}); if the disk is full, free some "
        "space, else move the file away; then run again: nothing that was judged is lost"
    )


def _reading_failed(path: Path, error: Exception) -> StoreError | DamagedError:
    said = " ".join(str(error).split())
    if re.search(r"(Could not set|Conflicting) lock|different configuration", said):
        holder = re.search(r"PID (\d+)", said)
        who = f"process {holder.group(1)}" if holder else "another user of this process"
        return StoreError(f"{path} is in use by {who}: wait for it to end, or stop it")
    if any(sign in said for sign in _MACHINE):
        return StoreError(f"{path} cannot be opened ({_first_line(error)})")
    if re.search(r"we can only read versions? ", said):
        return StoreError(f"{path}: {_first_line(error)}: update duckdb, or move the file away")
    return DamagedError(_first_line(error))


def _read_everything(connection: duckdb.DuckDBPyConnection) -> None:
    """Touch every stored block once, so that its checksum is checked now and not in mid-run."""
    tables = connection.execute("select table_name from duckdb_tables()").fetchall()
    for (table,) in tables:
        connection.execute(f"select bit_xor(hash(t)) from {table} t").fetchall()


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
