"""The storage of facts in the ledger: journal first, then database, then shard.

This module does not know what the facts are: `ledger.py` is the door, `rows.py` turns records into
rows. Threads of one process take turns.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from cudal1.errors import StoreError
from cudal1.ledger import database, inserting, rows, shards
from cudal1.ledger.exemplar_index import ExemplarIndex
from cudal1.ledger.journal import Entry, Journal, entries, unfinished
from cudal1.ledger.rows import Batch

FRAME_ROWS = 20
"""Number of rows from which on inserting a data frame is faster than binding parameters."""
_REFUSALS = (
    duckdb.DataError,
    duckdb.IntegrityError,
    duckdb.ProgrammingError,
    ValueError,
    TypeError,
)
"""Errors by which the database refuses a value: a full disk is none of these."""
SETTLE_EVERY = 64
"""Appends between two notes of the journal's imported length; after a kill the rest is replayed."""


class Store:
    """A database with the journal of the stage that runs."""

    def __init__(
        self, folder: Path, connection: duckdb.DuckDBPyConnection, *, is_writer: bool = False
    ) -> None:
        self._is_writer = is_writer
        self._folder = folder
        self._path = folder / database.DATABASE
        self._connection = connection
        self._stage = ""
        self._running: dict[str, Any] = {}
        """The run's row of table `runs`."""
        self._journal: Journal | None = None
        self._members: set[tuple[str, str]] = set()
        self._unsettled: list[tuple[str, str]] = []
        self._journal_end = 0
        self._settled_end = 0
        """The imported length of the journal that the database has noted."""
        self._num_appends = 0
        self._references: dict[str, str] = {}
        """Sources of references that were asked for, by the problem's id, which names them."""
        self._births: ExemplarIndex | None = None
        """The index of exemplars, kept after the first question about them."""
        self._lock = threading.RLock()
        self._is_behind = False
        """True if an entry of the journal failed to enter the database; after that, no entry is
        noted as imported."""

    def interrupt(self) -> None:
        """Stop the query that another thread runs: DuckDB does not react to Ctrl-C."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the database; a writer publishes it. The journal of an unfinished stage stays."""
        if self._journal is not None:
            with contextlib.suppress(StoreError):  # reported earlier; the journal has it all
                self._settle()
            self._journal.close()
            self._journal = None
        if not self._is_writer:
            self._connection.close()
            return
        try:
            database.publish(self._connection, self._path, self._folder / database.SNAPSHOT)
        except (OSError, duckdb.Error) as error:  # readers see the state before; no stage fails
            shards.log.warning(
                "ledger: %s could not be renewed (%s): readers see what was there before; if the "
                "disk is full, free some space",
                self._folder / database.SNAPSHOT,
                str(error).split("\n", 1)[0],
            )

    # --- a stage's run ---------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """The stage that appended facts belong to."""
        return self._stage

    def begin(self, stage: str, *, run: str = "") -> None:
        """Start a stage's run, or continue a killed one; it owns what is appended or found.

        A killed run is continued when it was of the same `run`. A run that had finished, or was of
        another, is forgotten; its facts are not.
        """
        assert self._journal is None, "one stage for one opened ledger"
        self._births = None
        self._stage = stage
        self._journal = Journal(self._folder, stage)
        shards.keep_unclaimed(self._connection, self._folder)
        goes_on = self._journal.run == run
        if not goes_on:
            self._journal.start(run)
        with self._transaction():
            for table in inserting.PER_STAGE:
                self._connection.execute(f"delete from {table} where stage = ?", [stage])
            # the stage's shard must be imported again, should it come back unchanged
            shard = shards.label(self._folder / "shards" / stage)
            self._connection.execute("delete from meta where name = ?", [shard])
            self._applied(stage, 0)
        self._journal_end = self._settled_end = self._replay(stage, self._journal.entries(), 0)
        if goes_on:
            found = self._rows("select kind, key from members where stage = ?", stage)
            self._members = {(row["kind"], row["key"]) for row in found}
        self._note_start(run, goes_on=goes_on)

    def export(self) -> Path:
        """Write the stage's shard, `shards/STAGE/TABLE.parquet`, and drop its journal."""
        assert self._journal is not None, "export without begin"
        if self._is_behind:  # the rest is only in the journal, which an export drops
            raise StoreError(f"{self._path}: an append failed before; run the stage again")
        self._append(
            rows.batch_of_run(
                {**self._running, "ended_at": rows.now(), "num_facts": len(self._members)}
            )
        )
        self._settle()
        try:
            folder = shards.export(self._connection, self._folder, self._stage)
            shards.keep_unclaimed(self._connection, self._folder)
        except duckdb.Error as error:
            raise database.writing_failed(self._path, error) from error
        self._journal.discard()
        self._journal_end = self._settled_end = 0
        with self._transaction():
            self._applied(self._stage, 0)
        return folder

    def _note_start(self, run: str, *, goes_on: bool) -> None:
        found = self._rows(
            "select * from runs where stage = ? and run = ? and ended_at is null "
            "order by started_at desc limit 1",
            self._stage,
            run,
        )
        if goes_on and found:
            self._running = {**found[0], "num_starts": found[0]["num_starts"] + 1}
        else:
            started = {"stage": self._stage, "run": run, "started_at": rows.now(), "num_starts": 1}
            self._running = {**started, "ended_at": None, "num_facts": None}
        self._append(rows.batch_of_run(self._running))

    # --- what other processes left ---------------------------------------------------------------

    def _stages_ahead(self, snapshot: Path) -> list[str]:
        """Return unfinished stages that have noted more than the snapshot of the ledger holds."""
        noted = {row["name"]: row["value"] for row in self._rows("select name, value from meta")}
        made_at = snapshot.stat().st_mtime_ns
        return [
            stage
            for stage, path in unfinished(self._folder)
            if noted.get(f"journal/{stage}") != str(path.stat().st_size)
            or path.stat().st_mtime_ns > made_at
        ]

    def _forget_unfinished(self) -> None:
        """Let `_catch_up` take unfinished journals from their beginnings.

        A stage may have begun anew since this copy of the ledger was made: its earlier run counts
        no more, and the journal is another one.
        """
        with self._transaction():
            self._connection.execute("delete from meta where starts_with(name, 'journal/')")
            for stage, _ in unfinished(self._folder):
                for table in inserting.PER_STAGE:
                    self._connection.execute(f"delete from {table} where stage = ?", [stage])

    def _catch_up(self) -> None:
        """Import what the database lacks: changed shards, unfinished journals."""
        for stage in shards.import_changed(self._connection, self._folder):
            with self._transaction():
                self._applied(stage, 0)  # the import has replaced what its journal had added
        for stage, path in unfinished(self._folder):
            found = self._rows("select value from meta where name = ?", f"journal/{stage}")
            start = int(found[0]["value"]) if found else 0
            if start > path.stat().st_size:
                start = 0
            self._replay(stage, entries(path, after=start), start)

    # --- appending -------------------------------------------------------------------------------

    def _append(self, *batches: Batch) -> None:
        assert self._journal is not None, "append without begin"
        with self._lock:
            end = self._journal.append(batches)
            if self._is_behind:
                return  # the next process that opens the ledger takes it from the journal
            if self._births is not None:
                self._births.hear(batches)
            with self._transaction():
                for batch in batches:
                    self._insert(batch)
            self._journal_end = end
            for batch in batches:
                self._note_members(batch.table, batch.keys)
            self._num_appends += 1
            if self._num_appends % SETTLE_EVERY == 0:
                self._settle()

    def _replay(self, stage: str, found: Iterable[Entry], start: int) -> int:
        """Import the entries of a journal from byte `start` on; return the last one's end.

        An entry that the database refuses in every way is left out with a warning: it must not make
        the ledger unusable for ever.
        """
        waiting, end = list(found), start
        if not waiting:
            return start
        try:
            with self._transaction():
                for entry in waiting:
                    self._apply(stage, entry)
                    end = entry.end
                self._applied(stage, end)
            return end
        except (StoreError, ValueError, TypeError) as error:
            cause = error.__cause__ if isinstance(error, StoreError) else error
            if not isinstance(cause, _REFUSALS):
                raise
            self._is_behind, why = False, str(cause).split("\n", 1)[0]
        if len(waiting) == 1:
            shards.log.warning(
                "ledger: a line of stage %s's journal, up to byte %d, is refused (%s): left out",
                stage,
                waiting[0].end,
                why,
            )
            with self._transaction():
                self._applied(stage, waiting[0].end)
            return waiting[0].end
        for entry in waiting:
            end = self._replay(stage, [entry], end)
        return end

    def _apply(self, stage: str, entry: Entry) -> None:
        for batch in entry.batches:
            self._insert(batch)
            self._remember(stage, [(batch.table, key) for key in batch.keys])
        if entry.adopted is not None:
            self._remember(stage, [entry.adopted])

    def _insert(self, batch: Batch) -> None:
        inserting.forget_replaced(self._connection, batch)
        columns = list(batch.columns)
        if len(batch.rows) >= FRAME_ROWS or batch.table == "timing_samples":
            frame = pl.DataFrame(batch.rows, schema=columns, orient="row", infer_schema_length=None)
            inserting.insert_frame(self._connection, batch.table, frame)
        elif batch.rows:
            marks = f"({', '.join('?' * len(columns))})"
            self._connection.execute(
                f"insert into {batch.table} ({', '.join(columns)}) "
                f"values {', '.join([marks] * len(batch.rows))} "
                f"{inserting.on_conflict(batch.table, columns)}",
                [value for row in batch.rows for value in row],
            )

    def _adopt(self, kind: str, key: str) -> None:
        """Note the use of a fact that was in the ledger already."""
        with self._lock:
            if self._journal is not None and (kind, key) not in self._members:
                self._journal_end = self._journal.adopt(kind, key)
                self._note_members(kind, [key])
                if self._births is not None:
                    self._births.hear_use(kind, key)

    def _note_members(self, kind: str, keys: Sequence[str]) -> None:
        fresh = [(kind, key) for key in keys if (kind, key) not in self._members]
        self._members.update(fresh)
        self._unsettled += fresh

    def _settle(self) -> None:
        """Store what the database lacks: members, and the imported length of the journal.

        It is put off because each time costs as much as a verdict does, and the journal has it
        already.
        """
        with self._lock:
            is_settled = self._settled_end == self._journal_end
            if self._journal is not None and not is_settled and not self._is_behind:
                with self._transaction():
                    self._remember(self._stage, self._unsettled)
                    self._applied(self._stage, self._journal_end)
                self._unsettled.clear()
                self._settled_end = self._journal_end

    def _remember(self, stage: str, members: Sequence[tuple[str, str]]) -> None:
        if members:
            self._connection.execute(
                "insert or ignore into members (stage, kind, key) "
                f"values {', '.join(['(?, ?, ?)'] * len(members))}",
                [value for kind, key in members for value in (stage, kind, key)],
            )

    def _applied(self, stage: str, end: int) -> None:
        """Note the byte of the stage's journal up to which the database has everything."""
        self._connection.execute(
            "insert or replace into meta values (?, ?)", [f"journal/{stage}", str(end)]
        )

    def _rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        try:
            with self._lock:
                cursor = self._connection.execute(query, list(parameters))
                names = [column[0] for column in cursor.description or ()]
                found = cursor.fetchall()
        except duckdb.Error as error:
            raise database.writing_failed(self._path, error) from error
        return [dict(zip(names, values, strict=True)) for values in found]

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        with self._lock:
            try:
                self._connection.execute("begin")
                yield
                self._connection.execute("commit")
            except BaseException as error:  # Ctrl-C, too, must not leave it open
                self._is_behind = True
                with contextlib.suppress(duckdb.Error):
                    self._connection.execute("rollback")
                if isinstance(error, duckdb.Error):
                    raise database.writing_failed(self._path, error) from error
                raise
