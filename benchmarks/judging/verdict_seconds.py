"""Summarise the seconds of verdicts, and what their device did or waited for meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles

from cudal1.verdict import Phases, Verdict

LATE = 0.9
"""Quantile of the seconds of a verdict that is given beside the median."""


def seconds(verdicts: Sequence[Verdict]) -> dict[str, float] | None:
    """Return the seconds of verdicts, and the mean of each phase; None without two of them."""
    if len(verdicts) < 2:
        return None
    took = [each.judge_s for each in verdicts]
    noted = [each.phases for each in verdicts if each.phases is not None]
    means = {
        name: sum(getattr(each, name) for each in noted) / len(noted)
        for name in (Phases.model_fields if noted else ())
    }
    late = quantiles(took, n=100, method="inclusive")[round(100 * LATE) - 1]
    return {"median_s": median(took), f"quantile_{LATE}_s": late, **means}


def in_words(found: Mapping[str, float]) -> str:
    """Return the result of `seconds` as a line."""
    return ", ".join(f"{name.removesuffix('_s')} {value:.2f} s" for name, value in found.items())
