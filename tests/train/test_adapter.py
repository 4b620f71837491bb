"""Tests of LoRA: few weights move, and the saved policy has them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudal1.settings.scale import ScaleParams
from cudal1.train import grpo as grpo_module
from cudal1.train.policy import Sampler, fingerprint
from cudal1.train.sft import Pair
from tests.train.runs import World, grpo, scale, sft

LORA = scale(adapter={"rank": 4, "alpha": 8}, checkpointing=True, micro_batch=2)


@pytest.fixture(scope="module")
def learned(
    tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]
) -> tuple[Path, dict[int, float], str]:
    """Return a policy fine-tuned with an adapter, its losses, and the base's earlier state."""
    before, folder = fingerprint(tiny_policy), tmp_path_factory.mktemp("lora")
    _, losses = sft(tiny_policy, folder, pairs, scale=LORA, steps=40, learning_rate=0.03)
    return folder / "out", losses, before


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_the_loss_of_an_adapter_falls(learned: tuple[Path, dict[int, float], str]) -> None:
    _, losses, _ = learned
    assert losses[40] < losses[20] < losses[5] - 0.1


def test_the_merged_policy_has_the_bases_names_and_no_others(
    learned: tuple[Path, dict[int, float], str], tiny_policy: Path
) -> None:
    assert set(weights(learned[0])) == set(weights(tiny_policy))
    assert not (learned[0] / "adapter_config.json").exists()


def test_only_linear_layers_change(
    learned: tuple[Path, dict[int, float], str], tiny_policy: Path
) -> None:
    before, after = weights(tiny_policy), weights(learned[0])
    moved = {name for name in before if not after[name].float().equal(before[name].float())}
    assert moved == {name for name in before if name.endswith("proj.weight")}


def test_the_base_stays_unchanged(
    learned: tuple[Path, dict[int, float], str], tiny_policy: Path
) -> None:
    assert fingerprint(tiny_policy) == learned[2]


def test_the_merged_policy_answers_as_the_adapted_one(
    learned: tuple[Path, dict[int, float], str], tiny_policy: Path, pairs: list[Pair]
) -> None:
    """Loaded without peft, the policy has the loss that was logged."""
    chats = [prompt for prompt, _ in pairs]
    drawn = {"temperature": 0.0, "top_p": 1.0, "max_new_tokens": 16, "seed": 1, "batch_size": 8}
    before, after = (
        [answer.text for answer in Sampler(folder).sample(chats, **drawn)]
        for folder in (tiny_policy, learned[0])
    )
    assert before != after


@pytest.mark.slow
def test_the_first_step_has_no_divergence_from_the_base(tiny_policy: Path, tmp_path: Path) -> None:
    """KL is measured against the model with its adapter off; B begins as zero."""
    logs = grpo(tiny_policy, tmp_path, World(), scale=_alone(LORA), learning_rate=0.1, beta=0.1)
    kl = [values["kl"] for _, values in logs if "kl" in values]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[1] > 1e-5


@pytest.mark.slow
def test_there_is_no_second_model_in_memory(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    ours = grpo_module._trainer_class()

    class Watched(ours):
        def train(self, **given: Any) -> Any:
            seen.append(self.ref_model)
            return super().train(**given)

    monkeypatch.setattr(grpo_module, "_trainer_class", lambda: Watched)
    grpo(tiny_policy, tmp_path, World(), scale=_alone(LORA), steps=1)
    assert seen == [None]


def _alone(given: ScaleParams) -> ScaleParams:
    return given.model_copy(update={"processes": 1})
