"""Publishing: the facts of one ledger that a place lacks become shards there.

A fact that the place has is not published again, so that publishing twice changes nothing. Of what
a stage used in its latest run, a writer states the whole again when it has changed.
"""

from __future__ import annotations

import hashlib
import re
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from cudal1 import interrupt
from cudal1.errors import StoreError
from cudal1.ledger import schema
from cudal1.ledger.inserting import VERDICT_KEY
from cudal1.ledger.published.place import Place
from cudal1.ledger.published.publication import (
    WRITER,
    Publication,
    Shard,
    digest,
    digest_of_names,
    is_settled,
    publications,
    shard_name,
    time_after,
)
from cudal1.ledger.published.reading import opened
from cudal1.ledger.published.repeats import Rows, latest_of_stages
from cudal1.ledger.published.rules import FACTS, OF_STAGES, WITH_VERDICTS, Rule

ROW_GROUP = 122_880
"""Rows of a row group: DuckDB's own number, the least that two threads share well."""
SAMPLES_ROW_GROUP = 491_520
"""Rows of a row group of timing samples: some 7 MB, of which one verdict's are read at once."""


@dataclass(frozen=True)
class _Selection:
    """Rows of one table that become a shard."""

    table: str
    query: str
    stage: str | None = None


def publish(
    connection: duckdb.DuckDBPyConnection, place: Place, *, writer: str
) -> Publication | None:
    """Publish the facts that a place lacks; return the publication, or None where it lacks none.

    Args:
        connection: a ledger that is read; it gets temporary tables, and is of no use afterwards.
        place: where to.
        writer: name of the ledger; what its stages used replaces what they used before.

    Raises:
        StoreError: the place cannot be read or written, or the name is none.
    """
    if not re.fullmatch(WRITER, writer):
        raise StoreError(
            f"{writer}: is no writer's name; use at most 64 letters, digits, dots, dashes and "
            "underscores"
        )
    found, sizes = publications(place)
    place.prepare(connection, sizes)
    shards: list[Shard] = []
    current = latest_of_stages(found)
    with tempfile.TemporaryDirectory(prefix="cudal1-publish-") as folder:
        made = Path(folder) / "shard.parquet"
        theirs = Rows(connection, place, found)
        for selection in _selections(connection, found, theirs, writer):
            interrupt.check()
            shard = _write(connection, selection, made)
            before = current.get((writer, shard.table, shard.stage or ""))
            if before is not None and before.name == shard.name:
                continue
            if sizes.get(shard.name) != shard.num_bytes:
                place.write(shard.name, made)
            shards.append(shard)
        if not shards and (not found or is_settled(found)):
            return None
        said = Publication(
            time_after(found, datetime.now(UTC)), writer, schema.newest(), tuple(shards)
        )
        known = sizes | {shard.name: shard.num_bytes for shard in shards}
        repeats = _write_repeats(place, [*found, said], known, made)
        said = replace(said, seen=digest_of_names(found), repeats=tuple(repeats))
        made.write_bytes(said.content())
        place.write(said.name(), made)
    return said


def default_writer(folder: Path) -> str:
    """Return a name for the ledger of a folder: the machine's, and a digest of the path."""
    machine = re.sub(r"[^A-Za-z0-9._-]", "", socket.gethostname()).lstrip("._-")[:50] or "machine"
    return f"{machine}-{digest(f'{machine}:{folder.resolve()}'.encode())[:6]}"


def _selections(
    connection: duckdb.DuckDBPyConnection, found: Sequence[Publication], theirs: Rows, writer: str
) -> Iterator[_Selection]:
    said = [shard for each in found if each.writer == writer for shard in each.shards]
    for table, rule in FACTS.items():
        own = [shard for shard in said if shard.table == table]
        if _mark_fresh(connection, theirs, table, rule, own):
            unit = ", ".join(rule.unit)
            order = ", ".join(rule.unit) if table != "mutants" else "problem_id, mutant"
            query = f"from {table} semi join fresh_{table} using ({unit}) order by {order}"
            yield _Selection(table, query)
    for table, order in WITH_VERDICTS.items():
        query = f"from {table} semi join fresh_verdicts using ({', '.join(VERDICT_KEY)})"
        if connection.execute(f"{query} limit 1").fetchall():
            yield _Selection(table, f"{query} order by {', '.join(order)}")
    for table in OF_STAGES:
        here = connection.execute(f"select distinct stage from {table}").fetchall()
        before = [shard.stage for shard in said if shard.table == table and shard.stage]
        for stage in sorted({*(each for (each,) in here), *before}):
            name = stage.replace("'", "''")
            yield _Selection(table, f"from {table} where stage = '{name}' order by all", stage)


def _mark_fresh(
    connection: duckdb.DuckDBPyConnection,
    theirs: Rows,
    table: str,
    rule: Rule,
    own: Sequence[Shard],
) -> bool:
    """Make a table of the units that the place lacks, or has in an earlier state.

    What this writer has said is not said again where another writer has said otherwise since:
    two writers would take turns for ever.
    """
    unit, mine = ", ".join(rule.unit), rule.summary(table)
    query = mine
    if table in theirs.of:
        query = f"""
            select mine.* from ({mine}) mine
            left join ({rule.summary(f"({theirs.of[table]})")}) t using ({unit})
            where t.rank is null or mine.rank < t.rank
            or (mine.rank = t.rank and mine.state <> t.state)"""
    if rule.state and own:
        query = f"""
            from ({query}) anti join ({theirs.said(table, own, rule)})
            using ({unit}, rank, state)"""
    connection.execute(f"create temp table fresh_{table} as select {unit} from ({query})")
    return bool(connection.execute(f"from fresh_{table} limit 1").fetchall())


def _write_repeats(
    place: Place, found: Sequence[Publication], sizes: dict[str, int], made: Path
) -> Iterator[Shard]:
    """Write what does not hold over all publications, the new one among them."""
    connection, rows = opened(place, found, sizes)
    with connection:
        for table in (*FACTS, *OF_STAGES):
            if table in rows.lost:
                query = f"{rows.lost_names(table)} order by all"
                shard = _write(connection, _Selection(table, query), made, folder="repeats")
                if sizes.get(shard.name) != shard.num_bytes:
                    place.write(shard.name, made)
                yield shard


def _write(
    connection: duckdb.DuckDBPyConnection,
    selection: _Selection,
    path: Path,
    *,
    folder: str = "facts",
) -> Shard:
    """Write a selection as Parquet; equal rows give equal bytes."""
    columns = connection.sql(selection.query).columns
    group = SAMPLES_ROW_GROUP if selection.table == "timing_samples" else ROW_GROUP
    written = str(path).replace("'", "''")
    ((num_rows,),) = connection.execute(
        f"copy ({selection.query}) to '{written}' (format parquet, compression zstd, "
        f"row_group_size {group}, kv_metadata {{cudal1_ledger: '{schema.newest()}'}})"
    ).fetchall()
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    name = shard_name(selection.table, found, folder=folder)
    return Shard(
        selection.table, name, num_rows, path.stat().st_size, tuple(columns), selection.stage
    )
