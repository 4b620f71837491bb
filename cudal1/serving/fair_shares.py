"""Divide the devices among clients by their shares, however much each of them submits.

It is start-time fair queueing (Goyal, Vin and Cheng, 1997) with verdicts as packets. The client
with the fewest used device seconds over its share comes next. A client that comes back begins
where the others stand, so that no rest can be saved up.
"""

from __future__ import annotations

from collections.abc import Collection


class FairShares:
    """The device seconds that clients have used, each divided by its share."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._now = 0.0
        """Used seconds over the share of the client that came last."""

    def next_of(self, waiting: Collection[str]) -> str:
        """Return the client that comes next; of equals, the first by name."""
        for client in waiting:
            self._used[client] = max(self._used.get(client, 0.0), self._now)
        found = min(sorted(waiting), key=lambda client: self._used[client])
        self._now = self._used[found]
        return found

    def charge(self, client: str, seconds: float, share: float) -> None:
        """Note device seconds that were spent for a client."""
        self._used[client] = max(self._used.get(client, 0.0), self._now) + seconds / share
