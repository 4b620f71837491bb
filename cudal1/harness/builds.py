"""What candidates compiled in their first process, kept for their later ones.

Threat: it is bytes of the candidate's own, which no process but its own ever reads. What it may
learn from an earlier process of its own gains nothing: inputs are new, and so are the answers.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_BYTES, MAX_CANDIDATES = 512 << 20, 10_000


class Builds:
    """By candidate, the latest ones, in memory."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, bytes] = OrderedDict()

    def __contains__(self, candidate_id: str) -> bool:
        return candidate_id in self._found

    def of(self, candidate_id: str) -> bytes:
        """What one compiled; empty where nothing is known."""
        if candidate_id not in self._found:
            return b""
        self._found.move_to_end(candidate_id)
        return self._found[candidate_id]

    def keep(self, candidate_id: str, content: bytes) -> None:
        """Remember it, though it be nothing; the oldest ones are forgotten."""
        self._found[candidate_id] = content
        while sum(map(len, self._found.values())) > MAX_BYTES or len(self._found) > MAX_CANDIDATES:
            self._found.popitem(last=False)
