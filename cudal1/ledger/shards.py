"""Shards: the facts that one stage's run used, as Parquet, one file a table. They are the truth.

`data/shards/STAGE/TABLE.parquet` is ordered, so that the same rows give the same bytes. Facts that
no shard holds (their stage ran again and did without them) go to `data/unclaimed/`, so that an
answer that was paid for outlives even the database.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb
import polars as pl

from cudal1.errors import StoreError
from cudal1.ledger import database, inserting, schema

log = logging.getLogger("cudal1")

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
    "timing_samples": _VERDICTS,
    "verdicts": _VERDICTS,
    "hack_flags": _VERDICTS,
    "tries": f"concat_ws('/', request_id, sent_at) in ({_USED} = 'tries') "
    f"or request_id in ({_USED} = 'completions') or request_id in ({_USED} = 'reviews')",
    "reviews": f"review_id in ({_USED} = 'reviews')",
    "rulings": f"candidate_id in ({_USED} = 'rulings')",
    "hack_cases": f"case_id in ({_USED} = 'hack_cases')",
    "baselines": f"candidate_id in ({_USED} = 'baselines')",
    "runs": "stage = $stage and false",  # the time of a run must not change a shard
    **dict.fromkeys(inserting.PER_STAGE, "stage = $stage"),
}
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
    """Store every fact that is in no shard on disk; call before a stage forgets its facts."""
    try:
        verdicts = connection.sql(f"{_unclaimed(folder, 'verdicts')} order by all").pl()
        tables = {"verdicts": verdicts}
        connection.register("unclaimed_verdicts", verdicts)
        for table, key in inserting.KEYS.items():
            query = _unclaimed(folder, table)
            if key is inserting.VERDICT_KEY:  # samples and flags lie beside their verdict
                query = f"from {table} semi join unclaimed_verdicts using ({', '.join(key)})"
            if table not in tables and (key is not inserting.VERDICT_KEY or verdicts.height):
                tables[table] = connection.sql(f"{query} order by all").pl()
        connection.unregister("unclaimed_verdicts")
    except duckdb.Error as error:
        raise _unusable(folder / "shards", error) from error
    final = folder / "unclaimed"
    if any(rows.height for rows in tables.values()):
        _replace_folder(final, tables)
        _remember_content(connection, final)
    else:
        shutil.rmtree(final, ignore_errors=True)


def _unclaimed(folder: Path, table: str) -> str:
    claimed = ", ".join(database.quoted(path) for path in _shard_files(folder, table))
    keys = ", ".join(inserting.KEYS[table])
    return f"from {table}" + (
        f" anti join read_parquet([{claimed}]) using ({keys})" if claimed else ""
    )


def import_changed(connection: duckdb.DuckDBPyConnection, folder: Path) -> list[str]:
    """Import every shard with content that the database has not seen; return their stages."""
    changed = changed_shards(connection, folder)
    for shard in changed:
        _import(connection, shard, stage=shard.name if shard.parent.name == "shards" else None)
    return [shard.name for shard in changed]


def changed_shards(connection: duckdb.DuckDBPyConnection, folder: Path) -> list[Path]:
    """Return shards that the database has not seen (new files, or after `dvc checkout`)."""
    seen = dict(connection.execute("select name, value from meta").fetchall())
    found = [path for path in sorted((folder / "shards").glob("*")) if path.name[0] != "."]
    if (folder / "unclaimed").is_dir():
        found.append(folder / "unclaimed")
    return [path for path in found if path.is_dir() and seen.get(label(path)) != _digest(path)]


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write one Parquet file, whole or not at all.

    Raises:
        StoreError: it cannot be written, most likely because the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        frame.write_parquet(
            partial,
            compression="zstd",
            statistics=True,
            metadata={_VERSION_KEY: str(schema.newest())},
        )
        _sync(partial)
        partial.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        partial.unlink(missing_ok=True)
        raise StoreError(
            f"{path}: cannot be written ({_line(error)}); if the disk is full, free some space and "
            "run again"
        ) from error


def read_parquet(path: Path) -> pl.DataFrame:
    """Return the rows of a Parquet file of ours.

    Raises:
        StoreError: it is missing, corrupt, or of newer code; the message says what to do.
    """
    _check_version(path)
    try:
        return pl.read_parquet(path)
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _unusable(path, error) from error


def _check_version(path: Path) -> None:
    try:
        version = int(pl.read_parquet_metadata(path).get(_VERSION_KEY, "0"))
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _unusable(path, error) from error
    if version > schema.newest():
        raise StoreError(
            f"{path} is of version {version}, newer than this code's {schema.newest()}: update "
            "cudal1"
        )


def _import(connection: duckdb.DuckDBPyConnection, shard: Path, *, stage: str | None) -> None:
    tables = {path.stem: path for path in _tables_of(shard)}
    for path in tables.values():
        _check_version(path)
    path = shard
    try:
        connection.execute("begin")
        if stage is not None:
            for table in inserting.PER_STAGE:
                connection.execute(f"delete from {table} where stage = ?", [stage])
        for table in (name for name in _SELECTIONS if name in tables):
            path = tables[table]
            inserting.insert_file(connection, table, path)
        _remember_content(connection, shard)
        connection.execute("commit")
    except duckdb.Error as error:
        with contextlib.suppress(duckdb.Error):
            connection.execute("rollback")
        raise _unusable(path, error) from error


def _shard_files(folder: Path, table: str) -> list[Path]:
    return sorted(
        path
        for path in (folder / "shards").glob(f"*/{table}.parquet")
        if path.parent.name[0] != "."
    )


def _tables_of(shard: Path) -> list[Path]:
    return sorted(path for path in shard.glob("*.parquet") if path.name[0] != ".")


def label(shard: Path) -> str:
    """Return the name under which `meta` remembers a shard's imported content."""
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
    """Flush a file to the disk: the journal is dropped next."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: BaseException) -> StoreError:
    return StoreError(
        f"{path} is missing or corrupt ({_line(error)}): run `dvc checkout`, or delete it and "
        "run its stage again"
    )


def _line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]
