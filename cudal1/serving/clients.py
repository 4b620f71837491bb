"""The clients of the server: their tokens, hashed, and their limits, in one YAML file.

A token has 256 random bits and is shown once. The file holds its SHA-256, from which no token can
be guessed, so a slow hash is not needed. All hashes are compared, each in constant time: how long
the search takes says nothing about them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from pydantic import Field, ValidationError

from cudal1.errors import ConfigError
from cudal1.files.text_file import mode_of, read_yaml
from cudal1.record import Record

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
TOKEN_BYTES = 32
"""Random bytes of a token."""
OTHERS_MAY_WRITE = 0o022


class Client(Record):
    """A client and what it may do."""

    name: str = Field(pattern=rf"^{NAME.pattern}$")
    token_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the token, in hexadecimal."""
    requests_per_minute: int = Field(default=1200, ge=1)
    max_bytes: int = Field(default=2 << 20, ge=1024, le=64 << 20)
    """Bytes of one request."""
    max_waiting: int = Field(default=1000, ge=1)
    """Submissions that may wait for a verdict at a time."""
    max_open: int = Field(default=32, ge=1)
    """Requests that may be open at a time: waiting for a verdict, or streaming."""
    share: float = Field(default=1.0, gt=0)
    """Weight of the client where several want the devices."""
    own_problems: bool = False
    """True if it may submit problems. A problem runs as the server's user, without a sandbox."""
    metrics: bool = False
    """True if it may read `/metrics`, which counts all clients' work."""


class Clients:
    """The clients of a file; the file is read again when it has changed.

    Args:
        path: the file, which `add_token` writes.

    Raises:
        ConfigError: it is absent, holds no client, is not of the form, or others may write to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _stamp(path)
        self.all = _load(path)

    def find(self, token: str) -> Client | None:
        """Return the client of a token; None for all other texts."""
        given = digest_of(token)
        found = None
        for client in self.all:
            if hmac.compare_digest(client.token_sha256, given):
                found = client
        return found

    def knows(self, client: Client) -> bool:
        """Return whether the client's token is still in the file."""
        return any(each.token_sha256 == client.token_sha256 for each in self.all)

    def refresh(self) -> bool:
        """Read the file again if it has changed; return whether it was read.

        Raises:
            ConfigError: as at the start; the clients stay as they were.
        """
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return False
        self._seen = stamp
        self.all = _load(self._path)
        return True


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token, in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def add_token(path: Path, name: str) -> str:
    """Add a client to the file, which is made if it is absent; return its token.

    Raises:
        ConfigError: the name is no name, or is taken, or the file cannot be used.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"--new-token {name}: not a name; use up to 32 lower-case letters, digits, - and _"
        )
    known = _load(path) if path.exists() else ()
    if any(client.name == name for client in known):
        raise ConfigError(
            f"--new-token {name}: {path} has this client; remove its lines for another token"
        )
    token = secrets.token_urlsafe(TOKEN_BYTES)
    lines = f"{name}:\n  token_sha256: '{digest_of(token)}'\n"  # digits alone are a number
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    return token


def _load(path: Path) -> tuple[Client, ...]:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; make it with cudal1 serve --new-token NAME")
    if mode_of(path) & OTHERS_MAY_WRITE:
        raise ConfigError(f"{path}: others may write to it; chmod 600 {path}")
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"{path}: holds no client; add one with cudal1 serve --new-token NAME")
    found: list[Client] = []
    for name, settings in content.items():
        try:
            found.append(Client(name=name, **(settings if isinstance(settings, dict) else {})))
        except (ValidationError, TypeError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else None
            where = ".".join(map(str, first["loc"])) if first else "its settings"
            said = first["msg"].lower() if first else "have keys that are no text"
            raise ConfigError(f"{path}: {name}: {where}: {said}") from error
    if len({client.token_sha256 for client in found}) < len(found):
        raise ConfigError(f"{path}: two clients have one token; give each its own")
    return tuple(found)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
