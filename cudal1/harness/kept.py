"""What was compiled ahead, kept in a folder by candidate and toolchain, for this run and others.

Threat: it is bytes of a candidate's own, which no process but one with the same source ever reads.
The folder is the judge's; no worker sees it. A disk that is full or a file that is damaged costs
what was kept there, and nothing else.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path

import diskcache

from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.harness.caches import cache_folder
from cudal1.record import content_id

log = logging.getLogger("cudal1")

KEPT_BYTES = 4 << 30
"""Beyond it, what was stored first goes."""
FAILURES = (OSError, sqlite3.Error, diskcache.Timeout)


class Kept:
    """A folder of builds; from several threads and processes at once.

    Args:
        folder: made if it is missing.
        toolchain: with what it is compiled, and for what (`toolchain.fingerprint`).

    Raises:
        ConfigError: it cannot be written to, or is somebody else's.
    """

    def __init__(self, folder: Path, toolchain: str) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():  # what lies there is unpickled
                raise PermissionError("it belongs to another user")
            self._cache = diskcache.Cache(str(folder), size_limit=KEPT_BYTES)
        except FAILURES as error:
            raise ConfigError(
                f"{folder}: cannot keep what is compiled there: {error}; remove it, or set "
                "XDG_CACHE_HOME"
            ) from error
        self.toolchain = toolchain

    def close(self) -> None:
        """Of this thread."""
        with suppress(*FAILURES):
            self._cache.close()

    def __contains__(self, candidate: Candidate) -> bool:
        """Whether one was built, though it may have compiled nothing."""
        with suppress(*FAILURES):
            return self._key(candidate) in self._cache
        return False

    def of(self, candidate: Candidate) -> bytes:
        """What one compiled; empty where nothing is known."""
        return self.find(candidate) or b""

    def find(self, candidate: Candidate) -> bytes | None:
        """What one compiled, though it be nothing; None where it was not built."""
        with suppress(*FAILURES):
            found = self._cache.get(self._key(candidate))
            return found if isinstance(found, bytes) else None
        return None

    def keep(self, candidate: Candidate, content: bytes) -> None:
        """Remember it, though it be nothing; a full disk forgets."""
        with suppress(*FAILURES):
            self._cache.set(self._key(candidate), content)

    def _key(self, candidate: Candidate) -> str:
        return content_id(candidate.id, self.toolchain)


def default_folder() -> Path:
    """Return where runs on files of candidates keep what these compiled.

    Where the user's cache cannot be used, because HOME is another user's or may not be written to,
    it is a folder for this process alone: judging costs more, and goes on.
    """
    try:
        folder = cache_folder("builds")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK):
            return folder
        reason = "it is not this user's to write to"
    except (OSError, RuntimeError) as error:  # the latter: there is no HOME at all
        folder, reason = Path("~", ".cache"), str(error)
    log.warning(
        "%s: cannot keep what is compiled there (%s): it is kept for this run only; set "
        "XDG_CACHE_HOME to a folder of this user's", folder, reason,
    )  # fmt: skip
    return _own_folder()


@functools.cache
def _own_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cudal1-builds-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
