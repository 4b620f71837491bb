"""Tests that one layer of the profile's model, in its full width, takes real steps."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from benchmarks.training.big_policy import Size, steps

pytestmark = pytest.mark.slow

NEEDED = 14 << 30


@pytest.mark.timeout(900)
@pytest.mark.skipif(psutil.virtual_memory().available < NEEDED, reason="needs 14 GiB")
def test_one_layer_of_the_coder_takes_two_steps(tmp_path: Path) -> None:
    size = Size(prompts=1, group=2, prompt_tokens=64, answer_tokens=8)
    found = steps("coder-7b", size, tmp_path, layers=1)
    hidden, mlp, heads = 3584, 18944, 512
    layer = 2 * hidden**2 + 2 * heads * hidden + 3 * mlp * hidden + 2 * hidden + hidden + 2 * heads
    assert found["num_parameters"] == layer + 2 * 152064 * hidden + hidden
    assert found["num_scored"] == 2
    assert {1, 2} <= {int(step) for step in found["steps"]}
    assert (tmp_path / "out" / "config.json").is_file()
