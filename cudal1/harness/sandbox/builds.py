"""Keep what candidates compiled in their first process for their later processes.

Threat: the content is bytes of the candidate's own, which no process but the candidate's ever
reads. A candidate gains nothing from what an earlier process of its own tells it: inputs are new,
and so are the answers.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_BYTES, MAX_CANDIDATES = 512 << 20, 10_000


class Builds:
    """The latest builds in memory, by candidate."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, bytes] = OrderedDict()
        self._given: set[str] = set()

    def __contains__(self, candidate_id: str) -> bool:
        """Return whether a candidate has handed over a build where it was judged."""
        return candidate_id in self._found and candidate_id not in self._given

    def give(self, candidate_id: str, content: bytes) -> None:
        """Add a build that was compiled ahead (`builder`), unless one is known already."""
        if content and candidate_id not in self._found:
            self.keep(candidate_id, content)
            self._given.add(candidate_id)

    def of(self, candidate_id: str) -> bytes:
        """Return a candidate's build; empty where none is known."""
        if candidate_id not in self._found:
            return b""
        self._found.move_to_end(candidate_id)
        return self._found[candidate_id]

    def keep(self, candidate_id: str, content: bytes) -> None:
        """Keep a candidate's build, even an empty one; the oldest builds are dropped."""
        self._given.discard(candidate_id)
        if not content and candidate_id in self._found:
            return  # the build that was given is better than nothing
        self._found[candidate_id] = content
        while sum(map(len, self._found.values())) > MAX_BYTES or len(self._found) > MAX_CANDIDATES:
            forgotten, _ = self._found.popitem(last=False)
            self._given.discard(forgotten)
