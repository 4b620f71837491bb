"""Every attack of the corpus is in one family, and no family names what is not there."""

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
    text = (common.ROOT / "benchmarks" / "attack_families.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["files"]


def test_the_families_share_out_the_attacks_of_the_corpus(families: dict[str, list[str]]) -> None:
    named = Counter(chain.from_iterable(families.values()))
    folders = (HARNESS / "exploits", HARNESS / "exploits_cuda")
    there = {path.stem for folder in folders for path in folder.glob("*.py")}
    assert named == Counter(there)
