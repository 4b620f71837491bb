"""Idempotent insertion of rows into tables: a fact that is there already is not added again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import polars as pl

from cudal1.ledger import schema
from cudal1.ledger.database import quoted
from cudal1.ledger.rows import Batch

PER_STAGE = ("rewards", "training_steps", "members")
"""Tables with a stage in each row; all others hold facts, reached through `members`."""
VERDICT_KEY = ("candidate_id", "device_kind", "protocol_id")
KEYS: Mapping[str, tuple[str, ...]] = {
    "problems": ("problem_id",),
    "protocols": ("protocol_id",),
    "completions": ("completion_id",),
    "candidates": ("candidate_id",),
    "timing_samples": VERDICT_KEY,
    "verdicts": VERDICT_KEY,
    "hack_flags": VERDICT_KEY,
    "mutants": ("problem_id",),
    "tries": ("request_id", "sent_at"),
    "reviews": ("review_id",),
    "rulings": ("candidate_id",),
    "hack_cases": ("case_id",),
    "baselines": ("candidate_id",),
    "runs": ("stage", "started_at"),
}
"""Columns that identify a fact, by table (flags and samples: by their verdict; mutants: by their
problem). Samples come before verdicts, see `_insert_samples`."""
_WITH_THEIR_FACT = ("timing_samples", "hack_flags", "mutants")
"""Facts that are identified by another fact's key, not their own."""
_READ_FROM_SOURCES = ("program_id", "techniques")
"""Columns of candidates that are read from sources; older code may not have noted them."""
_REPLACED_AS_A_WHOLE = {"rewards": ("stage", "step"), "mutants": ("problem_id",)}


def insert_file(connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> None:
    """Insert a shard's rows while they are read: it may be larger than memory.

    New rows go in without a conflict clause, which costs several times as much.
    """
    rows = _file_rows(connection, table, path)
    columns = connection.sql(f"from {rows}").columns
    if table == "timing_samples":
        if not _are_all_new(connection, path.with_name("verdicts.parquet")):
            rows = _of_new_verdicts(rows)
        _insert_samples(connection, rows)
    elif table in KEYS and table not in _WITH_THEIR_FACT:
        keys = ", ".join(KEYS[table])
        clause = on_conflict(table, columns)
        if "update" in clause:  # updates come first, while the new rows are not there
            known = f"{rows} semi join {table} using ({keys})"
            connection.execute(f"insert into {table} by name from {known} {clause}")
        connection.execute(
            f"insert into {table} by name from {rows} anti join {table} using ({keys})"
        )
    else:
        connection.execute(f"insert into {table} by name from {rows} {on_conflict(table, columns)}")


def _file_rows(connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> str:
    """Return a shard's rows, which older code may have written, under present column names."""
    rows = f"read_parquet({quoted(path)})"
    columns = connection.sql(f"from {rows}").columns
    names = {name: schema.present_name(table, name) for name in columns}
    renamed = [f"{old} as {new}" for old, new in names.items() if new != old]
    return f"(select * rename ({', '.join(renamed)}) from {rows})" if renamed else rows


def insert_frame(connection: duckdb.DuckDBPyConnection, table: str, appended: pl.DataFrame) -> None:
    """Insert rows by the names of their columns, idempotently."""
    connection.register("appended", appended)
    if table == "timing_samples":
        _insert_samples(connection, _of_new_verdicts("appended"))
    else:
        clause = on_conflict(table, appended.columns)
        connection.execute(f"insert into {table} by name from appended {clause}")
    connection.unregister("appended")


def _insert_samples(connection: duckdb.DuckDBPyConnection, rows: str) -> None:
    """Insert samples and their summaries."""
    connection.execute(f"insert into timing_samples by name from {rows}")
    connection.execute(
        "insert into timing_spreads "
        "select * exclude (quartiles), quartiles[2], quartiles[3] - quartiles[1] from ("
        "select candidate_id, device_kind, protocol_id, session, role, count(*), "
        f"quantile_cont(net_us, [0.25, 0.5, 0.75]) as quartiles from {rows} group by all)"
    )


def _of_new_verdicts(rows: str) -> str:
    """Return samples of verdicts that are not there; a verdict that is has its samples."""
    return f"{rows} anti join verdicts using ({', '.join(VERDICT_KEY)})"


def _are_all_new(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Return whether no verdict of a shard is there; each verdict has hundreds of samples."""
    if not path.exists():
        return False
    known = f"read_parquet({quoted(path)}) semi join verdicts using ({', '.join(VERDICT_KEY)})"
    return not connection.execute(f"from {known} limit 1").fetchall()


def forget_replaced(connection: duckdb.DuckDBPyConnection, batch: Batch) -> None:
    """Delete facts that a batch replaces as a whole: it may have fewer rows than they."""
    wholes = _REPLACED_AS_A_WHOLE.get(batch.table, ())
    places = [batch.columns.index(name) for name in wholes]
    for key in {tuple(row[place] for place in places) for row in batch.rows} if wholes else ():
        condition = " and ".join(f"{name} = ?" for name in wholes)
        connection.execute(f"delete from {batch.table} where {condition}", list(key))


def on_conflict(table: str, columns: list[str]) -> str:
    """Return the clause that makes an append to `table` idempotent.

    A fact stays as it was first seen. These may be replaced: a problem's admission and kill table,
    a candidate's program and techniques, a step that is done again, the outcome of a try, the
    candidate found in an answer, and a person's ruling. A failed request never replaces an answer.
    """
    update = f"do update set {', '.join(f'{name} = excluded.{name}' for name in columns)}"
    match table:
        case "problems" | "mutants" | "rewards" | "training_steps" | "runs":
            return f"on conflict {update}"
        case "candidates" if noted := [name for name in _READ_FROM_SOURCES if name in columns]:
            found = (f"{name} = coalesce(excluded.{name}, candidates.{name})" for name in noted)
            return f"on conflict do update set {', '.join(found)}"
        case "tries":
            return f"on conflict {update} where tries.outcome = 'sent'"
        case "rulings":
            return f"on conflict {update} where excluded.ruled_at > rulings.ruled_at"
        case "completions" | "reviews":
            return f"on conflict {update} where not starts_with(excluded.finish_reason, 'error: ')"
        case _:
            return "on conflict do nothing"
