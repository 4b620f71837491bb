"""The correction of absolute paths in MLflow's database after its folder was moved or copied.

A copy must not write into the folder it was copied from, and its policies lie beside it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("logged_models", "artifact_location"),
)
"""Tables and columns in which MLflow stores a path to artifacts."""
WAIT_S = 20.0
"""Seconds to wait for another process that writes to the database; as long as MLflow waits."""


def rename(database: Path, old: str, new: str) -> None:
    """Replace the address of the folder of artifacts everywhere at once.

    MLflow's own experiment `Default` gets a folder below it; MLflow places that experiment wherever
    a process has started.

    Raises:
        sqlite3.Error: the database cannot be written to.
    """
    with closing(sqlite3.connect(database, timeout=WAIT_S)) as store, store:
        for table, column in COLUMNS:
            store.execute(
                f"update {table} set {column} = ? || substr({column}, ?) "
                f"where {column} = ? or substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            )
        store.execute(
            "update experiments set artifact_location = ? "
            "where name = 'Default' and artifact_location like '%/mlruns/0'",
            (f"{new}/0",),
        )
