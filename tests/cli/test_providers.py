"""Tests that ready providers go into params.yaml, and that nothing else changes there."""

from __future__ import annotations

import difflib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.settings.params import Params

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SHIPPED = Path(__file__).parents[2] / "params.yaml"


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(SHIPPED.read_text())
    return path


def test_adding_a_profile_only_adds_lines(run: Run, params: Path) -> None:
    done = run("providers", "add", "paper")
    assert done.returncode == 0, done.stderr
    before, after = SHIPPED.read_text().splitlines(), params.read_text().splitlines()
    changes = [line for line in difflib.ndiff(before, after) if line[0] in "-?"]
    assert changes == []
    assert {"gpt-4o", "fuser"} <= set(Params.load(params).generate.providers)


def test_one_entry_can_be_added(run: Run, params: Path) -> None:
    run("providers", "add", "paper", "--only", "o1")
    found = Params.load(params).generate.providers
    assert ("o1" in found, "gpt-4o" in found) == (True, False)


def test_an_existing_entry_stays_unchanged(run: Run, params: Path) -> None:
    run("providers", "add", "paper", "--only", "o1")
    params.write_text(params.read_text().replace("o1-2024-12-17", "o1-mine"))
    said = run("providers", "add", "paper").stdout
    assert "o1: is there already" in said
    assert "o1-mine" in params.read_text()


def test_the_list_marks_keys_that_are_set_and_shows_none(run: Run, params: Path) -> None:
    keys = {"OPENAI_API_KEY": "secret", "DEEPSEEK_API_KEY": " "}
    said = run("providers", "list", "--profile", "paper", **keys).stdout
    assert "OPENAI_API_KEY is set" in said
    assert "DEEPSEEK_API_KEY is NOT set" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "nobody"], "no profile nobody; there are paper"),
        (["add", "paper", "--only", "gpt-9"], "profile paper has no gpt-9; it has gpt-4o"),
        (["add", "paper", "--params", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["list", "--params", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_a_mistake_gives_one_line(run: Run, params: Path, arguments: list[str], words: str) -> None:
    done = run("providers", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert words in done.stderr


def test_json_output_holds_the_list(run: Run, params: Path) -> None:
    said = run("providers", "list", "--profile", "paper", "--json", OPENAI_API_KEY="secret").stdout
    found = {row["name"]: row for row in json.loads(said)}
    assert (found["gpt-4o"]["kind"], found["gpt-4o"]["key_is_set"]) == ("openai", True)
    assert "secret" not in said
    shipped = json.loads(run("providers", "list", "--json").stdout)
    assert {row["key_is_set"] for row in shipped} == {None}


def test_json_output_holds_the_added_entries(run: Run, params: Path) -> None:
    run("providers", "add", "paper", "--only", "o1")
    said = run("providers", "add", "paper", "--only", "o1", "--only", "gpt-4o", "--json").stdout
    assert json.loads(said) == {"added": ["gpt-4o"], "there_already": ["o1"]}
