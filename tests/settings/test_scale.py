"""Tests that settings of scale describe a possible division of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from cudal1.errors import ConfigError
from cudal1.settings.params import Params
from tests.train.runs import scale

PARAMS = Path(__file__).parents[2] / "params.yaml"


def test_one_process_computes_the_whole_batch_at_once() -> None:
    assert scale().passes(24, unit=8) == (24, 1)


def test_processes_share_a_batch_and_each_computes_its_part_in_passes() -> None:
    assert scale(processes=3, micro_batch=2).passes(24, unit=8) == (2, 4)


def test_a_micro_batch_larger_than_the_share_is_the_share() -> None:
    assert scale(processes=2, micro_batch=64).passes(24) == (12, 1)


def test_a_group_of_answers_is_not_split() -> None:
    with pytest.raises(ValueError, match=r"a batch of 3 cannot be split over scale\.processes: 2"):
        scale(processes=2).passes(24, unit=8)


def test_passes_have_one_size() -> None:
    with pytest.raises(ValueError, match=r"no multiple of scale\.micro_batch: 5"):
        scale(micro_batch=5).passes(24)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sharded": True}, "sharded over one process"),
        ({"sharded": True, "processes": 2, "adapter": {"rank": 2, "alpha": 4}}, "no shards"),
        ({"dtype": "bfloat16"}, "bfloat16 without an adapter"),
    ],
)
def test_a_contradiction_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        scale(**wrong)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("sft", "batch_size"),
        ("selfsup", "batch_size"),
        ("tuned", "batch_size"),
        ("rl", "prompts_per_step"),
        ("challenger", "prompts_per_step"),
    ],
)
def test_a_batch_that_cannot_be_split_is_named(section: str, key: str, tmp_path: Path) -> None:
    content = yaml.safe_load(PARAMS.read_text())
    content["scale"]["processes"] = 2
    content["rl"]["prompts_per_step"] = 4
    content[section][key] = 5
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=rf"{section}\.{key}: a batch of 5 cannot be split"):
        Params.load(file)
