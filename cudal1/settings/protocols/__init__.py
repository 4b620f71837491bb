"""The protocols that ship: `cpu`, `cuda`, and the paper's, each a YAML file beside this one.

They are for judging a module of one's own without a configuration. A pipeline's protocol is in its
params.yaml. docs/protocol.md explains the keys.
"""

from __future__ import annotations

from pathlib import Path

from cudal1.errors import ConfigError
from cudal1.protocol import EvalProtocol
from cudal1.settings.settings_file import read_settings

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the protocols that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name_or_path: str) -> EvalProtocol:
    """Return a protocol that ships, by name, or another one, by the path of its YAML file.

    Raises:
        ConfigError: there is none, or the file holds something that a protocol cannot hold.
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
