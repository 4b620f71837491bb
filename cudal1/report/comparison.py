"""Compares two sources line by line, and marks the lines of each that the other lacks.

Sources are hostile, and long ones are cut, so that comparing them is bounded. Nothing is rendered
here.
"""

from __future__ import annotations

import io
from difflib import SequenceMatcher

from cudal1.record import Record
from cudal1.report.limits import NUM_CHARS, NUM_LINES


class Run(Record):
    """Consecutive lines, which the other source has all or none of."""

    text: str
    """The lines to the letter; the runs of a source together are the source."""
    is_own: bool
    """True if the other source lacks the lines."""


class Listing(Record):
    """A source as it is shown."""

    runs: tuple[Run, ...]
    num_lines_left_out: int = 0


def listing(source: str) -> Listing:
    """Return the listing of one source alone."""
    shown, left_out = cut(source)
    return Listing(runs=(Run(text=shown, is_own=False),), num_lines_left_out=left_out)


def compared(first: str, second: str) -> tuple[Listing, Listing]:
    """Return both listings, with the lines marked that only one of them has."""
    (one, one_out), (two, two_out) = cut(first), cut(second)
    ours, theirs = lines_of(one), lines_of(two)
    # the last line may lack its end in one of them and is the same line for a reader
    matcher = SequenceMatcher(
        None, [line.rstrip() for line in ours], [line.rstrip() for line in theirs]
    )
    left: list[Run] = []
    right: list[Run] = []
    for what, a, b, c, d in matcher.get_opcodes():
        for runs, lines in ((left, ours[a:b]), (right, theirs[c:d])):
            if lines:
                runs.append(Run(text="".join(lines), is_own=what != "equal"))
    return (
        Listing(runs=tuple(left), num_lines_left_out=one_out),
        Listing(runs=tuple(right), num_lines_left_out=two_out),
    )


def lines_of(source: str) -> list[str]:
    """Return the lines with their ends, as Python counts them, which `str.splitlines` does not."""
    return io.StringIO(source).readlines()


def cut(source: str) -> tuple[str, int]:
    """Return the text that is shown, and the number of lines left out.

    A single line that is too long is cut inside.
    """
    lines = lines_of(source)
    kept: list[str] = []
    num_chars = 0
    for line in lines[:NUM_LINES]:
        num_chars += len(line)
        if num_chars > NUM_CHARS:
            break
        kept.append(line)
    if not kept and lines:
        return lines[0][:NUM_CHARS], len(lines)
    return "".join(kept), len(lines) - len(kept)
