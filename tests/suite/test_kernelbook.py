"""Tests of KernelBook's rows as problems, on made-up rows of its form."""

from __future__ import annotations

import json
import types
from pathlib import Path

import polars as pl
import pytest

from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass, Problem, Unreadable
from cudal1.suite import kernelbook

ROW = {
    "entry_point": "SumAggregator",
    "triton_code": "",
    "python_code": """import torch
import torch.nn as nn


class SumAggregator(nn.Module):

    def __init__(self, dim, keep=False):
        super().__init__()
        self.dim, self.keep = dim, keep

    def forward(self, neighbor):
        return torch.sum(neighbor, dim=self.dim, keepdim=self.keep)


def get_inputs():
    return [torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[1], {'keep': True}]
""",
}


def load(path: Path) -> list[Problem]:
    return kernelbook.load(path, revision=None, device_class=DeviceClass.CPU, named="--suite")


def rows(folder: Path, *found: dict[str, str]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


def test_a_row_becomes_a_problem_with_arguments_by_their_places(tmp_path: Path) -> None:
    (problem,) = load(rows(tmp_path, ROW))
    module = types.ModuleType("problem")
    exec(problem.source, module.__dict__)
    assert module.get_init_inputs() == [1, True]
    made = module.Model(*module.get_init_inputs())
    assert made(*module.get_inputs()).shape == (4, 1, 4, 4)
    assert (problem.suite, problem.number, problem.name) == ("kernelbook", 1, "sumaggregator")


def test_arguments_may_be_a_plain_list(tmp_path: Path) -> None:
    plain = {**ROW, "python_code": ROW["python_code"].replace("[[1], {'keep': True}]", "[2]")}
    (problem,) = load(rows(tmp_path, plain))
    assert problem.source.endswith("return [2]\n")


def test_a_broken_row_costs_only_itself(tmp_path: Path) -> None:
    odd = {**ROW, "python_code": ROW["python_code"].replace("{'keep': True}", "{'dim': mock()}")}
    first, second = load(rows(tmp_path, odd, ROW))
    assert isinstance(first, Unreadable)
    assert first.flaw == "get_init_inputs returns no literals"
    assert not isinstance(second, Unreadable)


def test_a_folder_of_parquet_files_is_read(tmp_path: Path) -> None:
    pl.DataFrame([ROW]).write_parquet(tmp_path / "rows.parquet")
    assert len(load(tmp_path)) == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("absent.jsonl", None, "no such file"),
        ("rows.txt", "x", "is no Parquet or JSON file"),
        ("rows.jsonl", '{"code": 1}\n', "lacks entry_point, python_code"),
        ("rows.jsonl", "nothing\n", "cannot be loaded"),
    ],
)
def test_a_path_without_rows_is_refused_in_a_line(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SuiteError, match=said) as refused:
        load(tmp_path / name)
    assert "\n" not in str(refused.value)
