"""The ledger: append-only memory of everything that happened to candidates.

`data/ledger.duckdb` is a working copy. The truth is in the Parquet shards that finished stages
leave (`shards.py`) and in the journal of a stage that has not finished (`journal.py`); the database
is rebuilt from both when it is missing or corrupt. Appending is idempotent on natural keys, and an
append that has returned survives a kill. Long because it is the one door: all that a stage can ask
of its memory is a method here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import polars as pl

from cudal1.candidate import Candidate, Completion
from cudal1.contrast import Exemplar
from cudal1.errors import StoreError
from cudal1.kill_table import KillTable
from cudal1.ledger import database, rows, shards
from cudal1.ledger.journal import Entry, Journal, entries, unfinished
from cudal1.ledger.rows import Batch
from cudal1.measurement import TimingSample
from cudal1.problem import Admission, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Verdict

FRAME_ROWS = 20
"""From this many rows on, a data frame is inserted faster than parameters are bound."""
SETTLE_EVERY = 64
"""Appends between two notes of how far the journal is in the database; a kill replays the rest."""


class Ledger:
    """One open ledger; use as a context manager. One process may write at a time."""

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._folder = folder
        self._path = folder / database.DATABASE
        self._connection = connection
        self._stage = ""
        self._journal: Journal | None = None
        self._members: set[tuple[str, str]] = set()
        self._unsettled: list[tuple[str, str]] = []
        self._journal_end = 0
        self._num_appends = 0

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Open for writing; rebuild a missing or corrupt database; take in changed shards.

        Raises:
            StoreError: another process is writing, the ledger or a shard is of newer code, a shard
                is corrupt, or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / database.DATABASE
        try:
            connection = database.connect_soon(path)
        except database.DamagedError as error:
            aside = database.move_aside(path)
            shards.log.warning(
                "ledger: %s is damaged (%s): moved to %s, rebuilt from shards and journals",
                path, error, aside.name,
            )  # fmt: skip
            connection = database.connect(path)
        ledger = cls(folder, connection)
        try:
            ledger._catch_up()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Open for reading; what is held by a writer, damaged or outdated is read from its files.

        Raises:
            StoreError: there is no ledger in the folder, or a shard of it is corrupt.
        """
        path = folder / database.DATABASE
        if not path.exists() and not (folder / "shards").exists():
            raise StoreError(f"{folder}: no ledger here; run `make run` first")
        try:
            connection = database.connect_read_only(path)
            if not shards.changed_shards(connection, folder):
                return cls(folder, connection)
            connection.close()
            why = f"{path} is older than its shards"
        except (StoreError, database.DamagedError) as error:
            why = str(error)
        shards.log.warning("ledger: read from shards and journals, because %s", why)
        ledger = cls(folder, database.in_memory())
        ledger._catch_up()
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; the journal of an unfinished stage stays."""
        if self._journal is not None:
            with contextlib.suppress(StoreError):  # said before; the journal has it all
                self._settle()
            self._journal.close()
            self._journal = None
        self._connection.close()

    # --- a stage's run ---------------------------------------------------------------------------

    def begin(self, stage: str, *, run: str = "") -> None:
        """Start a stage's run, or go on with a killed one: what is appended or found belongs to it.

        A killed run is gone on with when it was of the same `run`; a run that had finished, or was
        of another, is forgotten, though none of its facts are.
        """
        assert self._journal is None, "one stage for one opened ledger"
        self._stage = stage
        self._journal = Journal(self._folder, stage)
        shards.keep_unclaimed(self._connection, self._folder)
        goes_on = self._journal.run == run
        if not goes_on:
            self._journal.start(run)
        with self._transaction():
            for table in shards.PER_STAGE:
                self._connection.execute(f"delete from {table} where stage = ?", [stage])
            # the stage's shard, should it come back unchanged, must be taken in again
            shard = shards.label(self._folder / "shards" / stage)
            self._connection.execute("delete from meta where name = ?", [shard])
            for entry in self._journal.entries():
                self._apply(stage, entry)
                self._journal_end = entry.end
            self._applied(stage, self._journal_end)
        if goes_on:
            found = self._rows("select kind, key from members where stage = ?", stage)
            self._members = {(row["kind"], row["key"]) for row in found}

    def export(self) -> Path:
        """Write the stage's shard, `shards/STAGE/TABLE.parquet`, and drop its journal."""
        assert self._journal is not None, "export without begin"
        self._settle()
        try:
            folder = shards.export(self._connection, self._folder, self._stage)
            shards.keep_unclaimed(self._connection, self._folder)
        except duckdb.Error as error:
            raise database.writing_failed(self._path, error) from error
        self._journal.discard()
        self._journal_end = 0
        with self._transaction():
            self._applied(self._stage, 0)
        return folder

    def write_product(self, query: str, path: Path, **parameters: object) -> None:
        """Write the rows of a named query as Parquet, whole or not at all."""
        shards.write_parquet(self.query(query, **parameters), path)

    # --- appending -------------------------------------------------------------------------------

    def add_problem(self, problem: Problem, admission: Admission) -> None:
        """Note a problem and whether it was admitted; the latest admission holds."""
        self._append(rows.batch_of_problem(problem, admission))

    def add_kill_table(self, table: KillTable) -> None:
        """Note which wrong candidates the check of a problem would notice; the latest holds."""
        self._append(rows.batch_of_mutants(table))

    def add_protocol(self, protocol: EvalProtocol) -> None:
        """Note how verdicts are made from here on."""
        self._append(rows.batch_of_protocol(protocol))

    def add_completion(
        self, completion: Completion, candidate: Candidate | None, reason: str | None
    ) -> None:
        """Note an answer, and the candidate in it or the reason why there is none.

        An answer replaces a failed request of the same id; what is found in an answer may be said
        again.
        """
        batch = rows.batch_of_completion(completion, candidate, reason)
        if candidate is None:
            self._append(batch)
        else:
            self._append(batch, rows.batch_of_candidate(candidate))

    def add_candidate(self, candidate: Candidate) -> None:
        """Note a candidate that no answer of this stage holds."""
        self._append(rows.batch_of_candidate(candidate))

    def add_verdict(self, verdict: Verdict, samples: Sequence[TimingSample]) -> None:
        """Note a verdict with its flags and timing samples."""
        self._append(*rows.batches_of_verdict(verdict, samples))

    def add_rewards(self, step: int, earned: Sequence[tuple[str, float, float]]) -> None:
        """Note what the answers of one training step earned: (completion, raw, smoothed).

        A step that is done again replaces itself.
        """
        self._append(rows.batch_of_rewards(self._stage, step, earned))

    def add_steps(self, step: int, values: Mapping[str, float]) -> None:
        """Note numbers of one training step; a number given again replaces itself."""
        self._append(rows.batch_of_steps(self._stage, step, values))

    # --- finding ---------------------------------------------------------------------------------

    def completion(self, completion_id: str) -> Completion | None:
        """The answer to a request that was made before; finding it makes it the stage's too."""
        found = self._rows("select * from completions where completion_id = ?", completion_id)
        if not found:
            return None
        self._adopt("completions", completion_id)
        return rows.completion_of(found[0])

    def adopt_completion(self, completion_id: str) -> None:
        """Make an answer that another stage asked for the running stage's too."""
        self._adopt("completions", completion_id)

    def verdict(
        self, candidate: Candidate, *, device_kind: str, protocol_id: str
    ) -> Verdict | None:
        """The verdict given before, whichever stage asked; finding it makes it the stage's too."""
        found = self._rows(
            "select content from verdicts "
            "where candidate_id = ? and device_kind = ? and protocol_id = ?",
            candidate.id, device_kind, protocol_id,
        )  # fmt: skip
        if not found:
            return None
        self._adopt("verdicts", rows.verdict_key(candidate.id, device_kind, protocol_id))
        return rows.verdict_of(found[0]["content"])

    def exemplars(
        self, problem_id: str, *, device_kind: str, protocol_id: str, stages: Sequence[str]
    ) -> list[Exemplar]:
        """Every successful candidate of a problem that these stages used, with its speedup."""
        self._settle()
        found = self._rows(
            "select c.candidate_id, c.source, v.certified from verdicts v "
            "join candidates c using (candidate_id) "
            "where v.problem_id = ? and v.device_kind = ? and v.protocol_id = ? "
            "and v.status = 'correct' and v.certified is not null and exists ("
            "select 1 from members m where m.kind = 'verdicts' and list_contains(?, m.stage) "
            "and m.key = concat_ws('/', v.candidate_id, v.device_kind, v.protocol_id)) "
            "order by c.candidate_id",
            problem_id, device_kind, protocol_id, list(stages),
        )  # fmt: skip
        return [
            Exemplar(
                candidate_id=row["candidate_id"],
                source=rows.text_of(row["source"]),
                score=row["certified"],
            )
            for row in found
        ]

    def sql(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> pl.DataFrame:
        """The rows of any query; parameters are `?` in order, or `$name`.

        Raises:
            StoreError: the query is wrong; the message is the database's first line.
        """
        self._settle()
        given = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
        try:
            relation: Any = self._connection.sql(query, params=given or None)
            return pl.DataFrame() if relation is None else relation.pl()
        except duckdb.Error as error:
            raise StoreError(f"SQL: {str(error).splitlines()[0]}") from error

    def query(self, name: str, **parameters: object) -> pl.DataFrame:
        """The rows of `queries/NAME.sql`; `$name` in it is a parameter."""
        text = (files("cudal1.ledger") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
        wanted = set(re.findall(r"\$(\w+)", text))
        assert wanted == set(parameters), f"{name}.sql wants {sorted(wanted)}"
        return self.sql(text, parameters)

    # --- inside ----------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Take in what is on disk and not in the database: changed shards, unfinished journals."""
        for stage in shards.import_changed(self._connection, self._folder):
            with self._transaction():
                self._applied(stage, 0)  # the import has replaced what its journal had added
        for stage, path in unfinished(self._folder):
            found = self._rows("select value from meta where name = ?", f"journal/{stage}")
            start = int(found[0]["value"]) if found else 0
            if start > path.stat().st_size:
                start = 0
            with self._transaction():
                for entry in entries(path, after=start):
                    self._apply(stage, entry)
                    self._applied(stage, entry.end)

    def _append(self, *batches: Batch) -> None:
        assert self._journal is not None, "append without begin"
        end = self._journal.append(batches)
        with self._transaction():
            for batch in batches:
                self._insert(batch)
        self._journal_end = end
        for batch in batches:
            self._note_members(batch.table, batch.keys)
        self._num_appends += 1
        if self._num_appends % SETTLE_EVERY == 0:
            self._settle()

    def _apply(self, stage: str, entry: Entry) -> None:
        for batch in entry.batches:
            self._insert(batch)
            self._remember(stage, [(batch.table, key) for key in batch.keys])
        if entry.adopted is not None:
            self._remember(stage, [entry.adopted])

    def _insert(self, batch: Batch) -> None:
        shards.forget_replaced(self._connection, batch)
        columns = list(batch.columns)
        if len(batch.rows) >= FRAME_ROWS or batch.table == "timing_samples":
            frame = pl.DataFrame(batch.rows, schema=columns, orient="row", infer_schema_length=None)
            shards.insert_frame(self._connection, batch.table, frame)
        elif batch.rows:
            marks = f"({', '.join('?' * len(columns))})"
            self._connection.execute(
                f"insert into {batch.table} ({', '.join(columns)}) "
                f"values {', '.join([marks] * len(batch.rows))} "
                f"{shards.on_conflict(batch.table, columns)}",
                [value for row in batch.rows for value in row],
            )

    def _adopt(self, kind: str, key: str) -> None:
        """Note the use of a fact that was there before."""
        if self._journal is not None and (kind, key) not in self._members:
            self._journal_end = self._journal.adopt(kind, key)
            self._note_members(kind, [key])

    def _note_members(self, kind: str, keys: Sequence[str]) -> None:
        fresh = [(kind, key) for key in keys if (kind, key) not in self._members]
        self._members.update(fresh)
        self._unsettled += fresh

    def _settle(self) -> None:
        """Store what the database has not heard of yet: members, and how far the journal is in it.

        Put off because each costs as much as a verdict does, and the journal has them already.
        """
        if self._journal is not None and self._unsettled:
            with self._transaction():
                self._remember(self._stage, self._unsettled)
                self._applied(self._stage, self._journal_end)
            self._unsettled.clear()

    def _remember(self, stage: str, members: Sequence[tuple[str, str]]) -> None:
        if members:
            self._connection.execute(
                "insert or ignore into members (stage, kind, key) "
                f"values {', '.join(['(?, ?, ?)'] * len(members))}",
                [value for kind, key in members for value in (stage, kind, key)],
            )

    def _applied(self, stage: str, end: int) -> None:
        """Note up to which byte of the stage's journal the database has everything."""
        self._connection.execute(
            "insert or replace into meta values (?, ?)", [f"journal/{stage}", str(end)]
        )

    def _rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        try:
            cursor = self._connection.execute(query, list(parameters))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
        except duckdb.Error as error:
            raise database.writing_failed(self._path, error) from error

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        try:
            self._connection.execute("begin")
            yield
            self._connection.execute("commit")
        except duckdb.Error as error:
            with contextlib.suppress(duckdb.Error):
                self._connection.execute("rollback")
            raise database.writing_failed(self._path, error) from error
