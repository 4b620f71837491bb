r"""The text that Python runs when a file holds a source, and characters that no reader can see.

Threat: Python decodes a file as its first two lines say (PEP 263). Under `raw_unicode_escape` the
six characters `\u000a` end a line, so that code can stand in what every other program takes for a
comment. A source that Python would decode to another text than the one at hand is refused before
anything runs. All functions that show or search a source work on `as_read`.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings

MAX_PARSED = 100_000
"""Maximum number of characters that are parsed; parsing takes some 2 µs each."""
MARK = "\ufeff"
"""The byte order mark; Python removes it from the beginning of a file."""
_MAX_NAME = 60
"""Characters of an encoding's name that an error repeats."""
_FOR_NAMES = ("punycode", "idna")
"""Codecs of host names; decoding a file with one takes time quadratic in its length."""
CODE_POINT = re.compile(r"<U\+[0-9A-F]{4,6}>|\ufffd")
"""The marks that `visible` puts in place of a character."""
FILLERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164"
    "\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Unicode counts as letters, marks or symbols, and that fonts show as nothing."""


def as_read(source: str) -> str:
    r"""Return the text as Python's parser gets it: without a mark, each line ended by `\n`."""
    return source.removeprefix(MARK).replace("\r\n", "\n").replace("\r", "\n")


def misread(source: str) -> str | None:
    """Return why Python would run another text than this one, or None where it would not."""
    if "\0" in source:
        return "holds a null byte, which no Python source may"
    try:
        encoded = source.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate, which no file of UTF-8 can"
    # the parser ends lines at `\r`, too; programs that show a source do not
    parsed = encoded.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for text in (encoded, parsed):
        if said := _misread(text):
            return said
    return None


def _misread(text: bytes) -> str | None:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    except SyntaxError as error:  # Python does not know it, or the file's mark contradicts it
        said = str(error)
        return f"SyntaxError: {said[:_MAX_NAME]}{'…' * (len(said) > _MAX_NAME)}; save it as UTF-8"
    try:
        name = codecs.lookup(encoding).name
        is_same = name not in _FOR_NAMES and text.decode(encoding) == text.decode()
        if is_same or encoding in ("utf-8", "utf-8-sig"):
            return None
    except (ValueError, LookupError):  # the codec is for bytes, or cannot decode these
        pass
    return (
        f"declares encoding {encoding[:_MAX_NAME]}, in which Python reads another text than is "
        "shown here; save it as UTF-8"
    )


def parsed(source: str, *, limit: int = MAX_PARSED) -> ast.Module | None:
    """Return the syntax tree; None where parsing fails, or the source is too long."""
    if len(source) > limit:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in its strings
            return ast.parse(as_read(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def is_unseen(character: str) -> bool:
    """Return whether a reader does not see a character, or its effect on the line."""
    return not character.isprintable() or FILLERS.match(character) is not None


def visible(text: str, *, kept: str = "\n\t", max_chars: int | None = None) -> str:
    """Return the text with its code point in place of each character that cannot be seen.

    If that is longer than `max_chars`, a replacement character stands for each instead, so that no
    number of unseen characters pushes others out of view.
    """
    unseen = {c for c in set(text) if is_unseen(c) and c not in kept}
    shown = text.translate({ord(c): f"<U+{ord(c):04X}>" for c in unseen})
    if max_chars is None or len(shown) <= max_chars:
        return shown
    return text.translate({ord(c): "\ufffd" for c in unseen})
