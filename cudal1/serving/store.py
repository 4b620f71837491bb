"""The durable queue: every submission from its receipt to its answer, in one SQLite database.

A receipt is on the disk before the client hears of it, and an answer before anyone is told of it.
Each client has rows of its own: no question can reach another's. Sources are stored once, by the
candidate's id, which has 64 bits; a second source of the same id is refused, so that a verdict is
never given to a source that was not judged.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cudal1.candidate import Candidate
from cudal1.errors import CudaL1Error, StoreError
from cudal1.problem import Problem
from cudal1.serving.messages import Answer, Asks, State
from cudal1.verdict import Verdict

VERSION = 1
"""Version of the tables."""
DATABASE = "queue.sqlite"
TABLES = """
create table sources (
    candidate_id text primary key, problem_id text not null, source text not null
) without rowid;
create table own_problems (problem_id text primary key, content text not null) without rowid;
create table submissions (
    received integer primary key autoincrement,
    client text not null,
    id text not null,
    candidate_id text not null references sources,
    problem_key text not null,
    asks text not null,
    state text not null,
    number integer,
    reason text,
    verdict text,
    received_at real not null,
    unique (client, id)
);
create index waiting on submissions (client, received) where state = 'waiting';
create index answered on submissions (client, number) where number is not null;
create table numbers (client text primary key, last integer not null) without rowid;
create table spent (
    candidate_id text not null, protocol_id text not null, seconds real not null,
    primary key (candidate_id, protocol_id)
) without rowid;
"""


class FullError(CudaL1Error):
    """A client's queue is full; nothing of what was submitted is kept."""


class CollisionError(CudaL1Error):
    """Another source has the same id."""


@dataclass(frozen=True)
class Received:
    """A submission as it is stored."""

    id: str
    problem: Problem
    candidate: Candidate
    asks: Asks
    is_own: bool = False
    """True if the problem is the client's own, which the store must keep."""


@dataclass(frozen=True)
class Waiting:
    """A submission that waits for its verdict."""

    received: int
    """Place in the order of receipt, over all clients."""
    client: str
    id: str
    candidate: Candidate
    asks: Asks


class SubmissionStore:
    """The submissions of all clients; threads take turns.

    Raises:
        StoreError: the database cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / DATABASE
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                self._path, check_same_thread=False, isolation_level=None
            )
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = full")
            (version,) = self._connection.execute("pragma user_version").fetchone()
            if version == 0:
                self._connection.executescript(
                    f"begin; {TABLES} pragma user_version = {VERSION}; commit;"
                )
        except sqlite3.Error as error:
            raise self._failed(error) from error
        if version > VERSION:
            raise StoreError(f"{self._path}: is of newer code; update cudal1")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def add(
        self, client: str, given: Sequence[Received], *, max_waiting: int
    ) -> tuple[list[Answer], int]:
        """Store what is new, all or nothing; return the answers, and how many are new.

        A submission that was refused waits again.

        Raises:
            FullError: more than `max_waiting` of the client's would wait.
            CollisionError: another source has the id of one of them.
            StoreError: the disk is full, or the database cannot be used.
        """
        with self._transaction():
            num_new = sum(self._add(client, each) for each in given)
            if num_new and self.num_waiting(client) > max_waiting:
                raise FullError(
                    f"more than {max_waiting} of your submissions would wait; wait for verdicts"
                )
            found = [self.answer(client, each.id) for each in given]
        return [each for each in found if each is not None], num_new

    def answer(self, client: str, submission_id: str) -> Answer | None:
        """Return the answer to a client's submission; None if it has none of that id."""
        rows = self._rows(
            "select * from submissions where client = ? and id = ?", client, submission_id
        )
        return _answer(rows[0]) if rows else None

    def answered(self, client: str, *, after: int, limit: int) -> list[Answer]:
        """Return a client's answers in their order, those behind a number."""
        rows = self._rows(
            "select * from submissions where client = ? and number > ? order by number limit ?",
            client,
            after,
            limit,
        )
        return [_answer(row) for row in rows]

    def num_waiting(self, client: str) -> int:
        """Return how many of a client's submissions wait."""
        query = "select count(*) as n from submissions where client = ? and state = 'waiting'"
        return self._rows(query, client)[0]["n"]

    def waiting_clients(self) -> list[str]:
        """Return the clients of which something waits."""
        rows = self._rows("select distinct client from submissions where state = 'waiting'")
        return [row["client"] for row in rows]

    def waiting(self, client: str, *, limit: int) -> list[Waiting]:
        """Return a client's first submissions that wait."""
        rows = self._rows(
            "select received, client, id, candidate_id, asks, problem_id, source "
            "from submissions join sources using (candidate_id) "
            "where client = ? and state = 'waiting' order by received limit ?",
            client,
            limit,
        )
        return [
            Waiting(
                row["received"],
                row["client"],
                row["id"],
                Candidate(problem_id=row["problem_id"], source=row["source"]),
                Asks.model_validate_json(row["asks"]),
            )
            for row in rows
        ]

    def own_problem(self, problem_id: str) -> Problem | None:
        """Return a problem that a client has submitted."""
        rows = self._rows("select content from own_problems where problem_id = ?", problem_id)
        return Problem.model_validate_json(rows[0]["content"]) if rows else None

    def finish(self, waiting: Waiting, said: Verdict | str) -> None:
        """Store a verdict, or the reason why there can be none."""
        is_refused = isinstance(said, str)
        with self._transaction():
            self._connection.execute(
                "insert into numbers values (?, 1) "
                "on conflict (client) do update set last = last + 1",
                (waiting.client,),
            )
            self._connection.execute(
                "update submissions set state = ?, reason = ?, verdict = ?, "
                "number = (select last from numbers where client = ?) "
                "where received = ? and state = 'waiting'",
                (
                    State.REFUSED if is_refused else State.DONE,
                    said if is_refused else None,
                    None if is_refused else said.model_dump_json(),
                    waiting.client,
                    waiting.received,
                ),
            )

    def note_spent(self, candidate_id: str, protocol_id: str, seconds: float) -> None:
        """Note how long a verdict has taken its device."""
        with self._transaction():
            self._connection.execute(
                "insert or ignore into spent values (?, ?, ?)", (candidate_id, protocol_id, seconds)
            )

    def spent_s(self, candidate_id: str, protocol_id: str) -> float | None:
        """Return how long a verdict has taken its device, in seconds; None if that is unknown."""
        rows = self._rows(
            "select seconds from spent where candidate_id = ? and protocol_id = ?",
            candidate_id,
            protocol_id,
        )
        return rows[0]["seconds"] if rows else None

    def _add(self, client: str, each: Received) -> int:
        """Store one submission; return 1 if it waits now and did not before, else 0."""
        candidate = each.candidate
        self._connection.execute(
            "insert or ignore into sources values (?, ?, ?)",
            (candidate.id, candidate.problem_id, candidate.source),
        )
        (kept,) = self._rows(
            "select problem_id, source from sources where candidate_id = ?", candidate.id
        )
        if (kept["problem_id"], kept["source"]) != (candidate.problem_id, candidate.source):
            raise CollisionError("another source has this id; change a comment, and send it again")
        if each.is_own:
            self._connection.execute(
                "insert or ignore into own_problems values (?, ?)",
                (each.problem.id, each.problem.model_dump_json()),
            )
        cursor = self._connection.execute(
            "insert into submissions (client, id, candidate_id, problem_key, asks, state, "
            "received_at) values (?, ?, ?, ?, ?, 'waiting', ?) on conflict (client, id) do update "
            "set state = 'waiting', reason = null, number = null where state = 'refused'",
            (
                client,
                each.id,
                candidate.id,
                each.problem.key,
                each.asks.model_dump_json(),
                time.time(),
            ),
        )
        return cursor.rowcount

    def _rows(self, query: str, *parameters: object) -> list[sqlite3.Row]:
        try:
            with self._lock:
                cursor = self._connection.cursor()
                cursor.row_factory = sqlite3.Row
                return cursor.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with self._lock:
            try:
                self._connection.execute("begin immediate")
                with self._connection:  # commits, or rolls back and raises again
                    yield
            except sqlite3.Error as error:
                raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> StoreError:
        return StoreError(
            f"{self._path}: cannot be used ({error}); if the disk is full, free some space and "
            "start again: nothing that was received is lost"
        )


def _answer(row: sqlite3.Row) -> Answer:
    verdict = None if row["verdict"] is None else Verdict.model_validate_json(row["verdict"])
    return Answer(
        id=row["id"],
        state=State(row["state"]),
        problem=row["problem_key"],
        number=row["number"],
        reason=row["reason"],
        verdict=verdict,
        speedup=None if verdict is None else verdict.speedup,
    )
