"""Fixtures: a policy of some ten thousand random parameters, and pairs that it can learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.train import pretraining
from cudal1.train.sft import Pair

WORDS = ("matrix", "vector", "scalar", "tensor", "kernel", "thread", "block", "warp")


@pytest.fixture(scope="session")
def pairs() -> list[Pair]:
    """Return eight questions of similar length with the answers to learn."""
    return [([{"role": "user", "content": f"say {word}"}], f"{word} {word}") for word in WORDS]


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> Path:
    """Make a read-only folder with an untrained model of one layer."""
    import torch

    torch.set_num_threads(1)
    architecture = pretraining.Architecture(
        vocabulary=320, hidden=32, layers=1, heads=1, kv_heads=1, mlp=64, context=256
    )
    texts = [
        pretraining.render([*prompt, {"role": "assistant", "content": answer}])
        for prompt, answer in pairs
    ]
    tokenizer = pretraining.build_tokenizer(texts * 4, architecture)
    model = pretraining.build_model(tokenizer, architecture, seed=0)
    out = tmp_path_factory.mktemp("policy") / "tiny"
    pretraining.save(model, tokenizer, out)
    return out
