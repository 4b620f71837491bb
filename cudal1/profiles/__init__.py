"""Providers that ship as ready entries for params.yaml: one YAML file a profile, named for whom."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cudal1.errors import ConfigError
from cudal1.provider_settings import ProviderSettings
from cudal1.record import Record
from cudal1.settings_file import read_settings


class Profile(Record):
    """A file of this folder."""

    providers: dict[str, ProviderSettings]


def names() -> list[str]:
    """Profiles that ship."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def path_of(name: str) -> Path:
    """The file of a profile; its comments are for people.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in names():
        raise ConfigError(f"no profile {name}; there are {', '.join(names())}")
    return _folder() / f"{name}.yaml"


def load(name: str) -> Profile:
    """A profile, checked.

    Raises:
        ConfigError: there is none of that name.
    """
    return read_settings(path_of(name), Profile, remedy="install cudal1 again")


def _folder() -> Path:
    return Path(str(files("cudal1.profiles")))
