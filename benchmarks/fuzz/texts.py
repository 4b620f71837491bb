"""List pieces of a whole text: encodings, line ends, and texts that are no Python."""

from __future__ import annotations

from benchmarks.fuzz.pieces import Expected, Parts, Piece
from benchmarks.fuzz.source import TEXTS

JUDGED, REFUSED, EITHER = Expected.JUDGED, Expected.REFUSED, Expected.EITHER
REFUSED_TEXTS = {
    "null byte",
    "nested 1000 deep",
    "empty",
    "a comment alone",
    "blank",
    "not UTF-8",
    "UTF-16",
    "cut off",
    "an open string",
    "unknown cookie",
}
UNSURE_TEXTS = {
    "CR",
    "latin-1 cookie",
    "latin-1 bytes",
    "a very long sum",
    "many lines",
    "a header of a file",
    "a header of a module",
    "form feeds",
}
TEXT_PIECES = [
    Piece(
        f"text: {name}",
        "text",
        Parts(text=(name,)),
        REFUSED if name in REFUSED_TEXTS else EITHER if name in UNSURE_TEXTS else JUDGED,
    )
    for name in TEXTS
]
