"""The ledger: append-only memory of everything that happened to candidates.

`data/.ledger.duckdb` is a working copy, and `data/ledger.duckdb` a copy of it for readers
(`database.py`). The truth is in the Parquet shards that finished stages
leave (`shards.py`) and in the journal of a stage that has not finished (`journal.py`). The database
is rebuilt from both when it is missing or corrupt. Appending is idempotent on natural keys, and an
append that has returned survives a kill (`store.py`).

The module is long because it is the one door: each question of a stage to its memory is a method
here, or, about opinions and rulings, in `reviews.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import polars as pl

from cudal1.baseline import Baseline
from cudal1.billing import Try
from cudal1.candidate import Candidate, Completion
from cudal1.errors import StoreError
from cudal1.kill_table import KillTable
from cudal1.ledger import database, rows, shards
from cudal1.ledger.answers import batches_of_completions
from cudal1.ledger.exemplar_index import ExemplarIndex, Wanted
from cudal1.ledger.published import publishing, reading
from cudal1.ledger.published.place import is_published, open_place
from cudal1.ledger.published.publication import Publication
from cudal1.ledger.reviews import Reviews
from cudal1.measurement import TimingSample
from cudal1.problem import Admission, Problem
from cudal1.protocol import EvalProtocol
from cudal1.selection.exemplar import Birth, Exemplar
from cudal1.verdict import Status, Verdict


class Ledger(Reviews):
    """One open ledger; use as a context manager. One process may write at a time."""

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Open for writing; rebuild a missing or corrupt database; import changed shards.

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
                path,
                error,
                aside.name,
            )
            connection = database.connect(path)
        ledger = cls(folder, connection, is_writer=True)
        try:
            ledger._catch_up()
        except BaseException:  # Ctrl-C, too: the database is closed, and it is raised again
            ledger.close()
            raise
        if not (folder / database.SNAPSHOT).exists():  # readers have one while the first stage runs
            ledger.close()
            ledger = cls(folder, database.connect_soon(path), is_writer=True)
        return ledger

    @classmethod
    def read(cls, place: str | os.PathLike[str], *, endpoint: str | None = None) -> Ledger:
        """Open for reading: what stages have found until now. No stage notices, whatever it does.

        Of a place of publications, it reads what machines have published there until now. Of a
        run's data folder, it reads the copy that the latest stage left. Where a stage has noted
        more since, or the copy is damaged, of other code, or held by a program that could change
        it, it reads a copy of its own, which it completes from shards and journals.

        Args:
            place: a run's data folder, or a place of publications: `s3://BUCKET/PREFIX`, a folder.
            endpoint: address of the server of a bucket; None: as the environment says.

        Raises:
            StoreError: there is no ledger in the place, or a shard of it is corrupt.
        """
        if is_published(place):
            return cls(Path(place), reading.connect(place, endpoint=endpoint))
        folder = Path(place)
        if endpoint is not None:
            raise StoreError(f"{folder}: a folder has no endpoint; leave it out, or name s3://…")
        snapshot = folder / database.SNAPSHOT
        if not any(each.exists() for each in (snapshot, folder / "shards", folder / "journal")):
            raise StoreError(f"{folder}: no ledger here; run `make run` first")
        try:
            ledger = cls(folder, database.connect_read_only(snapshot))
            if shards.changed_shards(ledger._connection, folder):
                why = f"{snapshot} is older than its shards: shards and journals are read, too"
            elif ahead := ledger._stages_ahead(snapshot):
                why = f"with what unfinished stages have found until now: {', '.join(ahead)}"
            else:
                return ledger
            ledger.close()
        except (StoreError, database.DamagedError) as error:
            why = f"read from shards and journals, because {error}"
        shards.log.warning("ledger: %s", why)
        return cls(folder, _caught_up(folder))

    def publish(
        self, place: str | os.PathLike[str], *, endpoint: str | None = None, writer: str | None
    ) -> Publication | None:
        """Publish the facts that a place lacks; return what was said, or None if it lacks none.

        The ledger is one that is read, and is to be closed afterwards.

        Args:
            place: a folder, or `s3://BUCKET/PREFIX`.
            endpoint: see `read`.
            writer: name of this ledger among the writers; None: of the machine and the folder.

        Raises:
            StoreError: the place or the ledger cannot be used.
        """
        named = writer or publishing.default_writer(self._folder)
        try:
            with self._lock:
                where = open_place(place, endpoint=endpoint)
                return publishing.publish(self.connection, where, writer=named)
        except duckdb.Error as error:
            raise StoreError(f"{os.fspath(place)}: cannot publish ({_said(error)})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write_product(self, query: str, path: Path, **parameters: object) -> None:
        """Write the rows of a named query as Parquet, whole or not at all."""
        shards.write_parquet(self.query(query, **parameters), path)

    # --- appending -------------------------------------------------------------------------------

    def add_problem(self, problem: Problem, admission: Admission) -> None:
        """Note a problem and whether it was admitted; the latest admission holds."""
        self._append(rows.batch_of_problem(problem, admission))

    def add_kill_table(self, table: KillTable) -> None:
        """Note the wrong candidates that the check of a problem notices; the latest table holds."""
        self._append(rows.batch_of_mutants(table))

    def add_protocol(self, protocol: EvalProtocol) -> None:
        """Note the protocol of the verdicts that follow."""
        self._append(rows.batch_of_protocol(protocol))

    def add_completion(
        self, completion: Completion, candidate: Candidate | None, reason: str | None
    ) -> None:
        """Note an answer, and the candidate in it or the reason why there is none.

        An answer replaces a failed request of the same id; the candidate in an answer may be
        replaced.
        """
        self.add_completions([(completion, candidate, reason)])

    def add_completions(
        self, answers: Sequence[tuple[Completion, Candidate | None, str | None]]
    ) -> None:
        """Note different answers as by `add_completion`: all or none, in about the time of one."""
        self._append(*batches_of_completions(answers, self._reference))

    def add_candidate(self, candidate: Candidate) -> None:
        """Note a candidate that no answer of this stage holds."""
        self._append(rows.batch_of_candidate(candidate, self._reference(candidate.problem_id)))

    def add_baseline(self, candidate: Candidate, baseline: Baseline) -> None:
        """Note a candidate that is its problem's reference, run as a baseline."""
        self._append(
            rows.batch_of_candidate(candidate, self._reference(candidate.problem_id)),
            rows.batch_of_baseline(candidate, baseline),
        )

    def add_verdict(self, verdict: Verdict, samples: Sequence[TimingSample]) -> None:
        """Note a verdict with its flags and timing samples."""
        self._append(*rows.batches_of_verdict(verdict, samples))

    def add_judged(
        self, candidate: Candidate, verdict: Verdict, samples: Sequence[TimingSample]
    ) -> None:
        """Note a candidate that no answer holds and its verdict: both or neither, in one append."""
        row = rows.batch_of_candidate(candidate, self._reference(candidate.problem_id))
        self._append(row, *rows.batches_of_verdict(verdict, samples))

    def add_try(self, attempt: Try) -> None:
        """Note that a request is sent; the same try again notes its outcome."""
        self._append(rows.batch_of_try(attempt))

    def add_answer(self, completion: Completion, paid: Try | None = None) -> None:
        """Note a raw answer, not yet parsed, and the try that brought it: both or neither."""
        batches = [rows.batch_of_completion(completion, None, None)]
        self._append(*batches, *([] if paid is None else [rows.batch_of_try(paid)]))

    def add_rewards(self, step: int, earned: Sequence[tuple[str, float, float]]) -> None:
        """Note the rewards of one training step's answers: (completion, raw, smoothed).

        A step that is done again replaces its rewards.
        """
        self._append(rows.batch_of_rewards(self._stage, step, earned))

    def add_steps(self, step: int, values: Mapping[str, float]) -> None:
        """Note numbers of one training step; a number given again replaces the earlier one."""
        self._append(rows.batch_of_steps(self._stage, step, values))

    def _reference(self, problem_id: str) -> str | None:
        """Return the source of a problem's reference; None where the problem is not known."""
        if problem_id not in self._references:
            found = self._rows("select source from problems where problem_id = ?", problem_id)
            if not found:
                return None
            self._references[problem_id] = found[0]["source"]
        return self._references[problem_id]

    # --- finding ---------------------------------------------------------------------------------

    def completion(self, completion_id: str) -> Completion | None:
        """Return the answer to an earlier request, which becomes the stage's, too; else None."""
        found = self._rows("select * from completions where completion_id = ?", completion_id)
        if not found:
            return None
        self._adopt("completions", completion_id)
        return rows.completion_of(found[0])

    def adopt_completion(self, completion_id: str) -> None:
        """Make another stage's answer the running stage's, too."""
        self._adopt("completions", completion_id)

    def verdict(
        self, candidate: Candidate, *, device_kind: str, protocol_id: str
    ) -> Verdict | None:
        """Return an earlier verdict, which becomes the stage's, too; None without one.

        Any stage may have asked for it. It is the harness's verdict; `veto` says whether the
        reviewer or a person saw a cheat.
        """
        found = self._rows(
            "select content from verdicts "
            "where candidate_id = ? and device_kind = ? and protocol_id = ?",
            candidate.id,
            device_kind,
            protocol_id,
        )
        if not found:
            return None
        self._adopt("verdicts", rows.verdict_key(candidate.id, device_kind, protocol_id))
        return rows.verdict_of(found[0]["content"])

    def candidates(self, prefix: str) -> list[Candidate]:
        """Return the candidates with ids that begin with a prefix."""
        found = self._rows(
            "select * from candidates where starts_with(candidate_id, ?) order by candidate_id",
            prefix,
        )
        return [
            Candidate(problem_id=row["problem_id"], source=rows.text_of(row["source"]))
            for row in found
        ]

    def births(
        self,
        problem_id: str,
        *,
        device_kind: str,
        protocol_id: str,
        stages: Sequence[str],
        attempts_per_step: int,
    ) -> list[Birth]:
        """Return the births of all successful candidates of a problem that these stages used.

        An answer of the running stage was born in the step that its attempt says; those of other
        stages were there before the first. The first call takes as long as one for all problems;
        later ones are answered from memory (`cudal1.ledger.exemplar_index`).
        """
        wanted = Wanted(device_kind, protocol_id, tuple(stages), self._stage, attempts_per_step)
        with self._lock:
            if self._births is None or self._births.is_stale or self._births.wanted != wanted:
                plain = self.query("births", **{**vars(wanted), "stages": list(stages)})
                self._births = ExemplarIndex(wanted, plain, self._rows)
            return self._births.of(problem_id, self._members)

    def shown(self, births: Iterable[Birth]) -> tuple[Exemplar, ...]:
        """Return the births with their sources, in the same order."""
        asked = list(births)
        found = self._rows(
            "select candidate_id, source from candidates "
            f"where candidate_id in ({', '.join('?' * len(asked)) or 'null'})",
            *(birth.candidate_id for birth in asked),
        )
        sources = {row["candidate_id"]: rows.text_of(row["source"]) for row in found}
        return tuple(
            Exemplar(**birth.model_dump(), source=sources[birth.candidate_id]) for birth in asked
        )

    def failures(
        self,
        problem_id: str,
        *,
        device_kind: str,
        protocol_id: str,
        statuses: Sequence[Status],
        stages: Sequence[str],
        first_attempt: int,
        island: int | None,
        count: int,
    ) -> list[tuple[Candidate, Verdict]]:
        """Return candidates of distinct programs that failed with one of some statuses.

        They are of some stages or the running one, and the newest comes last.

        Args:
            problem_id: the problem.
            device_kind: kind of device of the verdicts.
            protocol_id: their protocol.
            statuses: statuses that count.
            stages: earlier stages that count.
            first_attempt: attempt of the running stage from which on answers do not count.
            island: island of the answers; None: of all.
            count: the most that are returned.
        """
        found = self.query(
            "failures",
            problem_id=problem_id,
            device_kind=device_kind,
            protocol_id=protocol_id,
            statuses=[status.value for status in statuses],
            stages=list(stages),
            running=self._stage,
            first_attempt=first_attempt,
            island=island,
            count=count,
        ).to_dicts()
        return [
            (
                Candidate(problem_id=problem_id, source=rows.text_of(row["source"])),
                rows.verdict_of(row["content"]),
            )
            for row in reversed(found)
        ]

    def sql(
        self,
        query: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        limit: int | None = None,
    ) -> pl.DataFrame:
        """Return the rows of any query, at most `limit`; parameters are `?` in order, or `$name`.

        Raises:
            StoreError: the query is wrong; the message is the database's, with its hint.
        """
        with self.asked(query, parameters) as relation:
            if relation is None:
                return pl.DataFrame()
            return (relation if limit is None else relation.limit(limit)).pl()

    def save(self, query: str, path: Path) -> None:
        """Write the rows of any query to a CSV or Parquet file, whole or not at all.

        Raises:
            StoreError: the query is wrong, or the file cannot be written.
        """
        if not path.parent.is_dir():
            raise StoreError(f"{path}: cannot be written, there is no folder {path.parent}")
        partial = path.with_name(f".{path.name}.partial")
        try:
            with self.asked(query, ()) as relation:
                if relation is None:
                    raise StoreError("SQL: this statement has no rows to write")
                if path.suffix == ".csv":
                    relation.write_csv(str(partial), header=True)
                else:
                    _typed(relation).write_parquet(str(partial), compression="zstd")
            partial.replace(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror})") from error
        finally:
            partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def asked(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> Generator[Any]:
        """Yield DuckDB's relation of a query, or None without rows; raises StoreError as `sql`."""
        self._settle()
        given = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
        try:
            with self._lock:
                yield self._connection.sql(query, params=given or None)
        except duckdb.Error as error:
            raise StoreError(f"SQL: {_said(error)}") from error

    def query(self, name: str, **parameters: object) -> pl.DataFrame:
        """Return the rows of `queries/NAME.sql`; `$name` in it is a parameter."""
        text = (files("cudal1.ledger") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
        wanted = set(re.findall(r"\$(\w+)", text))
        assert wanted == set(parameters), f"{name}.sql wants {sorted(wanted)}"
        return self.sql(text, parameters)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection of a ledger that is read; closing either closes both."""
        assert not self._is_writer, "a writer's rows go through its journal"
        return self._connection


def _said(error: duckdb.Error) -> str:
    """Return what the database says and suggests, in one line; the query itself is left out."""
    lines = str(error).splitlines()
    end = next((i for i, line in enumerate(lines) if not line or line.startswith("LINE ")), None)
    return " ".join(" ".join(lines[:end]).split())


def _typed(relation: Any) -> Any:
    """Return the relation with types that Parquet keeps: it would make floats of 128-bit integers.

    A sum of integers is one. `decimal(38, 0)` has 38 digits; a larger number is an error.
    """
    wide = ("HUGEINT", "UHUGEINT")
    if not any(str(kind) in wide for kind in relation.types):
        return relation
    names = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in relation.columns]
    columns = enumerate(zip(relation.types, names, strict=True), start=1)
    return relation.project(
        ", ".join(
            f"#{number}::decimal(38, 0) as {name}" if str(kind) in wide else f"#{number} as {name}"
            for number, (kind, name) in columns
        )
    )


def _caught_up(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection to a copy of the ledger of one's own, with all that is known."""
    with tempfile.TemporaryDirectory(prefix="cudal1-ledger-") as place:
        own = Path(place) / database.SNAPSHOT
        try:
            with (folder / database.SNAPSHOT).open("rb") as content, own.open("xb") as copy:
                database.copy_file(content, copy)
            connection = database.connect(own, is_checked=False)
        except (OSError, StoreError, database.DamagedError):
            own.unlink(missing_ok=True)
            connection = database.connect(own)
        ledger = Ledger(folder, connection)
        try:
            ledger._forget_unfinished()
            ledger._catch_up()
        finally:
            ledger.close()
        return database.connect_read_only(own)  # the file stays while it is open
