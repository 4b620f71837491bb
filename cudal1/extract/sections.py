"""The sections of an answer that the paper demands: analysis, design, code (paper table 3).

The paper holds that comparing scored variants in words is what improves the code that follows. So
an answer can be required to be whole: each section is there, in order, and says something.
"""

from __future__ import annotations

import re

from cudal1.extract.turn import REASONING_CLOSE, turn_of
from cudal1.record import Record

_TITLES = ("performance analysis", "algorithm design", "code implementation")
_HEADING = re.compile(
    r"^[ \t]{0,3}(?:#{2,6}[ \t]+|\*\*)(?:(?:step|part|section)\W{1,4})?(?:\d{1,2}\W{1,4})?"
    rf"(?P<title>{'|'.join(title.replace(' ', '[ ]') for title in _TITLES)})\b[^\n]{{0,40}}$",
    re.IGNORECASE | re.MULTILINE,
)
MIN_WORDS = 8
"""The fewest words of an analysis or a design: fewer compare nothing."""


class Sections(Record):
    """The words of an answer beside its code."""

    analysis: str | None = None
    """The comparison of the variants that were shown; None: there is no such section."""
    design: str | None = None
    """The approach; None: there is no such section."""
    is_whole: bool = False
    """True if analysis, design and code are there, in this order, and the first two say something.
    """


def sections_of(text: str) -> Sections:
    """Return the sections of an answer; of several with one title the first counts."""
    body = turn_of(text)
    ends = [end.end() for end in REASONING_CLOSE.finditer(body)]
    body = body[ends[-1] :] if ends else body
    first = {
        heading["title"].lower(): heading for heading in reversed(list(_HEADING.finditer(body)))
    }
    headings = sorted(first.values(), key=lambda heading: heading.start())
    ends = [*(heading.start() for heading in headings[1:]), len(body)]
    found = {
        heading["title"].lower(): (place, body[heading.end() : end].strip())
        for place, (heading, end) in enumerate(zip(headings, ends, strict=False))
    }
    analysis, design, code = (found.get(title) for title in _TITLES)
    in_order = (
        analysis is not None
        and design is not None
        and code is not None
        and analysis[0] < design[0] < code[0]
    )
    return Sections(
        analysis=analysis and analysis[1],
        design=design and design[1],
        is_whole=in_order
        and _says_something(analysis)
        and _says_something(design)
        and "ModelNew" in (code or (0, ""))[1],
    )


def _says_something(section: tuple[int, str] | None) -> bool:
    return section is not None and len(section[1].split()) >= MIN_WORDS
