"""params.yaml, changed as a person would: comments, order and all other lines stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudal1.errors import ConfigError


def change(params: Path, how: Callable[[Any], None]) -> None:
    """Let `how` change the content, which is a mapping, and write it back.

    Raises:
        ConfigError: it is not YAML.
    """
    from ruamel.yaml import YAML, YAMLError

    yaml = YAML()  # keeps comments, and so told, lines and nulls as they are
    yaml.width = 4096
    yaml.representer.add_representer(
        type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    try:
        content = yaml.load(params.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ConfigError(f"{params}: not valid YAML ({' '.join(str(error).split())})") from error
    how(content)
    with params.open("w", encoding="utf-8") as stream:
        yaml.dump(content, stream)


def read(path: Path) -> Any:
    """A YAML file of ours with its comments, to be put into another."""
    from ruamel.yaml import YAML

    return YAML().load(path.read_text(encoding="utf-8"))
