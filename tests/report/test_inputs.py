from __future__ import annotations

import polars as pl
import pytest
from pydantic import ValidationError


def test_a_missing_column_is_named(made):
    given = made.build({})
    frames = {name: getattr(given, name) for name in made.schemas}
    frames["steps"] = frames["steps"].drop("value")
    with pytest.raises(ValidationError, match=r"steps\s+.*no column value"):
        type(given)(provenance=given.provenance, **frames)


def test_columns_of_a_query_without_rows_get_their_types(made):
    given = made.build({})
    frames = {name: getattr(given, name) for name in made.schemas}
    frames["verdicts"] = pl.DataFrame(
        {name: [] for name in made.schemas["verdicts"]}, schema_overrides={"certified": pl.Null}
    )
    again = type(given)(provenance=given.provenance, **frames)
    assert again.verdicts.schema == made.schemas["verdicts"]


def test_further_columns_are_dropped(made):
    given = made.build({})
    frames = {name: getattr(given, name) for name in made.schemas}
    frames["flags"] = frames["flags"].with_columns(more=1)
    again = type(given)(provenance=given.provenance, **frames)
    assert "more" not in again.flags.columns
