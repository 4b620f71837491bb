"""Pack a source as the judge sends it to a worker: its main file, and others by their paths."""

from __future__ import annotations

import json
from collections.abc import Mapping


def packed(main: str, others: Mapping[str, str]) -> bytes:
    """Return the files as ASCII text that `unpacked` reads."""
    return json.dumps([main, dict(others)]).encode("ascii")


def unpacked(content: bytes) -> tuple[str, dict[str, str]]:
    """Return the main file and the others; called in the worker, on what the judge wrote."""
    main, others = json.loads(content)
    return main, others
