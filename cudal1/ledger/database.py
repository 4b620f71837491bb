"""The database files: opened, recognised, moved aside when one is damaged, published to readers.

There are two. One process at a time writes `.ledger.duckdb`, and holds DuckDB's lock on it. Readers
open `ledger.duckdb`, a copy. No stage opens the copy for writing: it is replaced as a whole when a
stage ends. A reader that holds the old copy open keeps the old file, and locks nothing that a stage
needs.

Both are working copies, so nothing here tries to repair one: a file that cannot be read is rebuilt.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import duckdb

from cudal1.errors import StoreError
from cudal1.ledger import schema

DATABASE = ".ledger.duckdb"
"""The file that stages write."""
SNAPSHOT = "ledger.duckdb"
"""The copy that readers open."""
READ_ONLY = 0o444
"""Mode of the copy: a program that opens it for writing would lock other readers out."""
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
"""Seconds that a writer waits for another one, such as `cudal1 hacks confirm`."""


class DamagedError(Exception):
    """The file is not a usable database; it can be rebuilt."""


def connect(path: Path, *, is_checked: bool = True) -> duckdb.DuckDBPyConnection:
    """Open the database for writing; an older one is upgraded.

    Args:
        path: the file.
        is_checked: read every block, so that damage shows here and not in mid-run.

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
            if is_checked:
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
    """Open the database like `connect`, but wait `LOCK_WAIT_S` for another writer to end.

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
    """Open a database for reading.

    Raises:
        DamagedError: it is missing, cannot be read, or is of older code.
        StoreError: a program has opened it for writing, it is of a newer layout, or the machine
            refuses.
    """
    try:
        connection = _open_anew(path)
    except (duckdb.Error, RuntimeError, ValueError) as error:
        raise _reading_failed(path, error) from error
    try:
        _checked_version(connection, path)
        if not schema.is_current(connection):
            raise DamagedError(f"{path} was written by older code (the next stage renews it)")
    except (duckdb.Error, RuntimeError, ValueError) as error:
        connection.close()
        raise _reading_failed(path, error) from error
    except (StoreError, DamagedError):
        connection.close()
        raise
    return connection


def _open_anew(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the file that the path leads to at this moment.

    DuckDB opens a path once in a process: while a notebook holds an earlier connection, it would
    answer from the file that was replaced since. So a name of its own leads to the file, for as
    long as opening takes. In a folder that is not the reader's own, the path itself must do.
    """
    spill = str(Path(tempfile.gettempdir()) / f"cudal1-duckdb-{os.getpid()}")  # DuckDB makes it
    with contextlib.ExitStack() as opening:
        try:
            place = tempfile.TemporaryDirectory(prefix=".reading-", dir=path.parent)
            own = Path(opening.enter_context(place)) / path.name
            own.hardlink_to(path)
        except OSError:
            own = path
        return duckdb.connect(str(own), read_only=True, config={"temp_directory": spill})


def publish(connection: duckdb.DuckDBPyConnection, path: Path, snapshot: Path) -> None:
    """Copy the database to `snapshot`, whole or not at all, and close its connection.

    The copy is made while the connection holds the lock on the file. A process loses its locks on
    a file when it closes any descriptor of it, so the one that is read here is closed last.

    Raises:
        OSError, duckdb.Error: it could not be copied; the connection is closed all the same.
    """
    with contextlib.ExitStack() as last:
        try:
            connection.execute("checkpoint")
            content = last.enter_context(path.open("rb"))
            _replace(snapshot, content)
        finally:
            connection.close()


def _replace(snapshot: Path, content: BinaryIO) -> None:
    partial = snapshot.with_name(f".{snapshot.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with partial.open("xb") as copy:
            copy_file(content, copy)
            os.fchmod(copy.fileno(), READ_ONLY)
            os.fsync(copy.fileno())
        # what a program left that had opened the old copy for writing is no part of the new one
        snapshot.with_name(f"{snapshot.name}.wal").unlink(missing_ok=True)
        partial.replace(snapshot)
    finally:
        partial.unlink(missing_ok=True)


def copy_file(content: BinaryIO, copy: BinaryIO) -> None:
    """Copy a file; where the file system can, both share their blocks until one is changed."""
    try:
        while os.copy_file_range(content.fileno(), copy.fileno(), 1 << 30):
            pass
    except OSError:  # not on this file system, or between these two
        content.seek(0)
        copy.seek(0)
        copy.truncate()
        shutil.copyfileobj(content, copy, 1 << 20)


def quoted(path: Path) -> str:
    """Return the path as an SQL string."""
    text = str(path).replace("'", "''")
    return f"'{text}'"


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
