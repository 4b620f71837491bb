"""Tests that a confirmed cheat's id depends on its source."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cudal1.hack_case import CaseOrigin, HackCase


def case(**changes: str) -> HackCase:
    given = {"kind": "cached_output", "source": "x = 1\n", "evidence": "it keeps", **changes}
    return HackCase(**given, origin=CaseOrigin.CONFIRMED)


def test_a_case_is_identified_by_its_source_alone() -> None:
    assert case().id == case(kind="side_stream", evidence="another").id
    assert case().id != case(source="x = 2\n").id


@pytest.mark.parametrize(
    "kind", ["", "Cached", "cached output", "_cached", "cached__output", "a-b"]
)
def test_a_kind_is_in_snake_case(kind: str) -> None:
    with pytest.raises(ValidationError):
        case(kind=kind)


@pytest.mark.parametrize("evidence", ["", " ", "two\nlines", "a\x1b[31m"])
def test_evidence_is_one_printable_line(evidence: str) -> None:
    with pytest.raises(ValidationError):
        case(evidence=evidence)


def test_a_source_is_kept_unchanged() -> None:
    source = "x = 'ä'\r\n\x00\t"
    assert HackCase.model_validate_json(case(source=source).model_dump_json()).source == source
