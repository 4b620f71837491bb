"""The ledger: append-only memory of everything that happened to candidates.

`data/ledger.duckdb` is a working copy. The truth is in the Parquet shards that finished stages
leave (`shards.py`) and in the journal of a stage that has not finished (`journal.py`); the database
is rebuilt from both when it is missing or corrupt. Appending is idempotent on natural keys, and an
append that has returned survives a kill.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import polars as pl

from cudal1.candidate import Candidate, Completion
from cudal1.contrast import Exemplar
from cudal1.errors import StoreError
from cudal1.ledger import shards
from cudal1.ledger.journal import Journal
from cudal1.ledger.rows import (
    Row,
    completion_of,
    row_of_candidate,
    rows_of_verdict,
    text_bytes,
)
from cudal1.measurement import TimingSample
from cudal1.problem import Admission, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Verdict

SCHEMA_VERSION = 1
DATABASE = "ledger.duckdb"
REPLACED = (*shards.PER_STAGE, "completions")
"""Tables whose rows may change: a step that is done again, a request that failed and was repeated."""
INSERT_ROWS = 500
"""Rows in one insert statement."""


class Ledger:
    """One open ledger; use as a context manager. One process may write at a time."""

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._folder = folder
        self._connection = connection
        self._stage = ""
        self._journal: Journal | None = None

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Open for writing; rebuild a missing or corrupt database; take in changed shards.

        Raises:
            StoreError: another process is writing, the ledger is of a newer version, a shard is
                corrupt, or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / DATABASE
        try:
            connection = _connect(path)
        except _CorruptError as error:
            aside = _move_aside(path)
            shards.log.warning(
                "ledger: %s is corrupt (%s); moved to %s and rebuilt", path, error, aside.name
            )
            connection = _connect(path)
        ledger = cls(folder, connection)
        try:
            shards.import_changed(connection, folder)
            for journal in Journal.unfinished(folder):
                with ledger._transaction():
                    ledger._insert(list(journal.rows()))
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Open for reading only; while somebody writes, a copy from the shards is read instead.

        Raises:
            StoreError: there is no ledger in the folder.
        """
        path = folder / DATABASE
        if not path.exists() and not (folder / "shards").exists():
            raise StoreError(f"{folder}: no ledger here; run `make run` first")
        try:
            return cls(folder, duckdb.connect(str(path), read_only=True))
        except duckdb.Error:
            connection = duckdb.connect(":memory:")
            connection.execute(_schema())
            shards.import_changed(connection, folder)
            return cls(folder, connection)

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
            self._journal.close()
        self._connection.close()

    # --- a stage's run ---------------------------------------------------------------------------

    def begin(self, stage: str) -> None:
        """Start or continue a stage's run: from now on what is appended or found belongs to it."""
        self._stage = stage
        self._journal = Journal(self._folder, stage)
        with self._transaction():
            self._connection.execute("delete from members where stage = ?", [stage])
            self._connection.execute("delete from training_steps where stage = ?", [stage])
            self._connection.execute("delete from rewards where stage = ?", [stage])
            self._insert([row for row in self._journal.rows() if row.table in shards.PER_STAGE])

    def export(self) -> Path:
        """Write the stage's shard, `shards/STAGE/TABLE.parquet`, and drop its journal."""
        assert self._journal is not None, "export without begin"
        folder = shards.export(self._connection, self._folder, self._stage)
        self._journal.discard()
        return folder

    def write_product(self, query: str, path: Path, **parameters: object) -> None:
        """Write the rows of a named query as Parquet, whole or not at all."""
        shards.write_parquet(self.query(query, **parameters), path)

    # --- appending -------------------------------------------------------------------------------

    def add_problem(self, problem: Problem, admission: Admission) -> None:
        """Note a problem and whether it was admitted."""
        values = problem.model_dump(mode="json")
        self._append(
            Row("problems", problem.id, {
                "problem_id": problem.id, **values,
                "admitted": admission.admitted, "rejection": admission.reason,
            })
        )  # fmt: skip

    def add_protocol(self, protocol: EvalProtocol) -> None:
        """Note how verdicts are made from here on."""
        values = {"protocol_id": protocol.id, "content": protocol.model_dump_json()}
        self._append(Row("protocols", protocol.id, values))

    def add_completion(
        self, completion: Completion, candidate: Candidate | None, reason: str | None
    ) -> None:
        """Note an answer, and the candidate in it or the reason why there is none."""
        values = completion.model_dump(mode="json", exclude={"id", "text"})
        rows = [
            Row("completions", completion.id, {
                "completion_id": completion.id, **values, "answer": text_bytes(completion.text),
                "candidate_id": None if candidate is None else candidate.id,
                "no_candidate_reason": reason,
            })
        ]  # fmt: skip
        if candidate is not None:
            rows.append(row_of_candidate(candidate))
        self._append(*rows)

    def add_candidate(self, candidate: Candidate) -> None:
        """Note a candidate that no answer of this stage holds."""
        self._append(row_of_candidate(candidate))

    def add_verdict(self, verdict: Verdict, samples: Sequence[TimingSample]) -> None:
        """Note a verdict with its flags and timing samples."""
        self._append(*rows_of_verdict(verdict, samples))

    def add_rewards(self, step: int, earned: Sequence[tuple[str, float, float]]) -> None:
        """Note what the answers of one training step earned: (completion, raw, smoothed)."""
        self._append(*(
            Row("rewards", completion_id, {
                "stage": self._stage, "step": step, "completion_id": completion_id,
                "raw": raw, "smoothed": smoothed,
            })
            for completion_id, raw, smoothed in earned
        ))  # fmt: skip

    def add_steps(self, step: int, values: Mapping[str, float]) -> None:
        """Note the numbers of one training step; a step done again replaces itself."""
        self._append(*(
            Row("training_steps", f"{step}/{name}", {
                "stage": self._stage, "step": step, "name": name, "value": value,
            })
            for name, value in values.items()
        ))  # fmt: skip

    # --- finding ---------------------------------------------------------------------------------

    def completion(self, completion_id: str) -> Completion | None:
        """The answer to a request that was made before; finding it makes it the stage's too."""
        found = self._rows("select * from completions where completion_id = ?", completion_id)
        if not found:
            return None
        self._adopt("completions", completion_id)
        return completion_of(found[0])

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
        self._adopt("verdicts", f"{candidate.id}/{device_kind}/{protocol_id}")
        return Verdict.model_validate_json(found[0]["content"])

    def exemplars(
        self, problem_id: str, *, device_kind: str, protocol_id: str
    ) -> list[Exemplar]:
        """Every successful candidate of a problem with its certified speedup."""
        found = self._rows(
            "select c.candidate_id, c.source, v.certified from verdicts v "
            "join candidates c using (candidate_id) "
            "where v.problem_id = ? and v.device_kind = ? and v.protocol_id = ? "
            "and v.status = 'correct' and v.certified is not null order by c.candidate_id",
            problem_id, device_kind, protocol_id,
        )  # fmt: skip
        return [
            Exemplar(
                candidate_id=row["candidate_id"],
                source=row["source"].decode("utf-8", "surrogatepass"),
                score=row["certified"],
            )
            for row in found
        ]

    def sql(self, query: str, parameters: Sequence[object] = ()) -> pl.DataFrame:
        """The rows of any query.

        Raises:
            StoreError: the query is wrong; the message is the database's first line.
        """
        try:
            relation: Any = self._connection.sql(query, params=list(parameters) or None)
        except duckdb.Error as error:
            raise StoreError(f"SQL: {str(error).splitlines()[0]}") from error
        return pl.DataFrame() if relation is None else relation.pl()

    def query(self, name: str, **parameters: object) -> pl.DataFrame:
        """The rows of `queries/NAME.sql`; `$name` in it is a parameter."""
        text = (files("cudal1.ledger") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
        wanted = re.findall(r"\$(\w+)", text)
        assert set(wanted) == set(parameters), f"{name}.sql wants {sorted(set(wanted))}"
        ordered = re.sub(r"\$(\w+)", "?", text)
        return self.sql(ordered, [parameters[key] for key in wanted])

    # --- inside ----------------------------------------------------------------------------------

    def _append(self, *rows: Row) -> None:
        assert self._journal is not None, "append without begin"
        self._journal.write(rows)
        with self._transaction():
            self._insert(rows)
            for table, key in {(row.member_table, row.key) for row in rows}:
                self._remember(table, key)

    def _insert(self, rows: Sequence[Row]) -> None:
        """Insert many rows with one statement a table; a row that is there already changes nothing."""
        for table in dict.fromkeys(row.table for row in rows):
            values = [row.values for row in rows if row.table == table]
            for first in range(0, len(values), INSERT_ROWS):
                part = values[first : first + INSERT_ROWS]
                marks = f"({', '.join('?' * len(part[0]))})"
                verb = "insert or replace" if table in REPLACED else "insert or ignore"
                self._connection.execute(
                    f"{verb} into {table} ({', '.join(part[0])}) "
                    f"values {', '.join([marks] * len(part))}",
                    [value for row in part for value in row.values()],
                )

    def _adopt(self, table: str, key: str) -> None:
        if self._journal is not None:
            with self._transaction():
                self._remember(table, key)

    def _remember(self, table: str, key: str) -> None:
        if table not in shards.PER_STAGE:
            self._connection.execute(
                "insert or ignore into members values (?, ?, ?)", [self._stage, table, key]
            )

    def _rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query, list(parameters))
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("begin")
            yield
            self._connection.execute("commit")
        except duckdb.Error as error:
            with contextlib.suppress(duckdb.Error):
                self._connection.execute("rollback")
            raise StoreError(
                f"{self._folder / DATABASE}: cannot write ({str(error).splitlines()[0]}); "
                "if the disk is full, free some space and run again"
            ) from error


class _CorruptError(Exception):
    """The file is not a usable database."""


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        connection = duckdb.connect(str(path))
        connection.execute(_schema())
        found = connection.execute("select value from meta where name = 'version'").fetchall()
        if not found:
            connection.execute(f"insert into meta values ('version', '{SCHEMA_VERSION}')")
    except duckdb.Error as error:
        said = str(error).splitlines()[0]
        if "lock" in said.lower():
            holder = re.search(r"PID (\d+)", str(error))
            raise StoreError(
                f"{path} is in use by process {holder.group(1) if holder else 'unknown'}: "
                "wait for it, or stop it"
            ) from error
        raise _CorruptError(said) from error
    if found and int(found[0][0]) > SCHEMA_VERSION:
        connection.close()
        raise StoreError(
            f"{path} is of version {found[0][0]}, newer than this code's {SCHEMA_VERSION}: "
            "update cudal1, or delete the file to rebuild it from its shards"
        )
    return connection


def _schema() -> str:
    return (files("cudal1.ledger") / "schema.sql").read_text(encoding="utf-8")


def _move_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    path.rename(aside)
    path.with_name(path.name + ".wal").unlink(missing_ok=True)
    return aside
