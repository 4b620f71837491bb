"""The place of this user's caches: they save time, and nothing is lost without them."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return the folder of one cache, which may not exist.

    Raises:
        RuntimeError: there is no HOME.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "cudal1", name)
