"""Formats numbers for readers: speedups, shares, percentages."""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations


def times(value: float | None) -> str:
    """Return a speedup as `1.42×`; a dash for none."""
    if value is None:
        return "–"
    return f"{value:.0f}×" if value >= 100 else f"{value:.3g}×" if value >= 10 else f"{value:.2f}×"


def share(part: int, whole: int) -> str:
    """Return a share as `12 (40 %)`; a dash when the whole is zero."""
    return f"{part:,} ({percent(part / whole)})" if whole else "–"


def percent(value: float) -> str:
    """Return `40 %`, with one digit more close to 0 % and to 100 %."""
    return (
        f"{value:.1%}".replace("%", " %")
        if 0 < value < 0.02 or 0.99 < value < 1
        else (f"{value * 100:.0f} %")
    )
