"""The protocols that ship: `cpu`, `cuda`, and the paper's, each a YAML file beside this one.

They are for whoever judges a module of their own and has configured nothing. A pipeline's protocol
is in its params.yaml. What the keys mean: docs/protocol.md.
"""

from __future__ import annotations

from pathlib import Path

from cudal1.errors import ConfigError
from cudal1.protocol import EvalProtocol
from cudal1.settings_file import read_settings

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The protocols that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name_or_path: str) -> EvalProtocol:
    """A protocol that ships, by name, or anybody's, by the path of its YAML file.

    Raises:
        ConfigError: there is none, or the file says something that a protocol cannot say.
    """
    if name_or_path in names():
        return read_settings(FOLDER / f"{name_or_path}.yaml", EvalProtocol, remedy="reinstall")
    path = Path(name_or_path)
    if not path.suffix and not path.exists():
        raise ConfigError(
            f"no protocol {name_or_path}: give one of {', '.join(names())}, or a YAML file like "
            f"those in {FOLDER}"
        )
    remedy = f"give one of {', '.join(names())}, or a YAML file like those in {FOLDER}"
    return read_settings(path, EvalProtocol, remedy=remedy)
