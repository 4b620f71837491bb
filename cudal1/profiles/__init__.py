"""What ships ready for params.yaml, a YAML file a profile: providers, or settings for training."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from cudal1.errors import ConfigError
from cudal1.provider_settings import ProviderSettings
from cudal1.record import Record
from cudal1.settings_file import read_settings

_REMEDY = "install cudal1 again"


class Profile(Record):
    """Providers, named for whom they imitate."""

    providers: dict[str, ProviderSettings]


class TrainingProfile(Record):
    """How to train a policy of a certain size."""

    architecture: dict[str, Any]
    """`config.json` of `params.policy.source`, as its maker publishes it."""
    params: dict[str, Any]
    """Keys of params.yaml, in their sections; all others stay as they are."""


def names() -> list[str]:
    """Profiles of providers."""
    return _those_with("providers")


def training_names() -> list[str]:
    """Profiles for training."""
    return _those_with("architecture")


def path_of(name: str) -> Path:
    """The file of a profile of providers; its comments are for people.

    Raises:
        ConfigError: there is none of that name.
    """
    return _path(name, names())


def load(name: str) -> Profile:
    """A profile of providers, checked.

    Raises:
        ConfigError: there is none of that name.
    """
    return read_settings(path_of(name), Profile, remedy=_REMEDY)


def training_path_of(name: str) -> Path:
    """The file of a profile for training.

    Raises:
        ConfigError: there is none of that name.
    """
    return _path(name, training_names())


def load_training(name: str) -> TrainingProfile:
    """A profile for training, checked.

    Raises:
        ConfigError: there is none of that name.
    """
    return read_settings(training_path_of(name), TrainingProfile, remedy=_REMEDY)


def _path(name: str, known: list[str]) -> Path:
    if name not in known:
        raise ConfigError(f"no profile {name}; there are {', '.join(known)}")
    return _folder() / f"{name}.yaml"


def _those_with(key: str) -> list[str]:
    paths = sorted(_folder().glob("*.yaml"))
    return [path.stem for path in paths if key in yaml.safe_load(path.read_text(encoding="utf-8"))]


def _folder() -> Path:
    return Path(str(files("cudal1.profiles")))
