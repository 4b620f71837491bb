"""Tests that a kill table names surviving mutants and gives the reason to reject a problem."""

from __future__ import annotations

import pytest

from cudal1.kill_table import KillTable, Mutant
from cudal1.protocol import PrecisionClass

KILLED = Mutant(name="zeros", killed=True, family="own", num_inputs=1)
SURVIVED = Mutant(name="stale", killed=False, num_inputs=32)
NONE = Mutant(name="shuffled", killed=None)


def table(*mutants: Mutant, refused: str | None = None) -> KillTable:
    return KillTable(
        problem_id="p", precision=PrecisionClass.STRICT, mutants=mutants, refused_reference=refused
    )


def test_a_table_without_survivors_rejects_nothing() -> None:
    assert table(KILLED, NONE).rejection is None


def test_the_reason_names_exactly_the_survivors() -> None:
    other = SURVIVED.model_copy(update={"name": "first_answer"})
    reason = table(KILLED, SURVIVED, NONE, other).rejection
    assert reason == "the check would let wrong candidates through: stale, first_answer"


def test_a_check_that_refuses_the_reference_rejects_the_problem() -> None:
    assert "input 3 (own)" in (table(KILLED, refused="input 3 (own)").rejection or "")


@pytest.mark.parametrize(
    "parts",
    [
        {"killed": True, "num_inputs": 1},
        {"killed": True, "family": "own"},
        {"killed": False, "family": "own", "num_inputs": 1},
        {"killed": None, "num_inputs": 1},
        {"killed": False},
    ],
)
def test_a_row_has_the_fields_of_its_outcome(parts: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="killed="):
        Mutant.model_validate({"name": "zeros", **parts})
