"""Shards: the rows of one stage's run as Parquet, one file a table. They are the truth.

`data/shards/STAGE/TABLE.parquet`, ordered, so that the same rows give the same bytes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from pathlib import Path

import duckdb
import polars as pl

from cudal1.errors import StoreError

log = logging.getLogger("cudal1")

PER_STAGE = ("rewards", "training_steps")
"""Tables whose rows carry their stage; all others are reached through `members`."""
_SELECTIONS = {
    "problems": "problem_id in ({keys})",
    "protocols": "protocol_id in (select split_part(key, '/', 3) from members "
    "where stage = $stage and kind = 'verdicts')",
    "completions": "completion_id in ({keys})",
    "candidates": "candidate_id in ({keys}) or candidate_id in (select candidate_id from completions "
    "where completion_id in (select key from members where stage = $stage and kind = 'completions'))",
    "verdicts": "concat_ws('/', candidate_id, device_kind, protocol_id) in ({keys})",
    "timing_samples": "concat_ws('/', candidate_id, device_kind, protocol_id) in ({verdicts})",
    "hack_flags": "concat_ws('/', candidate_id, device_kind, protocol_id) in ({verdicts})",
    "rewards": "stage = $stage",
    "training_steps": "stage = $stage",
    "members": "stage = $stage",
}


def export(connection: duckdb.DuckDBPyConnection, folder: Path, stage: str) -> Path:
    """Replace the stage's shard with its current rows, all files or none."""
    final = folder / "shards" / stage
    fresh = final.with_name(f".{stage}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for table, selection in _SELECTIONS.items():
        condition = selection.format(
            keys=f"select key from members where stage = $stage and kind = '{table}'",
            verdicts="select key from members where stage = $stage and kind = 'verdicts'",
        )
        query = f"select * from {table} where {condition} order by all"
        rows = connection.sql(query, params={"stage": stage} if "$stage" in query else None).pl()
        if rows.height:
            write_parquet(rows, fresh / f"{table}.parquet")
    shutil.rmtree(final, ignore_errors=True)
    fresh.rename(final)
    return final


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write one Parquet file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        frame.write_parquet(partial, compression="zstd", statistics=True)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StoreError(
            f"{path}: cannot be written ({error}); if the disk is full, free some space and run again"
        ) from error
    os.replace(partial, path)


def read_parquet(path: Path) -> pl.DataFrame:
    """The rows of a Parquet file of ours.

    Raises:
        StoreError: it is missing or corrupt; the message says how to get it back.
    """
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{path} is missing or corrupt ({str(error).splitlines()[0]}): run `dvc checkout`, or "
            "delete it and run its stage again"
        ) from error


def import_changed(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Take in every shard whose content the database has not seen (after `dvc checkout`, a rebuild)."""
    for path in sorted((folder / "shards").glob("*/*.parquet")):
        name = f"shard {path.parent.name}/{path.stem}"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        seen = connection.execute("select value from meta where name = ?", [name]).fetchall()
        if seen and seen[0][0] == digest:
            continue
        rows = read_parquet(path)
        stage = path.parent.name
        connection.execute("begin")
        if path.stem in (*PER_STAGE, "members"):
            connection.execute(f"delete from {path.stem} where stage = ?", [stage])
        connection.execute(f"insert or ignore into {path.stem} by name select * from rows")
        connection.execute("insert or replace into meta values (?, ?)", [name, digest])
        connection.execute("commit")
        assert rows is not None  # named in the query above
