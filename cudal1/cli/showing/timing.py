"""Draws a verdict's quads as text: their speedups in time order, and how often each came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from cudal1.measurement import Role

NUM_COLUMNS = 60
"""Columns of a line of quads; of more quads, a column is the median of neighbours."""
NUM_BINS = 8
"""Rows of a histogram."""
BAR_CHARS = 40
"""Characters of the longest bar."""
_HEIGHTS = "▁▂▃▄▅▆▇█"


def quad_speedups(samples: Iterable[Mapping[str, Any]], session: int = 0) -> list[float]:
    """Return the speedup that each quad of a measurement says, in time order.

    It is the shortest burst of the reference over the shortest of the candidate.
    """
    shortest: dict[int, dict[str, float]] = {}
    for row in samples:
        if row["session"] == session and row["role"] != Role.EMPTY:
            quad = shortest.setdefault(row["quad"], {})
            quad[row["role"]] = min(quad.get(row["role"], math.inf), row["net_us"])
    return [
        quad[Role.REFERENCE] / quad[Role.CANDIDATE]
        for _, quad in sorted(shortest.items())
        if quad.get(Role.CANDIDATE, 0) > 0 and quad.get(Role.REFERENCE, 0) > 0
    ]


def sparkline(values: Sequence[float]) -> str:
    """Return a line of columns, as high as the values; empty for none."""
    step = math.ceil(len(values) / NUM_COLUMNS) or 1
    columns = [median(values[at : at + step]) for at in range(0, len(values), step)]
    if not columns:
        return ""
    low, high = min(columns), max(columns)
    scale = (len(_HEIGHTS) - 1) / (high - low) if high > low else 0.0
    return "".join(_HEIGHTS[round((each - low) * scale)] for each in columns)


def histogram(values: Sequence[float]) -> list[tuple[str, str]]:
    """Return the rows of a histogram, each a range with a bar and a count.

    The rows cover the values from the 2nd to the 98th percentile; values beyond count at the ends.
    """
    if not values:
        return []
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.02, 0.98))
    if high <= low:
        return [(f"{low:.3f}x", f"{'█' * BAR_CHARS} {len(values)}")]
    width = (high - low) / NUM_BINS
    counts = [0] * NUM_BINS
    for each in values:
        counts[min(NUM_BINS - 1, max(0, int((each - low) / width)))] += 1
    most = max(counts)
    return [
        (
            f"{low + number * width:.3f}x to {low + (number + 1) * width:.3f}x",
            f"{'█' * math.ceil(BAR_CHARS * count / most)} {count}".strip(),
        )
        for number, count in enumerate(counts)
    ]
