"""Tests that every attack of the corpus is in one family, and that every name in one exists."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import yaml

from benchmarks import common

HARNESS = Path(__file__).parents[1] / "harness"


@pytest.fixture(scope="module")
def families() -> dict[str, list[str]]:
    text = (common.ROOT / "benchmarks" / "answers" / "attack_families.yaml").read_text(
        encoding="utf-8"
    )
    return yaml.safe_load(text)["files"]


def test_each_attack_of_the_corpus_is_in_one_family(families: dict[str, list[str]]) -> None:
    named = Counter(chain.from_iterable(families.values()))
    folders = (HARNESS / "exploits", HARNESS / "exploits_cuda")
    there = {path.stem for folder in folders for path in folder.glob("*.py")}
    assert named == Counter(there)
