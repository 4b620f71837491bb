"""Tests of recording and replaying layers; the module itself stands in for the CUDA graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudal1.train.sampling.attention import drop_mask
from cudal1.train.sampling.recorded import RECORD_AT, Recorded

TOKENS = ((5, 9, 13, 22), (7, 3, 11, 2))


@pytest.fixture
def model(tiny_policy: Path) -> Any:
    from transformers import AutoModelForCausalLM

    made = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype="float32")
    drop_mask(made)
    return made.train()


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return the recorded shapes."""
    import torch

    made: list[tuple[int, ...]] = []

    def record(module: Any, arguments: tuple[Any, ...]) -> Any:
        assert not torch.is_autocast_cache_enabled()
        made.append(tuple(arguments[0].shape))
        return module

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    return made


def recorded(model: Any) -> Recorded:
    model.base_model.forward = Recorded(model.base_model)
    return model.base_model.forward


def gradients(model: Any, rows: Any) -> list[Any]:
    import torch

    tokens = torch.tensor(rows)
    model.zero_grad()
    made = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
    made.logits.square().mean().backward()
    return [weight.grad.clone() for weight in model.parameters()]


def test_a_shape_is_recorded_once_after_it_came_often(
    model: Any, recordings: list[tuple[int, ...]]
) -> None:
    layers = recorded(model)
    for _ in range(RECORD_AT - 1):
        gradients(model, TOKENS)
    gradients(model, TOKENS[:1])
    assert (recordings, layers.num_recordings) == ([], 0)
    for _ in range(3):
        gradients(model, TOKENS)
    assert (recordings, layers.num_recordings) == ([(2, 4)], 1)


def test_a_recording_gives_every_weight_the_same_gradient(
    model: Any, recordings: list[tuple[int, ...]]
) -> None:
    import torch

    expected = gradients(model, TOKENS)
    recorded(model)
    for _ in range(RECORD_AT):
        found = gradients(model, TOKENS)
    assert recordings
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_layers_that_cannot_be_recorded_run_unrecorded(
    model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    def refuse(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", refuse)
    layers = recorded(model)
    for _ in range(RECORD_AT + 1):
        gradients(model, TOKENS)
    assert layers.num_recordings == 0
    assert [record.getMessage() for record in caplog.records] == [
        "layers run unrecorded: operation not permitted when stream is capturing"
    ]


def test_no_layer_is_recorded_without_gradients(
    model: Any, recordings: list[tuple[int, ...]]
) -> None:
    import torch

    recorded(model)
    with torch.no_grad():
        for _ in range(RECORD_AT + 1):
            model(input_ids=torch.tensor(TOKENS), use_cache=False)
    assert recordings == []
