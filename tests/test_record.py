"""Tests that records are frozen and closed, and that content ids change with content alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cudal1.record import Record, content_id

ANY_TEXT = st.text(st.characters(codec=None), max_size=8)


class Fact(Record):
    """A record for these tests."""

    name: str
    size: float


def test_a_record_cannot_be_changed() -> None:
    fact = Fact(name="a", size=1)
    with pytest.raises(ValidationError):
        fact.size = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_a_record_refuses_unknown_fields() -> None:
    with pytest.raises(ValidationError):
        Fact.model_validate({"name": "a", "size": 1, "colour": "red"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_holds_finite_numbers_only(value: float) -> None:
    with pytest.raises(ValidationError):
        Fact(name="a", size=value)


def test_a_record_survives_json() -> None:
    fact = Fact(name="ä\n", size=0.1)
    assert Fact.model_validate_json(fact.model_dump_json()) == fact


def test_a_content_id_is_the_same_in_every_version() -> None:
    assert content_id("torch", "relu") == "225bca555baaae2b"


@given(st.lists(ANY_TEXT, max_size=4), st.lists(ANY_TEXT, max_size=4))
def test_content_ids_are_equal_exactly_when_all_parts_are(one: list[str], other: list[str]) -> None:
    assert (content_id(*one) == content_id(*other)) == (one == other)


def test_a_content_id_depends_on_the_ends_of_parts() -> None:
    assert len({content_id("ab", "c"), content_id("a", "bc"), content_id("abc")}) == 3


def test_a_content_id_accepts_text_that_is_not_valid_unicode() -> None:
    assert content_id("\ud800") != content_id("\ud801")
