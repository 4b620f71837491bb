"""Tests of steps with a gradient that is not finite."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import TrainingError
from cudal1.train import sft as sft_module
from cudal1.train.finite import MOST_IN_A_ROW
from cudal1.train.sft import Pair
from tests.train.runs import sft

pytestmark = pytest.mark.slow


class Spoiling:
    """A maker of a callback that puts one NaN, or infinity, in the gradients of some steps."""

    def __init__(self, steps: set[int], value: float) -> None:
        self._steps = steps
        self._value = value

    def __call__(self, given: Any) -> Any:
        from transformers import TrainerCallback

        spoiler = self

        class _Spoil(TrainerCallback):
            def on_pre_optimizer_step(
                self, args: Any, state: Any, control: Any, model: Any = None, **others: Any
            ) -> None:
                if state.global_step + 1 in spoiler._steps:
                    next(model.parameters()).grad[0, 0] = spoiler._value
                given.on_pre_optimizer_step(args, state, control, model=model, **others)

        return _Spoil()


def spoil(monkeypatch: pytest.MonkeyPatch, steps: set[int], value: float) -> None:
    make = sft_module.finite_callback
    monkeypatch.setattr(sft_module, "finite_callback", lambda: Spoiling(steps, value)(make()))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_without_a_finite_gradient_is_skipped_and_reported(
    tiny_policy: Path,
    tmp_path: Path,
    pairs: list[Pair],
    value: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from safetensors.torch import load_file

    spoil(monkeypatch, {2}, value)
    with caplog.at_level(logging.WARNING, "cudal1"):
        sft(tiny_policy, tmp_path, pairs, steps=4)
    assert [record.getMessage() for record in caplog.records] == [
        "step 2: its gradient is not finite; it is left out"
    ]
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert all(weight.isfinite().all() for weight in weights.values())


def test_a_skipped_step_changes_no_weight(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, {3}, float("nan"))
    sft(tiny_policy, tmp_path, pairs, steps=3, checkpoint_every=1)
    before, after = (
        (tmp_path / "work" / f"checkpoint-{step}" / "model.safetensors").read_bytes()
        for step in (2, 3)
    )
    assert before == after


def test_training_ends_where_no_gradient_is_finite(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, set(range(2, 2 + MOST_IN_A_ROW)), float("nan"))
    with pytest.raises(TrainingError, match=r"^step 4: no finite gradient 3 steps in a row; lower"):
        sft(tiny_policy, tmp_path, pairs, steps=8)
