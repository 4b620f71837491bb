"""Changes params.yaml as a person would: comments, order and all other lines stay."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudal1.errors import ConfigError
from cudal1.files.text_file import read_text


def change(params: Path, how: Callable[[Any], None]) -> None:
    """Let `how` change the content, which is a mapping, and write it back, whole or not at all.

    Raises:
        ConfigError: it is not YAML, or cannot be written.
    """
    from ruamel.yaml import YAML, YAMLError

    yaml = YAML()  # keeps comments, and so told, lines and nulls as they are
    yaml.width = 4096
    yaml.representer.add_representer(
        type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    try:
        content = yaml.load(read_text(params))
    except YAMLError as error:
        raise ConfigError(f"{params}: not valid YAML ({' '.join(str(error).split())})") from error
    how(content)
    changed = io.StringIO()
    yaml.dump(content, changed)
    _write(params, changed.getvalue())


def _write(path: Path, text: str) -> None:
    """Replace the content of a file; a full disk leaves the old content in place."""
    path = path.resolve()  # a link stays one
    partial = path.with_name(f".{path.name}.partial")
    try:
        try:
            partial.write_text(text, encoding="utf-8")
            shutil.copymode(path, partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error


def read(path: Path) -> Any:
    """Return a YAML file of ours with its comments, to be put into another."""
    from ruamel.yaml import YAML

    return YAML().load(path.read_text(encoding="utf-8"))
