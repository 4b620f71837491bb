"""Differences between two sources, line by line. Sources may be hostile, and long ones are cut."""

from __future__ import annotations

import difflib

from cudal1.files.python_file import visible
from cudal1.report.comparison import cut, lines_of


def difference(before: str, after: str, names: tuple[str, str]) -> list[str]:
    """Return the lines of a unified difference; empty where the sources are equal.

    Args:
        before: the first source.
        after: the second one.
        names: what they are called.
    """
    (first, one_out), (second, two_out) = cut(before), cut(after)
    lines = difflib.unified_diff(
        [line.rstrip("\n") for line in lines_of(first)],
        [line.rstrip("\n") for line in lines_of(second)],
        *names,
        lineterm="",
    )
    found = [visible(line, kept="\t") for line in lines]
    if found and (one_out or two_out):
        found.append(f"({one_out + two_out} further lines were not compared)")
    return found
