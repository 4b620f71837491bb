"""Ready providers can be loaded, and none of them spends without a limit."""

from __future__ import annotations

import re

import pytest

from cudal1 import profiles
from cudal1.errors import ConfigError
from cudal1.params import ITEM_NAME
from cudal1.profiles import ProviderProfile, TrainingProfile
from cudal1.provider_settings import OpenAISettings


@pytest.mark.parametrize("name", profiles.names(ProviderProfile))
def test_a_profile_can_be_loaded(name: str) -> None:
    found = profiles.load(name, ProviderProfile).providers
    assert all(re.match(ITEM_NAME, key) for key in found)


def test_the_paper_s_six_authors_are_there_each_with_a_budget() -> None:
    found = profiles.load("paper", ProviderProfile).providers
    assert set(found) == {
        "gpt-4o", "o1", "deepseek-r1", "deepseek-v3", "llama-3-1-405b", "claude-3-7"
    }  # fmt: skip
    for settings in found.values():
        assert isinstance(settings, OpenAISettings)
        assert settings.budget_usd
        assert settings.api_key_env


def test_reasoning_models_are_sent_no_temperature() -> None:
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
