"""What training takes is told exactly where it can be, and measured on a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cudal1 import profiles
from cudal1.scale import ScaleParams
from cudal1.train import memory
from cudal1.train.policy import config_of
from tests.train.runs import scale

LORA = scale(adapter={"rank": 4, "alpha": 8}, dtype="bfloat16")


@pytest.fixture(scope="module")
def tiny(tiny_policy: Path) -> memory.Architecture:
    return memory.architecture_of(config_of(str(tiny_policy)))


@pytest.fixture(scope="module")
def coder() -> memory.Architecture:
    """The profile's: seven billion parameters, none of them in memory."""
    return memory.architecture_of(config_of(profiles.load_training("coder-7b").architecture))


def trained(policy: Path, given: ScaleParams) -> tuple[Any, torch.optim.AdamW]:
    """A model after one step of AdamW."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    from cudal1.train import scaling

    model: Any = AutoModelForCausalLM.from_pretrained(
        policy, dtype=getattr(torch, given.dtype.value)
    )
    if given.adapter is not None:
        model = get_peft_model(model, scaling.adapter(given))
    moving = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(moving)
    model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    adam.step()
    return model, adam


def num_bytes(tensors: Any) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


@pytest.mark.parametrize("given", [scale(), LORA], ids=["full", "adapter"])
def test_weights_gradients_and_optimiser_states_are_counted_exactly(
    tiny: memory.Architecture, tiny_policy: Path, given: ScaleParams
) -> None:
    model, adam = trained(tiny_policy, given)
    assert memory.weights(tiny, given) == num_bytes(model.parameters())
    with_gradient = [p.grad for p in model.parameters() if p.grad is not None]
    assert memory.gradients(tiny, given) == num_bytes(with_gradient)
    states = [s for each in adam.state.values() for name, s in each.items() if name != "step"]
    assert memory.optimizer(tiny, given) == num_bytes(states)


def kept_for_the_gradient(model: Any, tokens: torch.Tensor) -> int:
    """Bytes of the tensors that a forward pass saves, parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in parameters:
            saved[place] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model(input_ids=tokens, use_cache=False).last_hidden_state.sum()
    return sum(each.untyped_storage().nbytes() for each in saved.values())


@pytest.mark.parametrize("rows", [1, 3])
def test_activations_are_those_that_a_pass_keeps(rows: int) -> None:
    from transformers import AutoModelForCausalLM

    small = {
        **profiles.load_training("coder-7b").architecture, "hidden_size": 256, "vocab_size": 64,
        "intermediate_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }  # fmt: skip
    config = config_of(small)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
    tokens = torch.randint(64, (rows, 128))
    found = kept_for_the_gradient(model, tokens)
    told = memory.activations(
        memory.architecture_of(config),
        scale(dtype="float32").model_copy(update={"dtype": LORA.dtype}), tokens=tokens.numel(),
    )  # fmt: skip
    assert told == pytest.approx(found, rel=0.15)


def test_the_coder_has_as_many_parameters_as_its_maker_says(coder: memory.Architecture) -> None:
    assert coder.num_parameters == 7_615_616_512


def test_shards_divide_weights_gradients_and_states(coder: memory.Architecture) -> None:
    whole, parts = scale(), scale(processes=8, sharded=True)
    for part in (memory.weights, memory.gradients, memory.optimizer, memory.reference):
        assert part(coder, parts) == part(coder, whole) // 8


def test_checkpointing_takes_a_fraction(coder: memory.Architecture) -> None:
    kept, again = (
        memory.activations(coder, scale(checkpointing=each), tokens=4096) for each in (False, True)
    )
    assert again < kept / 5


def test_an_adapter_needs_no_second_model(coder: memory.Architecture) -> None:
    assert memory.reference(coder, LORA) == 0
    assert memory.reference(coder, scale()) == 4 * coder.num_parameters


def test_a_server_that_samples_saves_the_cache(coder: memory.Architecture) -> None:
    def told(samples: bool) -> memory.Estimate:
        work = memory.Work(rows=64, unit=8, tokens=4096, samples=samples, has_reference=True)
        return memory.estimate(coder, scale(processes=8, sharded=True), work)

    assert told(False).sampling == 0
    assert told(True).peak >= told(False).peak


def test_the_cache_has_keys_and_values_of_each_token_and_layer(
    coder: memory.Architecture,
) -> None:
    one, two = (memory.sampling(coder, LORA, rows=1, tokens=each * 100_000) for each in (1, 2))
    reading = (2 * 3584 + 3 * 18944) * 2
    assert two - one == 100_000 * (2 * 28 * 4 * 128 * 2 + reading)
