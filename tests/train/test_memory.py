"""Tests that training's memory is forecast exactly where possible, and measured on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cudal1.settings import profiles
from cudal1.settings.profiles import TrainingProfile
from cudal1.settings.scale import ScaleParams
from cudal1.train import memory
from cudal1.train.policy import config_of
from cudal1.train.sampling.draws import FreshDraw
from cudal1.train.sampling.rollouts import ROOM, Rollouts
from tests.train.runs import scale

ROOT = Path(__file__).parents[2]
LORA = scale(adapter={"rank": 4, "alpha": 8}, dtype="bfloat16")


@pytest.fixture(scope="module")
def tiny(tiny_policy: Path) -> memory.Architecture:
    return memory.architecture_of(config_of(str(tiny_policy)))


@pytest.fixture(scope="module")
def coder() -> memory.Architecture:
    """Return the profile's architecture: seven billion parameters, none of them in memory."""
    return memory.architecture_of(
        config_of(profiles.load("coder-7b", TrainingProfile).architecture)
    )


def trained(policy: Path, given: ScaleParams) -> tuple[Any, torch.optim.AdamW]:
    """Return a model after one step of AdamW."""
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
    """Return the bytes of the tensors that a forward pass saves, parameters left out."""
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
def test_the_forecast_of_activations_equals_the_tensors_that_a_pass_saves(rows: int) -> None:
    from transformers import AutoModelForCausalLM

    small = {
        **profiles.load("coder-7b", TrainingProfile).architecture,
        "hidden_size": 256,
        "vocab_size": 64,
        "intermediate_size": 1024,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    config = config_of(small)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
    tokens = torch.randint(64, (rows, 128))
    found = kept_for_the_gradient(model, tokens)
    told = memory.activations(
        memory.architecture_of(config),
        scale(dtype="float32").model_copy(update={"dtype": LORA.dtype}),
        tokens=tokens.numel(),
    )
    assert told == pytest.approx(found, rel=0.15)


def test_the_coder_has_the_number_of_parameters_that_its_maker_states(
    coder: memory.Architecture,
) -> None:
    assert coder.num_parameters == 7_615_616_512


def test_shards_divide_weights_gradients_and_states(coder: memory.Architecture) -> None:
    whole, parts = scale(), scale(processes=8, sharded=True)
    for part in (memory.weights, memory.gradients, memory.optimizer, memory.reference):
        assert part(coder, parts) == part(coder, whole) // 8


def test_checkpointing_needs_a_fraction_of_the_activations(coder: memory.Architecture) -> None:
    kept, again = (
        memory.activations(coder, scale(checkpointing=each), tokens=4096) for each in (False, True)
    )
    assert again < kept / 5


def test_an_adapter_needs_no_second_model(coder: memory.Architecture) -> None:
    assert memory.reference(coder, LORA) == 0
    assert memory.reference(coder, scale()) == 4 * coder.num_parameters


def told(
    model: memory.Architecture, given: ScaleParams, *, samples: bool = True
) -> memory.Estimate:
    work = memory.Work(rows=64, unit=8, tokens=4096, samples=samples, has_reference=True)
    return memory.estimate(model, given, work)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_sampling_server_saves_the_cache(coder: memory.Architecture, sharded: bool) -> None:
    given = scale(processes=8, sharded=sharded)
    there, here = (told(coder, given, samples=samples) for samples in (False, True))
    assert there.sampling == there.rollouts == 0
    assert here.sampling + here.rollouts > 0
    assert here.peak >= there.peak


def test_the_cache_has_keys_and_values_of_each_token_and_layer(coder: memory.Architecture) -> None:
    assert memory.cache(coder, rows=3, tokens=100) == 2 * 28 * 4 * 128 * 2 * 300


def test_a_sampler_keeps_a_cache_of_the_forecast_size(
    tiny: memory.Architecture, tiny_policy: Path
) -> None:
    """The policy is in bfloat16; its cache is still there after sampling."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(tiny_policy)
    sampler = Rollouts(
        FreshDraw(temperature=1.0, top_p=1.0), max_new_tokens=40, end_ids=[1], pad_id=0
    )
    sampler.sample(model, [[5] * 100, [6, 7]] * 2)
    kept = [(layer.keys, layer.values) for layer in sampler._decoder._cache.layers]  # pyright: ignore
    expected = memory.cache(tiny, rows=4, tokens=2 * ROOM)
    assert num_bytes(each for both in kept for each in both) == expected
    assert memory.rollouts(tiny, scale(), rows=4, tokens=140) > expected


def test_the_peak_includes_a_samplers_cache_while_the_policy_learns(
    coder: memory.Architecture,
) -> None:
    found = told(coder, LORA)
    learning = found.gradients + found.copies + found.activations
    assert found.peak >= found.weights + found.optimizer + found.rollouts + learning


def test_turns_need_a_smaller_cache_and_more_prompts_at_once(coder: memory.Architecture) -> None:
    one, two = (
        memory.estimate(
            coder,
            scale(),
            memory.Work(
                rows=64, unit=8, tokens=4096, samples=True, has_reference=False, turns=turns
            ),
        )
        for turns in (1, 2)
    )
    assert two.rollouts == memory.rollouts(coder, scale(), rows=32, tokens=4096) < one.rollouts
    assert two.sampling == memory.sampling(coder, scale(), rows=32, unit=1, tokens=4096)
    assert two.sampling > one.sampling


def test_a_sharded_policy_keeps_no_memory_of_sampling(coder: memory.Architecture) -> None:
    assert told(coder, scale(processes=8, sharded=True)).rollouts == 0


def test_the_forecast_peak_equals_the_allocation_on_an_h200() -> None:
    """The run is that of `benchmarks/results/big_policy.json`; its estimate is an earlier one."""
    measured = json.loads((ROOT / "benchmarks" / "results" / "big_policy.json").read_text())
    size = measured["size"]
    work = memory.Work(
        rows=size["prompts"] * size["group"],
        unit=size["group"],
        tokens=size["prompt_tokens"] + size["answer_tokens"],
        samples=True,
        has_reference=True,
    )
    coder = memory.architecture_of(
        config_of(profiles.load("coder-7b", TrainingProfile).architecture)
    )
    found = memory.estimate(coder, ScaleParams.model_validate(measured["scale"]), work)
    assert found.peak == pytest.approx(measured["measured_peak"], rel=0.02)
