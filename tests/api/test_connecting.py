"""Tests of the connection that notebooks and other programs get."""

from __future__ import annotations

import builtins

import duckdb
import polars as pl
import pytest

import cudal1
from cudal1.errors import ConfigError, StoreError
from cudal1.ledger import Ledger
from tests.ledger.conftest import Facts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connected")
    with Ledger.open(folder) as ledger:
        ledger.begin("filter")
        Facts().fill(ledger)
        ledger.export()
    return folder


def test_a_connection_has_tables_views_and_macros(folder):
    with cudal1.connect(folder) as connection:
        assert connection.sql("select count(*) from verdicts").fetchall() == [(4,)]
        best = connection.sql("select candidate_id from best").fetchall()[0][0]
        assert connection.sql(f"from lineage('{best}')").fetchall()
        assert pl.read_database("from best", connection).height == 1
        assert connection.cursor().execute("select count(*) from best").fetchall() == [(1,)]


def test_a_connection_changes_nothing_of_the_ledger(folder):
    with cudal1.connect(folder) as connection:
        for change in ("delete from verdicts", "create table mine (i int)"):
            with pytest.raises(duckdb.Error, match="read-only"):
                connection.execute(change)
        connection.execute("create temp table mine as from best")
        assert connection.sql("select count(*) from mine").fetchall() == [(1,)]


def test_texts_and_times_have_their_types(folder):
    with cudal1.connect(folder) as connection:
        (source,) = connection.sql("select source from sources limit 1").fetchall()[0]
        assert source.startswith("class ModelNew")
        kinds = connection.sql(
            "select typeof(judged_at), (select typeof(started_at) from stage_runs limit 1), "
            "(select typeof(sent_at) from charges limit 1), (select typeof(answer) from answers "
            "limit 1) from judged limit 1"
        ).fetchall()[0]
        assert kinds == ("TIMESTAMP", "TIMESTAMP", "TIMESTAMP", "VARCHAR")


def test_a_folder_without_a_ledger_gives_the_remedy(tmp_path):
    with pytest.raises(StoreError, match="no ledger here; run `make run` first"):
        cudal1.connect(tmp_path)


def test_without_duckdb_the_extra_is_named(tmp_path, monkeypatch):
    imported = builtins.__import__

    def without(name, *others):
        if name == "cudal1.ledger":
            raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")
        return imported(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"cudal1.connect needs the extra pipeline"):
        cudal1.connect(tmp_path)
