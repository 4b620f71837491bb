"""Finished builds, kept in a folder by candidate and toolchain, for this run and others.

Threat: a build is bytes of a candidate's own, and is read only by processes with the same source.
The folder is the judge's; no worker sees it. A full disk or a damaged file costs the stored builds,
and nothing else.
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
from cudal1.files.user_cache import cache_folder
from cudal1.record import content_id

log = logging.getLogger("cudal1")

KEPT_BYTES = 4 << 30
"""Maximum bytes of the cache; beyond it the oldest builds are removed."""
FAILURES = (OSError, sqlite3.Error, diskcache.Timeout)


class BuildCache:
    """A folder of builds, for several threads and processes at once.

    Args:
        folder: made if it is missing.
        toolchain: fingerprint of the compilers and the target (`toolchain.fingerprint`).

    Raises:
        ConfigError: it cannot be written to, or belongs to another user.
    """

    def __init__(self, folder: Path, toolchain: str) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():  # files that lie there are unpickled
                raise PermissionError("it belongs to another user")
            self._cache = diskcache.Cache(str(folder), size_limit=KEPT_BYTES)
        except FAILURES as error:
            raise ConfigError(
                f"{folder}: cannot keep what is compiled there: {error}; remove it, or set "
                "XDG_CACHE_HOME"
            ) from error
        self.toolchain = toolchain

    def close(self) -> None:
        """Close this thread's connection."""
        with suppress(*FAILURES):
            self._cache.close()

    def __contains__(self, candidate: Candidate) -> bool:
        """Return whether the candidate was built, even if it compiled nothing."""
        with suppress(*FAILURES):
            return self._key(candidate) in self._cache
        return False

    def of(self, candidate: Candidate) -> bytes:
        """Return the candidate's build; empty if it is unknown."""
        return self.find(candidate) or b""

    def find(self, candidate: Candidate) -> bytes | None:
        """Return the candidate's build, which may be empty; None where it was not built."""
        with suppress(*FAILURES):
            found = self._cache.get(self._key(candidate))
            return found if isinstance(found, bytes) else None
        return None

    def keep(self, candidate: Candidate, content: bytes) -> None:
        """Store a build, which may be empty; a full disk stores nothing."""
        with suppress(*FAILURES):
            self._cache.set(self._key(candidate), content)

    def _key(self, candidate: Candidate) -> str:
        return content_id(candidate.id, self.toolchain)


def default_folder() -> Path:
    """Return the folder in which runs on files of candidates keep builds.

    Where the user's cache cannot be used, because HOME is another user's or may not be written to,
    the folder is one for this process alone: judging costs more, and goes on.
    """
    try:
        folder = cache_folder("builds")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK):
            return folder
        reason = "it is not this user's to write to"
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no HOME at all
        folder, reason = Path("~", ".cache"), str(error)
    log.warning(
        "%s: cannot keep what is compiled there (%s): it is kept for this run only; set "
        "XDG_CACHE_HOME to a folder of this user's",
        folder,
        reason,
    )
    return _own_folder()


@functools.cache
def _own_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cudal1-builds-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
