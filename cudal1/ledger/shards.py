"""Shards: the facts that one stage's run used, as Parquet, one file a table. They are the truth.

`data/shards/STAGE/TABLE.parquet`, ordered, so that the same rows give the same bytes. Facts that no
shard holds any longer (their stage ran again and did without them) go to `data/unclaimed/`, so that
an answer that was paid for outlives even the database.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb
import polars as pl

from cudal1.errors import StoreError
from cudal1.ledger.database import SCHEMA_VERSION
from cudal1.ledger.rows import Batch

log = logging.getLogger("cudal1")

PER_STAGE = ("rewards", "training_steps", "members")
"""Tables whose rows carry their stage; all others are facts, reached through `members`."""
_VERDICT_KEY = ("candidate_id", "device_kind", "protocol_id")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "problems": ("problem_id",), "protocols": ("protocol_id",), "completions": ("completion_id",),
    "candidates": ("candidate_id",), "timing_samples": _VERDICT_KEY, "verdicts": _VERDICT_KEY,
    "hack_flags": _VERDICT_KEY, "mutants": ("problem_id",), "tries": ("request_id", "sent_at"),
    "reviews": ("review_id",), "rulings": ("candidate_id",), "hack_cases": ("case_id",),
}  # fmt: skip
"""Facts, and the columns by which they are told apart (flags and samples: their verdict; mutants:
their problem).
Samples come before verdicts, see `insert_frame`."""
_REPLACED_AS_A_WHOLE = {"rewards": ("stage", "step"), "mutants": ("problem_id",)}
_USED = "select key from members where stage = $stage and kind"
_VERDICTS = f"concat_ws('/', candidate_id, device_kind, protocol_id) in ({_USED} = 'verdicts')"
_SELECTIONS = {
    "problems": f"problem_id in ({_USED} = 'problems')",
    "mutants": f"problem_id in ({_USED} = 'problems')",
    "protocols": f"protocol_id in ({_USED} = 'protocols') "
    f"or protocol_id in (select protocol_id from verdicts where {_VERDICTS})",
    "completions": f"completion_id in ({_USED} = 'completions')",
    "candidates": f"candidate_id in ({_USED} = 'candidates') "
    f"or candidate_id in (select candidate_id from verdicts where {_VERDICTS}) "
    "or candidate_id in (select candidate_id from completions "
    f"where completion_id in ({_USED} = 'completions')) "
    f"or candidate_id in ({_USED} = 'rulings')",
    "timing_samples": _VERDICTS, "verdicts": _VERDICTS, "hack_flags": _VERDICTS,
    "tries": f"concat_ws('/', request_id, sent_at) in ({_USED} = 'tries') "
    f"or request_id in ({_USED} = 'completions') or request_id in ({_USED} = 'reviews')",
    "reviews": f"review_id in ({_USED} = 'reviews')",
    "rulings": f"candidate_id in ({_USED} = 'rulings')",
    "hack_cases": f"case_id in ({_USED} = 'hack_cases')",
    **dict.fromkeys(PER_STAGE, "stage = $stage"),
}  # fmt: skip
_VERSION_KEY = "cudal1_ledger"


def export(connection: duckdb.DuckDBPyConnection, folder: Path, stage: str) -> Path:
    """Replace the stage's shard with its current rows, all files or none."""
    tables = {
        table: connection.sql(
            f"select * from {table} where {condition} order by all", params={"stage": stage}
        ).pl()
        for table, condition in _SELECTIONS.items()
    }
    final = folder / "shards" / stage
    _replace_folder(final, tables)
    _remember_content(connection, final)
    return final


def keep_unclaimed(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Write down every fact that is in no shard on disk; call before a stage forgets its facts."""
    tables: dict[str, pl.DataFrame] = {}
    for table, key in _KEYS.items():
        columns = ", ".join(key)
        query = f"select * from {table}"
        # samples and flags lie beside their verdict
        claimed = _shard_files(folder, "verdicts" if key is _VERDICT_KEY else table)
        if claimed:
            names = ", ".join(f"'{_quoted(path)}'" for path in claimed)
            query += f" anti join read_parquet([{names}]) using ({columns})"
        try:
            tables[table] = connection.sql(f"{query} order by all").pl()
        except duckdb.Error as error:
            raise _unusable(folder / "shards", error) from error
    final = folder / "unclaimed"
    if any(rows.height for rows in tables.values()):
        _replace_folder(final, tables)
        _remember_content(connection, final)
    else:
        shutil.rmtree(final, ignore_errors=True)


def import_changed(connection: duckdb.DuckDBPyConnection, folder: Path) -> list[str]:
    """Take in every shard whose content the database has not seen; returns their stages."""
    changed = changed_shards(connection, folder)
    for shard in changed:
        _import(connection, shard, stage=shard.name if shard.parent.name == "shards" else None)
    return [shard.name for shard in changed]


def changed_shards(connection: duckdb.DuckDBPyConnection, folder: Path) -> list[Path]:
    """Shards whose content the database has not seen (after `dvc checkout`, or for a new file)."""
    seen = dict(connection.execute("select name, value from meta").fetchall())
    found = [path for path in sorted((folder / "shards").glob("*")) if path.name[0] != "."]
    if (folder / "unclaimed").is_dir():
        found.append(folder / "unclaimed")
    return [path for path in found if path.is_dir() and seen.get(label(path)) != _digest(path)]


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write one Parquet file, whole or not at all.

    Raises:
        StoreError: it cannot be written; the disk is full, most likely.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        frame.write_parquet(
            partial, compression="zstd", statistics=True,
            metadata={_VERSION_KEY: str(SCHEMA_VERSION)},
        )  # fmt: skip
        _sync(partial)
        partial.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        partial.unlink(missing_ok=True)
        raise StoreError(
            f"{path}: cannot be written ({_line(error)}); if the disk is full, free some space and "
            "run again"
        ) from error


def read_parquet(path: Path) -> pl.DataFrame:
    """The rows of a Parquet file of ours.

    Raises:
        StoreError: it is missing, corrupt, or of newer code; the message says what to do.
    """
    try:
        version = int(pl.read_parquet_metadata(path).get(_VERSION_KEY, "0"))
        rows = pl.read_parquet(path)
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _unusable(path, error) from error
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} is of version {version}, newer than this code's {SCHEMA_VERSION}: update "
            "cudal1"
        )
    return rows


def _import(connection: duckdb.DuckDBPyConnection, shard: Path, *, stage: str | None) -> None:
    # read before the transaction: a corrupt file leaves the database as it was
    tables = {path.stem: read_parquet(path) for path in _tables_of(shard)}
    try:
        connection.execute("begin")
        if stage is not None:
            for table in PER_STAGE:
                connection.execute(f"delete from {table} where stage = ?", [stage])
        for table in (name for name in _SELECTIONS if name in tables):
            insert_frame(connection, table, tables[table])
        _remember_content(connection, shard)
        connection.execute("commit")
    except duckdb.Error as error:
        connection.execute("rollback")
        raise _unusable(shard, error) from error


def insert_frame(connection: duckdb.DuckDBPyConnection, table: str, appended: pl.DataFrame) -> None:
    """Insert rows by the names of their columns, idempotently."""
    if table == "timing_samples":  # those of a verdict that is there already are there too
        source = f"appended anti join verdicts using ({', '.join(_VERDICT_KEY)})"
    else:
        source = f"appended {on_conflict(table, appended.columns)}"
    # duckdb finds `appended` by its name in this function
    connection.execute(f"insert into {table} by name from {source}")


def forget_replaced(connection: duckdb.DuckDBPyConnection, batch: Batch) -> None:
    """Delete what a batch says anew as a whole: it may have fewer rows this time."""
    wholes = _REPLACED_AS_A_WHOLE.get(batch.table, ())
    places = [batch.columns.index(name) for name in wholes]
    for key in {tuple(row[place] for place in places) for row in batch.rows} if wholes else ():
        condition = " and ".join(f"{name} = ?" for name in wholes)
        connection.execute(f"delete from {batch.table} where {condition}", list(key))


def on_conflict(table: str, columns: list[str]) -> str:
    """The clause that makes an append of `table` idempotent.

    A fact stays as it was first seen. What may be said anew: whether a problem is admitted and its
    kill table, a step that is done again, what became of a try, what was found in an answer, and
    what a person rules; a failed request never replaces an answer.
    """
    update = f"do update set {', '.join(f'{name} = excluded.{name}' for name in columns)}"
    match table:
        case "problems" | "mutants" | "rewards" | "training_steps":
            return f"on conflict {update}"
        case "tries":
            return f"on conflict {update} where tries.outcome = 'sent'"
        case "rulings":
            return f"on conflict {update} where excluded.ruled_at > rulings.ruled_at"
        case "completions" | "reviews":
            return f"on conflict {update} where not starts_with(excluded.finish_reason, 'error: ')"
        case _:
            return "on conflict do nothing"


def _shard_files(folder: Path, table: str) -> list[Path]:
    return sorted(
        path
        for path in (folder / "shards").glob(f"*/{table}.parquet")
        if path.parent.name[0] != "."
    )


def _tables_of(shard: Path) -> list[Path]:
    return sorted(path for path in shard.glob("*.parquet") if path.name[0] != ".")


def label(shard: Path) -> str:
    """Under which name `meta` remembers the content that was taken in."""
    return f"{shard.parent.name}/{shard.name}" if shard.parent.name == "shards" else shard.name


def _digest(shard: Path) -> str:
    digest = hashlib.sha256()
    for path in _tables_of(shard):
        digest.update(path.name.encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _remember_content(connection: duckdb.DuckDBPyConnection, shard: Path) -> None:
    connection.execute("insert or replace into meta values (?, ?)", [label(shard), _digest(shard)])


def _replace_folder(final: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    fresh, old = (final.with_name(f".{final.name}.{suffix}") for suffix in ("new", "old"))
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir(parents=True)
    for table, rows in tables.items():
        if rows.height:
            write_parquet(rows, fresh / f"{table}.parquet")
    if final.exists():
        final.rename(old)
    fresh.rename(final)
    _sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    """On disk, not only in memory: the journal is dropped next."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _unusable(path: Path, error: BaseException) -> StoreError:
    return StoreError(
        f"{path} is missing or corrupt ({_line(error)}): run `dvc checkout`, or delete it and "
        "run its stage again"
    )


def _line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]
