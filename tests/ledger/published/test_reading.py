"""Tests that a place of publications answers as a ledger does, and says what is wrong with it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import cudal1
from cudal1.errors import StoreError
from cudal1.ledger import Ledger, schema
from cudal1.ledger.published.folder import FolderPlace
from cudal1.ledger.published.publication import Publication, digest, shard_name
from tests.ledger.published.conftest import Make, publish

pytestmark = pytest.mark.slow


@pytest.fixture
def place(make: Make, tmp_path: Path) -> Path:
    publish(make("a"), tmp_path / "place")
    return tmp_path / "place"


def refusal(place: Path) -> str:
    with pytest.raises(StoreError) as refused:
        Ledger.read(place)
    said = str(refused.value)
    assert "\n" not in said
    return said


def manifest(place: Path) -> Path:
    (found,) = (place / "publications").iterdir()
    return found


def say(place: Path, said: Publication) -> None:
    """Replace the place's only publication."""
    manifest(place).unlink()
    (place / said.name()).write_bytes(said.content())


def said(place: Path) -> Publication:
    from cudal1.ledger.published.publication import publications

    ((found,), _) = publications(FolderPlace(place))
    return found


def test_every_view_answers_as_that_of_the_ledger(make: Make, place: Path, tmp_path: Path) -> None:
    with Ledger.read(tmp_path / "a") as own, Ledger.read(place) as shared:
        views = own.sql("select view_name from duckdb_views() where not internal")["view_name"]
        assert len(views) > 25
        for view in views:
            query = f"select * from {view} order by all"
            assert shared.sql(query).equals(own.sql(query)), view


def test_tables_keep_their_columns_types_and_comments(place: Path, tmp_path: Path) -> None:
    query = (
        "select table_name, column_name, data_type, comment from duckdb_columns() "
        "where database_name = current_database() and not internal order by all"
    )
    with Ledger.read(tmp_path / "a") as own, Ledger.read(place) as shared:
        assert shared.sql(query).equals(own.sql(query))


def test_connect_opens_a_place(place: Path) -> None:
    assert cudal1.connect(place).sql("from best").fetchall()


def test_an_opened_place_stays_as_it_is(make: Make, place: Path) -> None:
    with Ledger.read(place) as opened:
        before = opened.sql("select count(*) from verdicts").item()
        publish(make("b"), place, "b")
        assert opened.sql("select count(*) from verdicts").item() == before


def test_columns_that_an_older_shard_lacks_are_null(place: Path) -> None:
    found = said(place)
    shards = []
    for shard in found.shards:
        if shard.table == "candidates":
            older = pl.read_parquet(place / shard.name).drop("program_id", "techniques")
            older.write_parquet(place / "made.parquet")
            name = shard_name("candidates", digest((place / "made.parquet").read_bytes()))
            (place / "made.parquet").rename(place / name)
            size = (place / name).stat().st_size
            shard = replace(shard, name=name, num_bytes=size, columns=tuple(older.columns))
        shards.append(shard)
    say(place, replace(found, shards=tuple(shards), version=schema.newest() - 1))
    with Ledger.read(place) as ledger:
        assert ledger.sql("select program_id from candidates")["program_id"].null_count() == 5


def test_columns_with_an_older_name_are_read(place: Path) -> None:
    found = said(place)
    (reviews,) = (shard for shard in found.shards if shard.table == "reviews")
    older = pl.read_parquet(place / reviews.name).rename({"reviewer_id": "judge_id"})
    older.write_parquet(place / reviews.name)
    size = (place / reviews.name).stat().st_size
    shard = replace(reviews, num_bytes=size, columns=tuple(older.columns))
    say(place, replace(found, shards=(*(s for s in found.shards if s != reviews), shard)))
    with Ledger.read(place) as ledger:
        assert ledger.sql("select reviewer_id from reviews").item() == "reviewer"


def test_a_publication_of_newer_code_is_refused(place: Path) -> None:
    say(place, replace(said(place), version=schema.newest() + 1))
    assert refusal(place).endswith(f"newer than this code's {schema.newest()}: update cudal1")


def test_a_half_written_publication_is_named_with_the_remedy(place: Path) -> None:
    name = manifest(place)
    name.write_bytes(name.read_bytes()[:-20])
    assert f"{name.name} is half-written or was changed: delete it, and publish" in refusal(place)


def test_a_half_written_shard_is_named_with_the_remedy(place: Path) -> None:
    (shard,) = (place / "facts" / "verdicts").iterdir()
    shard.write_bytes(shard.read_bytes()[:100])
    assert refusal(place) == (
        f"{place}: facts/verdicts/{shard.name} is missing or half-written: delete "
        f"publications/{manifest(place).name}, and publish again from here"
    )


def test_publishing_again_after_the_remedy_mends_a_half_written_shard(place: Path) -> None:
    (shard,) = (place / "facts" / "verdicts").iterdir()
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100])
    manifest(place).unlink()
    publish(place.parent / "a", place)
    assert shard.read_bytes() == whole


def test_foreign_files_are_left_out_with_a_line(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "facts" / "verdicts" / "mine.parquet").write_bytes(b"mine")
    (place / "README").write_text("mine")
    with caplog.at_level(logging.WARNING), Ledger.read(place) as ledger:
        assert ledger.sql("select count(*) from verdicts").item() == 5
    assert caplog.messages == [
        f"ledger: {place}: README and 1 other files: no shards, left out; move them elsewhere"
    ]


def test_a_folder_without_publications_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "empty" / "publications").mkdir(parents=True)
    folder = tmp_path / "empty"
    assert refusal(folder) == (
        f"{folder}: nothing is published here; run `cudal1 publish {folder}` in the folder of a "
        "run, or correct the name"
    )


def test_a_publication_names_tables_rows_and_bytes(place: Path) -> None:
    found = json.loads(manifest(place).read_bytes())
    for shard in found["shards"]:
        assert (place / shard["name"]).stat().st_size == shard["num_bytes"]
        assert pl.read_parquet(place / shard["name"]).height == shard["num_rows"]
