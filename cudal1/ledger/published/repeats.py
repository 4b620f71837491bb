"""The rows of each table over all publications, each fact once.

Machines publish what others lack, so that few facts are published twice: by two machines at once,
or since they changed. The keys of those that do not hold are found once, when a place is opened,
and left out of every question. A table without any is read as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import duckdb

from cudal1.ledger import schema
from cudal1.ledger.inserting import VERDICT_KEY
from cudal1.ledger.published.place import Place
from cudal1.ledger.published.publication import Publication, Shard
from cudal1.ledger.published.rules import FACTS, OF_STAGES, WITH_VERDICTS, Rule

REPEATED = "repeated"
"""Database in memory that names the files, and the rows in them that do not hold."""
_TIMES = f"select filename, min(publication) as publication from {REPEATED}.files group by filename"
"""SQL of the first publication that names each file, by its number."""


class Rows:
    """The SQL of the rows of each table that a place has."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, place: Place, found: Sequence[Publication]
    ) -> None:
        self._connection = connection
        self._place = place
        connection.execute(f"attach ':memory:' as {REPEATED} (read_write)")
        self._name_files(found)
        self.of: dict[str, str] = {}
        """SQL of the rows by table; a table that was never published is missing."""
        facts = {table: _distinct(found, table) for table in (*FACTS, *WITH_VERDICTS)}
        for table, rule in FACTS.items():
            self._add(table, facts[table], rule.unit, self._lost(table, facts[table], rule))
        for table in WITH_VERDICTS:
            self._add(table, facts[table], VERDICT_KEY, self._lost_with_verdicts(table))
        for table, rule in OF_STAGES.items():
            shards = _latest_statements(found, table)
            self._add(table, shards, rule.unit, self._lost(table, shards, rule))

    def said(self, table: str, shards: Sequence[Shard], rule: Rule) -> str:
        """Return SQL of each unit's latest rank and state in some shards, whether they hold or not.

        The columns are the unit's, `rank` and `state`.
        """
        unit = ", ".join(rule.unit)
        return f"""
            select * exclude (filename, publication)
            from ({rule.summary(self._read(table, shards), "filename")})
            join ({_TIMES}) using (filename)
            qualify row_number() over (partition by {unit} order by publication desc) = 1"""

    def _name_files(self, found: Sequence[Publication]) -> None:
        self._connection.execute(
            f"create table {REPEATED}.files "
            "(filename varchar, table_name varchar, publication integer)"
        )
        named = [
            (self._place.url(shard.name), shard.table, number)
            for number, publication in enumerate(found)
            for shard in publication.shards
        ]
        if named:
            self._connection.executemany(f"insert into {REPEATED}.files values (?, ?, ?)", named)

    def _add(
        self, table: str, shards: Sequence[Shard], unit: Sequence[str], lost: str | None
    ) -> None:
        if shards:
            rows = self._read(table, shards)
            keys = ", ".join(("filename", *unit))
            self.of[table] = f"select * exclude (filename) from {rows}" + (
                f" anti join {lost} using ({keys})" if lost else ""
            )

    def _lost(self, table: str, shards: Sequence[Shard], rule: Rule) -> str | None:
        """Return the table of files and units that do not hold; None where all do."""
        stages = [shard.stage for shard in shards]
        if len(shards) < 2 or (None not in stages and len(set(stages)) == len(stages)):
            return None
        unit = ", ".join(rule.unit)
        latest = "desc" if rule.is_latest else "asc"
        return self._made(
            f"lost_{table}",
            f"""
            with units as (
                select filename, {unit}, {rule.rank} as rank from {self._read(table, shards)}
            ), twice as (
                select {unit} from units group by {unit} having min(filename) <> max(filename)
            ), said as (
                select filename, {unit}, min(rank) as rank
                from units semi join twice using ({unit}) group by filename, {unit}
            )
            select filename, {unit} from said join ({_TIMES}) using (filename)
            qualify row_number() over (partition by {unit} order by rank, publication {latest}) > 1
            """,
        )

    def _lost_with_verdicts(self, table: str) -> str | None:
        """Return the table of files and verdicts that do not hold; None where all do."""
        known = self._connection.execute(
            "select 1 from duckdb_tables() where database_name = ? and table_name = ?",
            [REPEATED, "lost_verdicts"],
        )
        if not known.fetchall():
            return None
        return self._made(
            f"lost_{table}",
            f"""
            select distinct beside.filename, {", ".join(f"lost.{name}" for name in VERDICT_KEY)}
            from {REPEATED}.lost_verdicts lost join {REPEATED}.files f using (filename)
            join {REPEATED}.files beside using (publication)
            where beside.table_name = '{table}'
            """,
        )

    def _made(self, name: str, query: str) -> str | None:
        full = f"{REPEATED}.{name}"
        self._connection.execute(f"create table {full} as {query}")
        if self._connection.execute(f"from {full} limit 1").fetchall():
            return full
        self._connection.execute(f"drop table {full}")
        return None

    def _read(self, table: str, shards: Sequence[Shard]) -> str:
        """Return SQL of all rows of some shards, under present column names, with `filename`."""
        types = columns_of(self._connection, table)
        branches = []
        for columns, alike in groupby(
            sorted(shards, key=lambda shard: (shard.columns, shard.name)),
            key=lambda shard: shard.columns,
        ):
            old = {schema.present_name(table, name): name for name in columns}
            chosen = ", ".join(
                f"{old[name]} as {name}" if name in old else f"null::{kind} as {name}"
                for name, kind in types.items()
            )
            files = ", ".join(_quoted(self._place.url(shard.name)) for shard in alike)
            branches.append(
                f"select {chosen}, filename from "
                f"read_parquet([{files}], filename = true, hive_partitioning = false)"
            )
        return f"({' union all '.join(branches)})"


def columns_of(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Return the types of a table's columns, in their order."""
    found = connection.execute(
        "select column_name, data_type from duckdb_columns() "
        "where table_name = ? and database_name = current_database() order by column_index",
        [table],
    )
    return dict(found.fetchall())


def _distinct(found: Sequence[Publication], table: str) -> list[Shard]:
    """Return the shards of a table, each file once."""
    named = {
        shard.name: shard
        for publication in found
        for shard in publication.shards
        if shard.table == table
    }
    return list(named.values())


def _latest_statements(found: Sequence[Publication], table: str) -> list[Shard]:
    """Return the latest shard of each stage of each writer."""
    latest = latest_of_stages(found)
    shards = {shard.name: shard for (_, name, _), shard in latest.items() if name == table}
    return list(shards.values())


def latest_of_stages(found: Sequence[Publication]) -> dict[tuple[str, str, str], Shard]:
    """Return the latest shard that each writer has of each stage, by writer, table and stage."""
    return {
        (publication.writer, shard.table, shard.stage): shard
        for publication in found
        for shard in publication.shards
        if shard.stage is not None
    }


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
