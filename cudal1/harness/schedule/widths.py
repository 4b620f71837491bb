"""Decide how many of a device's lanes a question takes up, and when wide questions come.

A question is wide if it takes up several lanes: its problem needs the memory of so many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from cudal1.harness.schedule.pending import Pending


class WideTurns:
    """Turns of wide questions among the waiting ones.

    They come after others, so that lanes stand idle for them once. But only so many questions wait
    at a time. Where as many wide ones wait as there are lanes, hardly others could, so all wide
    ones come first then.

    Args:
        num_lanes: of the device.
    """

    def __init__(self, num_lanes: int) -> None:
        self._num_lanes = num_lanes
        self._is_theirs = False

    def among(self, waiting: Iterable[Pending]) -> list[Pending]:
        """Return the waiting questions of which one may be asked, the narrowest first."""
        found = sorted(waiting, key=lambda each: each.asked.width)
        wide = [each for each in found if each.asked.width > 1]
        self._is_theirs = bool(wide) and (self._is_theirs or len(wide) >= self._num_lanes)
        return wide if self._is_theirs else found


def wider(width: int, share: float, num_lanes: int) -> int:
    """Return the number of lanes for which a share of the memory is enough, above `width`.

    An unknown share is 0. More than half of the memory is all of it: two problems share it at most.
    """
    half = -(-num_lanes // 2)
    needed = math.ceil(share * num_lanes) if share <= 1 / 2 else num_lanes
    if needed > width:
        return needed
    return half if width < half else num_lanes
