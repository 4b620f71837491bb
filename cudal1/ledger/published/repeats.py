"""The rows of each table over all publications, each fact once.

Machines publish what others lack, so that few facts are published twice: by two machines at once,
or since they changed. The keys of those that do not hold are left out of every question. The latest
publication names them, if it saw all others; else they are found when a place is opened, which
reads the keys of all rows. A table without any is read as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import duckdb

from cudal1.ledger import schema
from cudal1.ledger.inserting import VERDICT_KEY
from cudal1.ledger.published.place import Place
from cudal1.ledger.published.publication import Publication, Shard, is_settled
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
        self.lost: dict[str, str] = {}
        """Table of the files and units that do not hold, by table; most tables have none."""
        self._known = {shard.table: shard for shard in found[-1].repeats} if found else {}
        self._is_settled = is_settled(found)
        for table, rule in FACTS.items():
            shards = _distinct(found, table)
            self._find_lost(table, shards, rule)
            self._add(table, shards, rule.unit)
        for table in WITH_VERDICTS:
            if "verdicts" in self.lost:
                self._keep(table, self._lost_with_verdicts(table))
            self._add(table, _distinct(found, table), VERDICT_KEY)
        for table, rule in OF_STAGES.items():
            shards = _latest_statements(found, table)
            self._find_lost(table, shards, rule)
            self._add(table, shards, rule.unit)

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

    def _add(self, table: str, shards: Sequence[Shard], unit: Sequence[str]) -> None:
        if shards:
            rows = self._read(table, shards)
            keys = ", ".join(("filename", *unit))
            self.of[table] = f"select * exclude (filename) from {rows}" + (
                f" anti join {self.lost[table]} using ({keys})" if table in self.lost else ""
            )

    def _find_lost(self, table: str, shards: Sequence[Shard], rule: Rule) -> None:
        """Find the files and units of a table that do not hold."""
        if self._is_settled:
            if table in self._known:
                url = self._place.url(self._known[table].name)
                prefix = self._place.url("-").removesuffix("-")
                self._keep(
                    table,
                    f"select {_quoted(prefix)} || filename as filename, {', '.join(rule.unit)} "
                    f"from read_parquet({_quoted(url)})",
                )
            return
        stages = [shard.stage for shard in shards]
        if len(shards) > 1 and (None in stages or len(set(stages)) < len(stages)):
            self._keep(table, self._lost(self._read(table, shards), rule))

    def _lost(self, rows: str, rule: Rule) -> str:
        unit = ", ".join(rule.unit)
        latest = "desc" if rule.is_latest else "asc"
        return f"""
            with units as (select filename, {unit}, {rule.rank} as rank from {rows}
            ), twice as (
                select {unit} from units group by {unit} having min(filename) <> max(filename)
            ), said as (
                select filename, {unit}, min(rank) as rank
                from units semi join twice using ({unit}) group by filename, {unit}
            )
            select filename, {unit} from said join ({_TIMES}) using (filename)
            qualify row_number() over (partition by {unit} order by rank, publication {latest}) > 1
            """

    def _lost_with_verdicts(self, table: str) -> str:
        return f"""
            select distinct beside.filename, {", ".join(f"lost.{name}" for name in VERDICT_KEY)}
            from {self.lost["verdicts"]} lost join {REPEATED}.files f using (filename)
            join {REPEATED}.files beside using (publication)
            where beside.table_name = '{table}'
            """

    def _keep(self, table: str, query: str) -> None:
        """Keep what does not hold of a table, if there is any."""
        name = f"{REPEATED}.lost_{table}"
        self._connection.execute(f"create table {name} as {query}")
        if self._connection.execute(f"from {name} limit 1").fetchall():
            self.lost[table] = name

    def lost_names(self, table: str) -> str:
        """Return SQL of what does not hold of a table, with names of files below the place."""
        prefix = len(self._place.url("-"))
        return f"select * replace (filename[{prefix}:] as filename) from {self.lost[table]}"

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
