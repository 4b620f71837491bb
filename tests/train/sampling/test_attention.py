"""Tests of learning without a mask from rows padded on the right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudal1.train.sampling.attention import CAUSAL, avoid_cudnn, drop_mask
from cudal1.train.sft import Pair, SftSettings, train_sft
from tests.train.runs import scale

ROWS = ([5, 9, 13, 22, 17, 30, 8], [7, 3, 11], [40, 41, 42, 43, 44])


@pytest.fixture
def model(tiny_policy: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_policy, dtype="float32")


def loss(model: Any, rows: Any) -> Any:
    """Return the mean loss over the tokens of all rows, padded on the right."""
    import torch

    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    labels = tokens.masked_fill(mask == 0, -100)
    return model(input_ids=tokens, attention_mask=mask, labels=labels).loss


def test_the_loss_of_a_padded_batch_equals_that_of_its_single_rows(model: Any) -> None:
    counts = [len(row) - 1 for row in ROWS]
    alone = [loss(model, [row]).item() for row in ROWS]
    expected = sum(a * b for a, b in zip(counts, alone, strict=True)) / sum(counts)
    masked = loss(model, ROWS).item()
    drop_mask(model)
    assert model.config._attn_implementation == CAUSAL
    assert loss(model, ROWS).item() == pytest.approx(expected, rel=1e-6)
    assert masked == pytest.approx(expected, rel=1e-6)


def test_the_gradients_equal_those_of_the_masked_batch(model: Any) -> None:
    import torch

    loss(model, ROWS).backward()
    masked = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    drop_mask(model)
    loss(model, ROWS).backward()
    for weight, expected in zip(model.parameters(), masked, strict=True):
        assert torch.allclose(weight.grad, expected, atol=1e-6)


@pytest.mark.slow
def test_a_trained_policy_does_not_mention_our_attention(
    tiny_policy: Path, tmp_path: Path, pairs: list[Pair]
) -> None:
    from transformers import AutoModelForCausalLM

    train_sft(
        tiny_policy,
        tmp_path / "out",
        pairs,
        SftSettings(
            steps=1,
            batch_size=2,
            loss="nll",
            learning_rate=0.01,
            warmup_steps=0,
            max_tokens=128,
            checkpoint_every=5,
            seed=3,
            scale=scale(),
        ),
        work=tmp_path / "work",
        on_log=lambda step, values: None,
    )
    assert CAUSAL not in (tmp_path / "out" / "config.json").read_text()
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config._attn_implementation == (
        "sdpa"
    )


@pytest.mark.parametrize("width", [704, 1472])
def test_low_scores_behind_a_mask_have_a_gradient(width: int) -> None:
    """The gradient of cuDNN is NaN at these widths."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    avoid_cudnn()
    size = 64
    low = torch.zeros(1, 1, width, size, dtype=torch.bfloat16, device="cuda")
    queries, keys, values = (low.clone() for _ in range(3))
    queries[..., 0], keys[..., 0] = 1.0, -120 * size**0.5
    values.normal_()
    mask = torch.ones(1, 1, width, width, dtype=torch.bool, device="cuda").tril()
    queries.requires_grad_()
    scaled_dot_product_attention(queries, keys, values, attn_mask=mask).sum().backward()
    assert queries.grad is not None
    assert queries.grad.isfinite().all()
