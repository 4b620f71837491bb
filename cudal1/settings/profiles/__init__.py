"""Profiles that ship for params.yaml, each a YAML file: providers, or settings for training."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from cudal1.errors import ConfigError
from cudal1.record import Record
from cudal1.settings.provider_settings import ProviderSettings
from cudal1.settings.settings_file import read_settings

_FOLDER = Path(str(files("cudal1.settings.profiles")))


class ProviderProfile(Record):
    """Providers, each named for the model that it stands for."""

    providers: dict[str, ProviderSettings]


class TrainingProfile(Record):
    """Settings for training a policy of a certain size."""

    architecture: dict[str, Any]
    """`config.json` of `params.policy.source`, as its maker publishes it."""
    params: dict[str, Any]
    """Keys of params.yaml, in their sections; all others stay unchanged."""


Profile = TypeVar("Profile", ProviderProfile, TrainingProfile)


def names(kind: type[Profile]) -> list[str]:
    """Return the profiles of a kind, which a file's keys at the top level show."""
    paths = sorted(_FOLDER.glob("*.yaml"))
    return [path.stem for path in paths if _keys(path) == kind.model_fields.keys()]


def path_of(name: str, kind: type[Profile]) -> Path:
    """Return the file of a profile; its comments are for people.

    Raises:
        ConfigError: there is none of that name and kind.
    """
    known = names(kind)
    if name not in known:
        raise ConfigError(f"no profile {name}; there are {', '.join(known)}")
    return _FOLDER / f"{name}.yaml"


def load(name: str, kind: type[Profile]) -> Profile:
    """Return a profile, checked.

    Raises:
        ConfigError: there is none of that name and kind.
    """
    return read_settings(path_of(name, kind), kind, remedy="install cudal1 again")


def _keys(path: Path) -> set[str]:
    return set(yaml.safe_load(path.read_text(encoding="utf-8")))
