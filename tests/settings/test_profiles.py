"""Tests that profiles load, fit the shipped files, and never spend without a limit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cudal1.errors import ConfigError
from cudal1.protocol import EvalProtocol
from cudal1.settings import profiles, protocols
from cudal1.settings.names import ITEM_NAME
from cudal1.settings.params import Params
from cudal1.settings.profiles import ProviderProfile, TrainingProfile
from cudal1.settings.provider_settings import OpenAISettings
from cudal1.settings.settings_file import read_settings

ROOT = Path(__file__).parents[2]
ON_A_GPU = [
    name
    for name in profiles.names(TrainingProfile)
    if profiles.load(name, TrainingProfile).params.get("device") == "cuda"
]


@pytest.mark.parametrize("name", profiles.names(ProviderProfile))
def test_a_profile_can_be_loaded(name: str) -> None:
    found = profiles.load(name, ProviderProfile).providers
    assert all(re.match(ITEM_NAME, key) for key in found)


def test_the_paper_s_six_authors_have_a_profile_each_with_a_budget() -> None:
    found = profiles.load("paper", ProviderProfile).providers
    assert set(found) == {
        "gpt-4o",
        "o1",
        "deepseek-r1",
        "deepseek-v3",
        "llama-3-1-405b",
        "claude-3-7",
    }
    for settings in found.values():
        assert isinstance(settings, OpenAISettings)
        assert settings.budget_usd
        assert settings.api_key_env


def test_reasoning_models_get_no_temperature() -> None:
    found = profiles.load("paper", ProviderProfile).providers
    for name in ("o1", "deepseek-r1"):
        settings = found[name]
        assert isinstance(settings, OpenAISettings)
        assert settings.temperature is None


def test_an_unknown_profile_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no profile nobody; there are .*paper"):
        profiles.load("nobody", ProviderProfile)


def test_a_profile_is_of_one_kind() -> None:
    assert not set(profiles.names(ProviderProfile)) & set(profiles.names(TrainingProfile))
    with pytest.raises(ConfigError, match=r"no profile coder-7b; there are .*paper"):
        profiles.load("coder-7b", ProviderProfile)


@pytest.mark.parametrize("name", profiles.names(TrainingProfile))
def test_params_with_a_training_profile_are_valid(name: str) -> None:
    over = profiles.load(name, TrainingProfile).params
    assert read_settings(ROOT / "params.yaml", Params, remedy="", over=over)


def test_there_are_profiles_for_one_gpu_and_for_eight() -> None:
    found = {name: profiles.load(name, TrainingProfile).params["scale"] for name in ON_A_GPU}
    assert {name: scale["processes"] for name, scale in found.items()} == {
        "coder-7b": 8,
        "one-gpu": 1,
    }


@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_profile_for_gpus_judges_under_the_shipped_protocol_for_rewards(name: str) -> None:
    said = profiles.load(name, TrainingProfile).params["protocol"]
    assert EvalProtocol.model_validate(said) == protocols.load("cuda-quick")


def test_the_profile_for_one_gpu_knows_the_embedded_policy() -> None:
    config = json.loads((ROOT / "cudal1" / "train" / "embedded" / "config.json").read_text())
    assert profiles.load("one-gpu", TrainingProfile).architecture == config
