"""Removes the comments from a Python string literal that holds C, C++ or CUDA code.

`cudal1.llm.reviewer.stripping` chooses the strings.

Threat: code that is taken for a comment would be hidden from the reviewer. So the code is read as a
compiler reads it: Python's escapes are resolved, lines that end in a backslash are joined, and the
place of each character in the literal is kept. The literal stays as it is where compilers may
differ, or where the purpose of the string is unknown.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

__all__ = ["without_c_comments"]

_OPENING = re.compile(r"([rRuU]?)(\"\"\"|''')")
_CODE = re.compile(
    r"__global__|__device__|\bextern\s+\"C\"|\btorch::|\bat::|^[ \t]*#[ \t]*(?:include|define)\b|"
    r"\b(?:void|int|float|double|auto|bool|long|char)\s+\w+\s*[(=;\[]",
    re.MULTILINE,
)
_UNSURE = re.compile(r"\?\?/|\\[ \t\f\v]+\n|[\r\0]|\w'\w*//")
"""Text that compilers may read in different ways.

It matches a backslash in disguise; one that ends a line for some compilers; characters that end a
line for some. It also matches what is a number and a comment for C++, but a character for C."""
_UNIT = re.compile(
    r"[^\\]++|\\(?:[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\s\S])"
)
_SIMPLE = {
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_TOKEN = re.compile(
    r"(?P<line>//[^\n]*+)"
    r"|(?P<block>/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/)"
    r"|/\*[\s\S]*+"  # without an end
    r'|(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\((?:[\s\S]*?\)(?P=mark)"|[\s\S]*+)'
    r'|"(?:\\.|[^"\\\n])*+(?:"|[^\n]*+)'  # a string without an end takes the line, as in compilers
    r"|'(?:\\.|[^'\\\n])*+(?:'|[^\n]*+)"
    r"|\.?\d(?:[eEpP][+-]|'?[\w.])*+"  # 1'000
    r"|[A-Za-z_]\w*+"
    r"|\#[ \t]*+include[ \t]*+<[^>\n]*+>"
)


def without_c_comments(literal: str) -> str:
    """Return the literal without C comments if it is a string of C code, else unchanged.

    The literal is taken as it stands in a source. It changes only if it is one literal in three
    quotes and no format string. A comment that has its lines to itself goes with its lines; another
    block comment becomes a blank.
    """
    opening = _OPENING.match(literal)
    if opening is None or literal.find(opening[2], opening.end()) != len(literal) - 3:
        return literal
    body = literal[opening.end() : -3]
    text, places = _read(body, is_raw=opening[1] in ("r", "R"))
    if _UNSURE.search(text) or "\\N" in body or not _is_code(text):
        return literal
    joined, places = _joined(text, places)
    if len(joined) < len(text) and 'R"' in joined:  # compilers do not join lines in raw strings
        return literal
    pieces, place = [literal[: opening.end()]], 0
    for token in _TOKEN.finditer(joined):
        if token.lastgroup in ("line", "block"):
            if _is_after_backslash(joined, token.start()):
                continue  # without the comment, the next line would be joined to that backslash
            start, end = _span(body, places[token.start()], places[token.end()])
            is_alone = end > places[token.end()]
            pieces.append(body[place:start])
            pieces.append(" " if token.lastgroup == "block" and not is_alone else "")
            place = end
    return "".join([*pieces, body[place:], literal[-3:]])


def _read(body: str, *, is_raw: bool) -> tuple[str, list[int]]:
    """Return the string that Python reads in a literal, and each character's place there.

    The last place is the end.
    """
    if is_raw:
        return body, list(range(len(body) + 1))
    characters, places = list[str](), list[int]()
    for unit in _UNIT.finditer(body):
        said = unit[0]
        if said[0] == "\\":
            said = _resolved(said[1:])  # none, one or, if it is no escape, both
        places += range(unit.start(), unit.start() + len(said))
        characters.append(said)
    return "".join(characters), [*places, len(body)]


def _resolved(escape: str) -> str:
    if escape in _SIMPLE:
        return _SIMPLE[escape]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    if len(escape) > 1:
        return chr(min(int(escape[1:], 16), 0x10FFFF))
    return f"\\{escape}"


def _joined(text: str, places: list[int]) -> tuple[str, list[int]]:
    """Return the text without line ends after a backslash, as compilers read it, and its places."""
    kept, at, begin = list[str](), list[int](), 0
    while (end := text.find("\\\n", begin)) >= 0:
        kept.append(text[begin:end])
        at += places[begin:end]
        begin = end + 2
    return "".join([*kept, text[begin:]]), at + places[begin:]


def _is_code(text: str) -> bool:
    """Return whether the text looks like C and cannot be Python, in which // divides."""
    if ";" not in text or not _CODE.search(text):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return True
    except (ValueError, RecursionError, MemoryError):
        return False
    return False


def _is_after_backslash(text: str, place: int) -> bool:
    while place and text[place - 1] in " \t":
        place -= 1
    return text[place - 1 : place] == "\\"


def _span(body: str, start: int, end: int) -> tuple[int, int]:
    """Return the span to remove with a comment: its whole lines, or the blanks before it too."""
    before = start
    while before and body[before - 1] in " \t":
        before -= 1
    after = end
    while after < len(body) and body[after] in " \t":
        after += 1
    begins = before == 0 or (body[before - 1] == "\n" and body[before - 2 : before - 1] != "\\")
    if begins and before > 0 and body[after : after + 1] == "\n":
        return before, after + 1
    return (before if body[end : end + 1] in ("\n", "") else start), end
