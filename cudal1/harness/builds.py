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
        self._given: set[str] = set()

    def __contains__(self, candidate_id: str) -> bool:
        """Whether one has handed over what it compiled where it was judged."""
        return candidate_id in self._found and candidate_id not in self._given

    def give(self, candidate_id: str, content: bytes) -> None:
        """What was compiled ahead (`builder`), unless more is known."""
        if content and candidate_id not in self._found:
            self.keep(candidate_id, content)
            self._given.add(candidate_id)

    def of(self, candidate_id: str) -> bytes:
        """What one compiled; empty where nothing is known."""
        if candidate_id not in self._found:
            return b""
        self._found.move_to_end(candidate_id)
        return self._found[candidate_id]

    def keep(self, candidate_id: str, content: bytes) -> None:
        """Remember it, though it be nothing; the oldest ones are forgotten."""
        self._given.discard(candidate_id)
        if not content and candidate_id in self._found:
            return  # what it was given is better than nothing
        self._found[candidate_id] = content
        while sum(map(len, self._found.values())) > MAX_BYTES or len(self._found) > MAX_CANDIDATES:
            forgotten, _ = self._found.popitem(last=False)
            self._given.discard(forgotten)
