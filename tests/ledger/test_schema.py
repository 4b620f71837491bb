"""Tests that older ledgers are upgraded and newer ones refused, and that migrations suffice."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest

from cudal1.errors import StoreError
from cudal1.ledger import Ledger, schema

pytestmark = pytest.mark.slow

NEXT = """
alter table rewards add column weight double default 1.5;
alter table verdicts add column mood varchar;
create table extras (extra_id varchar primary key, num_words integer);
comment on table extras is 'Made for a test';
"""


@pytest.fixture
def next_code(tmp_path_factory, monkeypatch) -> Path:
    """Make the same code with one migration more, and a view that needs it."""
    folder = tmp_path_factory.mktemp("schema")
    shutil.copytree(schema.FOLDER / "migrations", folder / "migrations")
    (folder / "migrations" / f"{schema.newest() + 1:04d}_test.sql").write_text(NEXT)
    views = (schema.FOLDER / "views.sql").read_text(encoding="utf-8")
    views += "create or replace view weights as select weight from rewards;\n"
    (folder / "views.sql").write_text(views, encoding="utf-8")
    monkeypatch.setattr(schema, "FOLDER", folder)
    return folder


def shape(connection: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    """Return everything that makes up a schema: columns, keys, indexes, comments, views."""
    return [
        row
        for query in (
            "select table_name, column_name, data_type, is_nullable, column_default, comment "
            "from duckdb_columns() where not internal order by all",
            "select table_name, constraint_text from duckdb_constraints() order by all",
            "select table_name, index_name, expressions from duckdb_indexes() order by all",
            "select table_name, comment from duckdb_tables() order by all",
            "select view_name, sql, comment from duckdb_views() where not internal order by all",
            "select function_name, comment from duckdb_functions() where not internal order by all",
        )
        for row in connection.execute(query).fetchall()
    ]


def as_of(version: int) -> duckdb.DuckDBPyConnection:
    """Return an empty database as code of that version left it."""
    connection = duckdb.connect()
    for path in sorted((schema.FOLDER / "migrations").glob("*.sql")):
        if int(path.name[:4]) <= version:
            connection.execute(path.read_text(encoding="utf-8"))
    connection.execute("insert into meta values ('schema', ?)", [str(version)])
    return connection


@pytest.mark.parametrize("version", range(schema.oldest(), schema.newest() + 1))
def test_every_older_database_is_upgraded_to_the_schema_of_a_new_one(version):
    fresh = duckdb.connect()
    schema.upgrade(fresh, found=0)
    older = as_of(version)
    assert not schema.is_current(older)
    schema.upgrade(older, found=version)
    assert shape(older) == shape(fresh)
    assert len(shape(fresh)) > 150
    assert schema.is_current(older)


def test_migrations_are_numbered_without_gaps_and_repetitions():
    names = sorted(path.name for path in (schema.FOLDER / "migrations").glob("*.sql"))
    numbers = [int(name[:4]) for name in names]
    assert numbers == list(range(schema.oldest(), schema.newest() + 1))


@pytest.mark.parametrize("version", range(schema.oldest(), schema.newest()))
def test_a_migration_drops_no_column_and_needs_no_new_value(version):
    """Shards and journals are read by the names of their columns."""
    columns = "select table_name, column_name, is_nullable, column_default from duckdb_columns()"
    before = {row[:2] for row in as_of(version).execute(columns).fetchall()}
    after = as_of(version + 1).execute(columns).fetchall()
    left = {row[:2] for row in after}
    gone = before - left
    assert {(table, schema.present_name(table, name)) for table, name in gone} <= left
    tables = {table for table, _ in before}
    for table, column, is_nullable, default in after:
        is_renamed = column in schema.RENAMED.get(table, {}).values()
        if table in tables and (table, column) not in before and not is_renamed:
            assert is_nullable or default is not None, (table, column)


def test_an_older_ledger_is_upgraded_and_loses_nothing(filled, facts, next_code):
    with Ledger.open(filled) as ledger:
        after = facts.content(ledger)
        assert set(ledger.sql("from weights")["weight"]) == {1.5}
        assert ledger.sql("from extras").is_empty()
        assert ledger.sql("select mood from verdicts")["mood"].to_list() == [None] * 5
    assert not list(filled.glob("*.corrupt-*"))
    shutil.rmtree(next_code)
    assert [row["raw"] for row in after["rewards"]] == [1.1, 0.0, 3.0]


def test_a_ledger_of_the_first_version_is_upgraded_with_its_spreads(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        ledger.export()
        spreads = ledger.sql("from timing_spreads order by all")
        assert spreads.height == 6
        before = {**facts.content(ledger), "baselines": []}  # the first version had none
    for problem in before["problems"]:
        problem["invariants"] = None  # nor these
    for candidate in before["candidates"]:
        candidate["program_id"] = candidate["techniques"] = None
    for completion in before["completions"]:
        completion["exemplar_scores"] = None
        completion["analysis"] = completion["design"] = completion["turn"] = None
    path = tmp_path / ".ledger.duckdb"
    with duckdb.connect(str(path)) as newer, as_of(schema.oldest()) as older:
        for (table,) in older.execute("select table_name from duckdb_tables()").fetchall():
            columns = [row[0] for row in older.execute(f"describe {table}").fetchall()]
            older_names = {new: old for old, new in schema.RENAMED.get(table, {}).items()}
            rows = newer.sql(f"from {table}").pl().rename(older_names).select(columns)
            older.register("rows", rows)
            older.execute(f"delete from {table}")
            older.execute(f"insert into {table} by name from rows")
        older.execute("update meta set value = ? where name = 'schema'", [str(schema.oldest())])
        older.execute("delete from meta where name = 'views'")
        older.execute(f"attach '{tmp_path / 'older'}' as file")
        older.execute("copy from database memory to file")
    path.unlink()
    (tmp_path / "older").rename(path)
    with Ledger.open(tmp_path) as ledger:
        assert facts.content(ledger) == before
        assert ledger.sql("from timing_spreads order by all").equals(spreads)
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_shards_and_journals_of_older_code_are_read(filled, facts, next_code):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    (filled / ".ledger.duckdb").unlink()
    with Ledger.open(filled) as ledger:
        assert facts.content(ledger) == before
        assert set(ledger.sql("from weights")["weight"]) == {1.5}
        assert ledger.sql("from rewards where stage = 'rl'").height == 1
    assert next_code.exists()


def test_a_reader_of_an_older_ledger_uses_its_shards_and_changes_nothing(
    filled, facts, next_code, caplog
):
    before = (filled / ".ledger.duckdb").read_bytes()
    with Ledger.read(filled) as ledger:
        assert ledger.sql("from weights").height == 3
    assert (filled / ".ledger.duckdb").read_bytes() == before
    assert len(caplog.messages) == 1
    assert "older code" in caplog.messages[0]
    assert next_code.exists()


def test_a_ledger_of_newer_code_is_refused_and_left_unchanged(filled, next_code, monkeypatch):
    with Ledger.open(filled) as ledger:
        ledger.begin("sft")
        ledger.add_steps(1, {"loss": 1.0})
        ledger.export()
    before = (filled / ".ledger.duckdb").read_bytes()
    monkeypatch.undo()
    for way in (Ledger.open, Ledger.read):
        with pytest.raises(StoreError, match="newer than this code's") as caught:
            way(filled)
        assert "\n" not in str(caught.value)
    assert (filled / ".ledger.duckdb").read_bytes() == before
    (filled / ".ledger.duckdb").unlink()
    with pytest.raises(StoreError, match=r"sft.*newer than this code's"):
        Ledger.open(filled)
    assert next_code.exists()


def test_a_shard_s_version_is_the_newest_migration(filled):
    path = filled / "shards" / "filter" / "verdicts.parquet"
    assert pl.read_parquet_metadata(path)["cudal1_ledger"] == str(schema.newest())


def test_a_changed_view_is_made_again_and_a_removed_view_is_dropped(filled, next_code):
    with Ledger.open(filled) as ledger:
        assert ledger.sql("from weights").height == 3
    (next_code / "views.sql").write_text("create view only_one as select 1 as one;")
    with Ledger.open(filled) as ledger:
        views = ledger.sql("select view_name from duckdb_views() where not internal")
        assert views["view_name"].to_list() == ["only_one"]


def test_a_database_that_cannot_be_upgraded_is_rebuilt(filled, facts, next_code, caplog):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    odd = next_code / "migrations" / f"{schema.newest() + 1:04d}_odd.sql"
    odd.write_text("create table more (a integer); select error('odd rows') from rewards;")
    caplog.clear()
    with Ledger.open(filled) as ledger:
        assert facts.content(ledger) == before
        assert ledger.sql("from more").is_empty()
    assert (filled / ".ledger.duckdb.corrupt-1").exists()
    assert len(caplog.messages) == 1
    assert "odd rows" in caplog.messages[0]


def test_a_column_of_older_shards_and_journals_gets_its_present_name(tmp_path, facts):
    suspect = facts.candidate("class ModelNew: x = 1")
    review = facts.review(suspect)
    answer = facts.completion("another review", stage="rl", provider="reviewer")
    again = review.model_copy(update={"completion": answer, "reviewer_id": "another"})
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        ledger.add_review(review)
        ledger.export()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        facts.known(ledger, suspect)
        ledger.add_review(again)
    shard = tmp_path / "shards" / "filter" / "reviews.parquet"
    pl.read_parquet(shard).rename({"reviewer_id": "judge_id"}).write_parquet(shard)
    journals = [path for path in tmp_path.rglob("*.jsonl") if "reviewer_id" in path.read_text()]
    assert journals
    for journal in journals:
        journal.write_text(journal.read_text().replace('"reviewer_id"', '"judge_id"'))
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as rebuilt:
        assert rebuilt.reviews(suspect, reviewer_id="reviewer") == [review]
        assert len(rebuilt.reviews(suspect, reviewer_id="another")) == 1
