"""Show the few figures that an audit is made for, each beside the bound that it must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.common import print_table


@dataclass(frozen=True)
class Figure:
    """One figure; None for a value that is not known yet."""

    name: str
    value: float | None
    bound: float
    is_most: bool = False
    """True if the bound is the largest allowed value; otherwise it is the smallest."""
    unit: str = ""

    @property
    def is_met(self) -> bool | None:
        """Return whether the bound is kept; None where the value is not known."""
        if self.value is None:
            return None
        return self.value <= self.bound if self.is_most else self.value >= self.bound


def of_release(side: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of the released kernels.

    Args:
        side: of an audit's result, `sources.kernels`.
    """
    agreement, walls = side["agreement"], side["walls"]
    share = agreement["share_of_agreeing_called_correct"]
    least, estimated = walls["times_faster_at_least"], walls["times_faster_estimated"]
    wall_s = walls["cudal1_s"] if walls["is_whole"] else None
    known = side["kernelbench"]["num_evaluated"]
    beyond = agreement["num_disagree_called_correct"] if agreement["table"] else None
    return [
        Figure("agree, called correct", None if share is None else 100 * share, 97, unit="%"),
        Figure("disagree beyond every class, called correct", beyond, 0, is_most=True),
        Figure("first verdict, cold", walls["first_verdict_s"], 30, is_most=True, unit="s"),
        Figure("first verdict, warm", walls["first_verdict_warm_s"], 10, is_most=True, unit="s"),
        Figure("all rows, cold", wall_s, 600, is_most=True, unit="s"),
        Figure(f"KernelBench's time over ours, at least ({known} rows)", least, 10),
        Figure("KernelBench's time over ours, estimated", estimated, 10),
        Figure("GPU busy while there is work", _percent(walls["busy"]), 70, unit="%"),
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def show(figures: list[Figure]) -> None:
    """Print a line a figure."""
    words = {None: "", True: "yes", False: "NO"}
    print_table(
        ["figure", "is", "must", "kept"],
        [
            [
                each.name,
                "-" if each.value is None else f"{each.value:.1f} {each.unit}".strip(),
                f"{'≤' if each.is_most else '≥'} {each.bound:g} {each.unit}".strip(),
                words[each.is_met],
            ]
            for each in figures
        ],
    )
