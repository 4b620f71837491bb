"""Rows into tables, idempotently: a fact that is there already is not there twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import polars as pl

from cudal1.ledger.rows import Batch

PER_STAGE = ("rewards", "training_steps", "members")
"""Tables whose rows carry their stage; all others are facts, reached through `members`."""
VERDICT_KEY = ("candidate_id", "device_kind", "protocol_id")
KEYS: Mapping[str, tuple[str, ...]] = {
    "problems": ("problem_id",), "protocols": ("protocol_id",), "completions": ("completion_id",),
    "candidates": ("candidate_id",), "timing_samples": VERDICT_KEY, "verdicts": VERDICT_KEY,
    "hack_flags": VERDICT_KEY, "mutants": ("problem_id",), "tries": ("request_id", "sent_at"),
    "reviews": ("review_id",), "rulings": ("candidate_id",), "hack_cases": ("case_id",),
    "baselines": ("candidate_id",), "runs": ("stage", "started_at"),
}  # fmt: skip
"""Facts, and the columns by which they are told apart (flags and samples: their verdict; mutants:
their problem).
Samples come before verdicts, see `_insert_samples`."""
_WITH_THEIR_FACT = ("timing_samples", "hack_flags", "mutants")
"""Facts whose columns above are another fact's key, not their own."""
_REPLACED_AS_A_WHOLE = {"rewards": ("stage", "step"), "mutants": ("problem_id",)}


def insert_file(connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> None:
    """Insert a shard's rows as they are read: it may be larger than memory.

    What is new goes in without a conflict clause, which costs several times as much.
    """
    rows = f"read_parquet({quoted(path)})"
    columns = connection.sql(f"from {rows}").columns
    if table == "timing_samples":
        if not _are_all_new(connection, path.with_name("verdicts.parquet")):
            rows = _of_new_verdicts(rows)
        _insert_samples(connection, rows)
    elif table in KEYS and table not in _WITH_THEIR_FACT:
        keys = ", ".join(KEYS[table])
        clause = on_conflict(table, columns)
        if "update" in clause:  # first, while what is new is not there
            known = f"{rows} semi join {table} using ({keys})"
            connection.execute(f"insert into {table} by name from {known} {clause}")
        connection.execute(
            f"insert into {table} by name from {rows} anti join {table} using ({keys})"
        )
    else:
        connection.execute(f"insert into {table} by name from {rows} {on_conflict(table, columns)}")


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
    """Samples, and what they come to."""
    connection.execute(f"insert into timing_samples by name from {rows}")
    connection.execute(
        "insert into timing_spreads "
        "select * exclude (quartiles), quartiles[2], quartiles[3] - quartiles[1] from ("
        "select candidate_id, device_kind, protocol_id, session, role, count(*), "
        f"quantile_cont(net_us, [0.25, 0.5, 0.75]) as quartiles from {rows} group by all)"
    )


def _of_new_verdicts(rows: str) -> str:
    """Samples of verdicts that are not there: those of one that is are there already."""
    return f"{rows} anti join verdicts using ({', '.join(VERDICT_KEY)})"


def _are_all_new(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether no verdict of a shard is there: asked of verdicts, of which samples are hundreds."""
    if not path.exists():
        return False
    known = f"read_parquet({quoted(path)}) semi join verdicts using ({', '.join(VERDICT_KEY)})"
    return not connection.execute(f"from {known} limit 1").fetchall()


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
        case "problems" | "mutants" | "rewards" | "training_steps" | "runs":
            return f"on conflict {update}"
        case "tries":
            return f"on conflict {update} where tries.outcome = 'sent'"
        case "rulings":
            return f"on conflict {update} where excluded.ruled_at > rulings.ruled_at"
        case "completions" | "reviews":
            return f"on conflict {update} where not starts_with(excluded.finish_reason, 'error: ')"
        case _:
            return "on conflict do nothing"


def quoted(path: Path) -> str:
    """The path as SQL has it."""
    text = str(path).replace("'", "''")
    return f"'{text}'"
