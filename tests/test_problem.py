"""Tests that a problem's id depends on its source, and that sizes change nothing but constants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.errors import SuiteError
from cudal1.problem import NULL_MARK, DeviceClass, Problem, Split, resize

SOURCE = '''"""Größe: a comment with N = 5 in it."""
N = 16; M = (2,
     3)  # sizes
name = "ä"; K = 3
lr: float = 0.1


class Model:
    """Not a Modeller."""

    def forward(self, x):
        N = 4
        return Model, x, N
'''
VALUES = st.one_of(
    st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=3), st.booleans()
)


def _problem(**changes: object) -> Problem:
    given_fields = {
        "suite": "s",
        "level": 1,
        "number": 1,
        "name": "n",
        "split": Split.TRAIN,
        "device_class": DeviceClass.CPU,
        "revision": "r",
        "source": SOURCE,
    }
    return Problem.model_validate({**given_fields, **changes})


def _constants(source: str) -> dict[str, object]:
    space: dict[str, object] = {}
    exec(source, space)
    return {name: space[name] for name in ("N", "M", "K", "name")}


def test_a_problem_is_identified_by_its_source_alone() -> None:
    moved = _problem(suite="t", level=2, number=9, name="m", split=Split.HELDOUT, revision="q")
    assert moved.id == _problem().id != _problem(source=SOURCE + "\n").id


def test_a_key_gives_the_place_of_a_problem() -> None:
    assert _problem(number=7, level=2).key == "s/L2/07_n"


def test_the_null_candidate_is_the_reference_under_another_name() -> None:
    null = _problem().null_source
    assert "class ModelNew:" in null
    assert "Modeller" in null
    assert "ModelNewNew" not in null
    assert null.removesuffix(NULL_MARK).replace("ModelNew", "Model") == SOURCE


@given(st.dictionaries(st.sampled_from(["N", "M", "K", "name"]), VALUES))
def test_a_resized_source_has_the_new_constants_and_no_other_change(
    constants: dict[str, object],
) -> None:
    resized = resize(SOURCE, constants, where="file")
    assert _constants(resized) == {**_constants(SOURCE), **constants}
    original = {"N": 16, "M": (2, 3), "K": 3, "name": "ä"}
    back = resize(resized, {name: original[name] for name in constants}, where="file")
    assert "".join(back.split()).replace('"', "'") == "".join(SOURCE.split()).replace('"', "'")


def test_empty_sizes_leave_the_source_unchanged() -> None:
    assert resize(SOURCE, {}, where="file") == SOURCE


@pytest.mark.parametrize("name", ["Q", "lr", "forward"])
def test_only_top_level_constants_can_be_resized(name: str) -> None:
    with pytest.raises(SuiteError, match=f"^file: no top-level constant named {name} to resize$"):
        resize(SOURCE, {"N": 1, name: 2}, where="file")


def test_a_file_that_is_not_python_is_named_with_its_line() -> None:
    with pytest.raises(SuiteError, match=r"^file: not valid Python \(line 2: "):
        resize("x = 1\ny = = 2\n", {"x": 1}, where="file")
