"""Tests that stage `problems` leaves out unusable problems, each with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.project import Project

pytestmark = pytest.mark.slow

SOUND = """import torch
import torch.nn as nn

size = 32


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(8, size)]


def get_init_inputs():
    return []
"""
LOOSE = SOUND.replace("torch.relu(x)", "torch.tanh(x) + 1e-9")


def _only_these(params: dict[str, Any]) -> None:
    params["problems"].update(
        source="kernelbench",
        path="kb",
        split="none",
        levels=[1],
        generated_train=0,
        generated_heldout=0,
    )


def test_a_problem_with_a_survivor_is_left_out_and_its_kill_table_is_kept(
    fresh_project: Project,
) -> None:
    folder = fresh_project.folder / "kb" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Sound.py").write_text(SOUND)
    (folder / "2_Loose.py").write_text(LOOSE)
    (folder / "3_Lower.py").write_text(SOUND.replace("randn(8, size)", "randn(size, size).tril()"))

    fresh_project.edit_params(_only_these)
    said = fresh_project.run("tasks.problems").stdout

    assert "02_loose rejected: the check would let wrong candidates through: last_operator" in said
    assert fresh_project.metrics("problems")["num_admitted"] == 2
    query = "select name, invariants from problems order by number"
    rows = fresh_project.run("cudal1.cli", "sql", query, "--json").stdout
    assert [row["invariants"] for row in json.loads(rows)] == [
        [],
        [],
        ["input 0: lower triangular"],
    ]
    query = "select name, mutant from mutants join problems using (problem_id) where not killed"
    rows = fresh_project.run("cudal1.cli", "sql", query, "--json").stdout
    assert '[{"name": "loose", "mutant": "last_operator"}]' in rows


def test_broken_files_of_a_checkout_are_rejected_one_by_one_with_their_reasons(
    fresh_project: Project,
) -> None:
    folder = fresh_project.folder / "kb" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Sound.py").write_text(SOUND)
    (folder / "2_Latin.py").write_bytes(SOUND.encode() + b"# \xe9\n")
    (folder / "3_Null.py").write_text(f"{SOUND}\0")
    (folder / "4_Cut.py").write_text(SOUND[:100])
    fresh_project.edit_params(_only_these)

    said = fresh_project.run("tasks.problems").stdout

    assert "02_latin rejected: not UTF-8 text (byte " in said
    assert "03_null rejected: not Python: it holds a null byte" in said
    assert "04_cut rejected: is not valid Python" in said
    assert fresh_project.metrics("problems")["num_admitted"] == 1
    query = "select name, rejection from problems where not admitted order by number"
    rows = json.loads(fresh_project.run("cudal1.cli", "sql", query, "--json").stdout)
    assert [row["name"] for row in rows] == ["latin", "null", "cut"]
    assert all(row["rejection"] for row in rows)
