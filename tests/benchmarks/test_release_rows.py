"""Tests of reading a checkout of the authors' repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.release.rows import Which, choose, chosen_places, read
from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.harness.screen.sameness import is_copy
from cudal1.problem import NULL_MARK, DeviceClass
from cudal1.suite import kernelbench
from tests.benchmarks.release_checkout import REFERENCE, RIGHT, ROWS, row, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return write(tmp_path / "release", ROWS, {(1, 1): REFERENCE})


def test_a_row_without_code_has_no_source(checkout: Path) -> None:
    entries = read(checkout, "h100", Which.KERNELS)
    assert [entry.name for entry in entries if entry.source is None] == ["1:4"]
    assert len(entries) == len(ROWS)


@pytest.mark.parametrize("code", [None, "", "None", "None\n"])
def test_text_that_declares_the_absence_of_code_is_no_source(
    code: str | None, tmp_path: Path
) -> None:
    checkout = write(tmp_path / "release", [row(1, 1, code, score_default=3.0)], {(1, 1): "None"})
    (entry,) = read(checkout, "h100", Which.KERNELS)
    assert (entry.source, entry.claim) == (None, 3.0)
    assert read(checkout, "h100", Which.CUDA_GRAPH)[0].source is None


def test_a_row_has_its_claim_over_eager_mode(checkout: Path) -> None:
    assert read(checkout, "h100", Which.KERNELS)[0].claim == 2.0


def test_a_cuda_graph_is_a_candidate_and_its_claim_is_the_ratio_of_the_kernels_claims(
    checkout: Path,
) -> None:
    first, second, *_ = read(checkout, "h100", Which.CUDA_GRAPH)
    assert first.source is not None
    assert "class ModelNew(nn.Module)" in first.source
    assert first.claim == 2.0 / 1.6
    assert second.source is None


def test_a_reference_is_its_own_candidate_and_has_no_claim(checkout: Path) -> None:
    last = read(checkout, "h100", Which.REFERENCES)[-1]
    assert last.source == REFERENCE.replace("class Model(", "class ModelNew(") + NULL_MARK
    assert last.claim is None


def test_ids_equal_those_of_a_problem_read_from_a_file(tmp_path: Path) -> None:
    windows = REFERENCE.replace("\n", "\r\n")
    code = "# coding: latin-1\n" + RIGHT
    checkout = write(tmp_path / "release", [row(1, 1, code, ref_code=windows)], {})
    (entry,) = read(checkout, "h100", Which.KERNELS)
    file = tmp_path / "suite" / "level1" / "1_task.py"
    file.parent.mkdir(parents=True)
    file.write_text(entry.reference)
    (problem,) = kernelbench.load(
        file.parents[1], revision=None, sizes=None, device_class=DeviceClass.CPU
    )
    assert entry.problem_id == problem.id
    assert entry.source is not None
    assert entry.candidate_id == Candidate(problem_id=problem.id, source=entry.source).id


def test_rows_and_levels_can_be_chosen(checkout: Path) -> None:
    entries = read(checkout, "h100", Which.KERNELS)
    picked = choose(entries, places=chosen_places("1:1, 1:3"))
    assert [entry.name for entry in picked] == ["1:1", "1:3"]
    assert choose(entries, levels=[2]) == []


@pytest.mark.parametrize("text", ["1", "1:a", "1:2:3"])
def test_text_that_names_no_row_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match="must be LEVEL:NUMBER, such as 2:14"):
        chosen_places(text)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_text_without_a_row_does_not_mean_every_row(text: str) -> None:
    with pytest.raises(ConfigError, match="it names no place; give LEVEL:NUMBER, such as 2:14"):
        chosen_places(text)


def test_a_row_that_the_file_lacks_is_named(checkout: Path) -> None:
    with pytest.raises(ConfigError, match="--rows 3:9: the file has no such row"):
        choose(read(checkout, "h100", Which.KERNELS), places={(3, 9)})


def test_a_folder_that_is_not_a_checkout_is_refused_with_the_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --checkout a checkout of https"):
        read(tmp_path, "h100", Which.KERNELS)


def test_an_absent_kind_is_refused_with_the_present_ones(checkout: Path) -> None:
    with pytest.raises(ConfigError, match="--kind a100: must be of h100"):
        read(checkout, "a100", Which.KERNELS)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"h100\.json:5: not a line of JSON; give a whole checkout"),
        ('{"level_id": 1, "task_id": 9}', r"h100\.json:5: ref_code: field required"),
        ('{"level_id": 1, "task_id": 1, "ref_code": "x"}', r"h100\.json: 2 rows of 1:1"),
    ],
)
def test_a_line_that_is_not_a_row_is_named(checkout: Path, line: str, said: str) -> None:
    with (checkout / "optimized_cuda_code" / "h100.json").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ConfigError, match=said):
        read(checkout, "h100", Which.KERNELS)


def test_a_reference_against_itself_is_not_recognized_as_a_copy(tmp_path: Path) -> None:
    (entry,) = read(
        write(tmp_path / "release", [row(1, 1, RIGHT)], {(1, 1): REFERENCE}),
        "h100",
        Which.REFERENCES,
    )
    assert entry.source is not None
    assert "class ModelNew(" in entry.source
    assert not is_copy(entry.source, entry.reference)
