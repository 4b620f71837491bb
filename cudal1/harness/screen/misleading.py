"""Signs that a source looks unlike the code that runs: advice to its readers, never a verdict.

Threat: all of this is legal Python. Bidirectional controls show a line's characters in another
order than they run in (CVE-2021-42574). Letters of another script or width look like ASCII's. A
form feed undoes the indentation before it. Code can stand where no window reaches. Honest sources
have emoji, accents, Greek letters and comments in every script; those are no signs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from cudal1.files.python_file import FILLERS, as_read, misread

NO_CODE = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|'
    r"'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.DOTALL,
)
"""A string or a comment, as far as a regular expression can tell."""

_REORDERS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_FAR_OFF = re.compile(r"(?:\S[ \t]{80,}|^[ \t]{160,})(?=\S)", re.MULTILINE)
"""Blanks before code that lies outside any window."""
_FORM_FEED = re.compile(r"[^\n\f]\f")
_BREAK = re.compile("[\v\x1c-\x1e\x85\u2028\u2029]")
"""Characters that end a line in other programs, not in Python: the rest of a comment looks like
code."""
_LONE_RETURN = re.compile(r"\r(?!\n)")
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n\t\f]")
_NAME = re.compile(r"[^\s!-/:-@\[-^`{-~]+")
_EMOJI = re.compile(
    "(?:[\u00a9\u00ae\u203c\u2049\u2122-\u2bff\u3030-\u303d\u3297\u3299\U0001f000-\U0001faff]"
    "[\ufe0e\ufe0f\u200d]+)|[0-9#*]\ufe0f\u20e3"
)
"""A picture with the characters that join it to the next, or choose its style."""
_LIKE_ASCII = str.maketrans(
    "АВЕЅІЈКМНОРСТХаеорсухіјѕԁһԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοօսո",  # noqa: RUF001 - they are meant
    "ABESIJKMHOPCTXaeopcyxijsdhqwABEZHIKMNOPTYXooun",
)
"""Letters of Cyrillic, Greek and Armenian that look like ASCII's."""

Sign = tuple[str, int]
"""A kind, and its place in the source `as_read`."""


def signs(source: str) -> Iterator[Sign]:
    """Yield the first place of each kind at which a source misleads its readers."""
    text = as_read(source)
    if misread(source):
        yield "other_text", max(text.find("coding"), 0)
    if lone := _LONE_RETURN.search(source):
        yield "hidden_text", len(as_read(source[: lone.start()]))
    code = NO_CODE.sub(_blanks, text)
    commented = NO_CODE.sub(lambda found: _blanks(found) if found[0][0] == "#" else found[0], text)
    for pattern, where in ((_FAR_OFF, commented), (_FORM_FEED, code), (_BREAK, text)):
        if found := pattern.search(where):
            yield "hidden_text", found.end()
    if found := _REORDERS.search(text):
        yield "reordered_text", found.start()
    for found in _NOT_ASCII.finditer(_EMOJI.sub(_blanks, commented)):
        if unicodedata.category(found[0]) in ("Cf", "Cc", "Zl", "Zp") or FILLERS.match(found[0]):
            yield "hidden_text", found.start()
            break
    for found in _NAME.finditer("" if text.isascii() else code):
        if not found[0].isascii() and found[0].isidentifier() and _looks_otherwise(found[0]):
            yield "misleading_name", found.start()
            break


def _looks_otherwise(name: str) -> bool:
    """Return whether Python takes a name for an ASCII one, or a reader does."""
    taken_for = unicodedata.normalize("NFKC", name)
    return taken_for.isascii() or taken_for.translate(_LIKE_ASCII).isascii()


def _blanks(found: re.Match[str]) -> str:
    """Return as many blanks as were matched, on as many lines."""
    return re.sub(r"[^\n]", " ", found[0])
