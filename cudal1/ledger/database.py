"""The database file: opened, recognised, moved aside when it is damaged.

The file is a working copy, so nothing here tries to repair it: a file that cannot be read is
rebuilt elsewhere.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import duckdb

from cudal1.errors import StoreError
from cudal1.ledger import schema

DATABASE = "ledger.duckdb"
_MACHINE = (
    "No space left",
    "Permission denied",
    "Read-only file system",
    "Too many open files",
    "Disk quota",
    "Out of Memory",
)
"""Parts of error messages that are about the machine, not the file."""


LOCK_WAIT_S = 5.0
"""Seconds that a writer waits for a reader."""


class DamagedError(Exception):
    """The file is not a usable database; it can be rebuilt."""


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the database for writing; an older one is upgraded.

    Raises:
        DamagedError: it exists, but is damaged, or too old to be upgraded.
        StoreError: another process is writing, it is of a newer layout, or the machine refuses.
    """
    try:
        connection = duckdb.connect(str(path))
    except (duckdb.Error, RuntimeError, ValueError) as error:
        raise _reading_failed(path, error) from error
    try:
        found = 0
        if connection.execute("select 1 from duckdb_tables() limit 1").fetchall():
            found = _checked_version(connection, path)
            _read_everything(connection)
        if not found or not schema.is_current(connection):
            schema.upgrade(connection, found=found)
    except (duckdb.Error, RuntimeError, ValueError) as error:
        connection.close()
        raise _reading_failed(path, error) from error
    except (StoreError, DamagedError):
        connection.close()
        raise
    return connection


def connect_soon(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the database like `connect`, but wait `LOCK_WAIT_S` for a reader to end.

    A reader's open question takes seconds.

    Raises:
        DamagedError, StoreError: see `connect`.
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
        DamagedError: it is missing, cannot be read, or is of older code.
        StoreError: another process is writing, it is of a newer layout, or the machine refuses.
    """
    try:
        connection = duckdb.connect(str(path), read_only=True)
    except (duckdb.Error, RuntimeError, ValueError) as error:
        raise _reading_failed(path, error) from error
    try:
        _checked_version(connection, path)
        if not schema.is_current(connection):
            raise DamagedError(f"{path} was written by older code (the next stage upgrades it)")
    except (duckdb.Error, RuntimeError, ValueError) as error:
        connection.close()
        raise _reading_failed(path, error) from error
    except (StoreError, DamagedError):
        connection.close()
        raise
    return connection


def in_memory() -> duckdb.DuckDBPyConnection:
    """Return an empty ledger in memory."""
    connection = duckdb.connect(":memory:")
    schema.upgrade(connection, found=0)
    return connection


def _checked_version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Return the version of the tables, if this code can use them.

    Raises:
        StoreError: it is newer.
        DamagedError: it is too old to be upgraded, or not a ledger.
    """
    version = schema.version_of(connection)
    if version > schema.newest():
        raise StoreError(
            f"{path} is of version {version}, newer than this code's {schema.newest()}: update "
            "cudal1, or move the file away to rebuild it from its shards"
        )
    if version < schema.oldest():
        raise DamagedError(f"its layout is older than version {schema.oldest()}")
    return version


def move_aside(path: Path) -> Path:
    """Rename the file and its log, so that a new one can be made; return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    path.rename(aside)
    log_file = path.with_name(f"{path.name}.wal")
    if log_file.exists():
        log_file.rename(aside.with_name(f"{aside.name}.wal"))
    return aside


def writing_failed(path: Path, error: duckdb.Error) -> StoreError:
    """Return the error to raise for a write that the database refused."""
    return StoreError(
        f"{path}: the ledger cannot be used ({_first_line(error)}); if the disk is full, free some "
        "space, else move the file away; then run again: nothing that was judged is lost"
    )


def _reading_failed(path: Path, error: Exception) -> StoreError | DamagedError:
    said = " ".join(str(error).split())
    if re.search(r"(Could not set|Conflicting) lock|different configuration", said):
        holder = re.search(r"PID (\d+)", said)
        user = f"process {holder.group(1)}" if holder else "another user of this process"
        return StoreError(f"{path} is in use by {user}: wait for it to end, or stop it")
    if any(sign in said for sign in _MACHINE):
        return StoreError(f"{path} cannot be opened ({_first_line(error)})")
    if re.search(r"we can only read versions? ", said):
        return StoreError(f"{path}: {_first_line(error)}: update duckdb, or move the file away")
    return DamagedError(_first_line(error))


def _read_everything(connection: duckdb.DuckDBPyConnection) -> None:
    """Read every stored block once, so that checksums are checked here and not in mid-run."""
    tables = connection.execute("select table_name from duckdb_tables()").fetchall()
    for (table,) in tables:
        connection.execute(f"select bit_xor(hash(t)) from {table} t").fetchall()


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
