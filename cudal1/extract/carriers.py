"""Texts that an answer carries inside: in JSON, in strings, between tags, behind odd fences.

Tool calls and notebooks are JSON, and strings in JSON may be JSON again. Each function here undoes
one way, independently of the others. `extract` decides whether the result is wanted; it asks only
where an answer as it stands holds no Python that defines `ModelNew`. `marked_lines` undoes changes
of single lines.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from cudal1.extract.marked_lines import unescaped
from cudal1.extract.python_text import ENTRY_CLASS
from cudal1.files.python_file import parsed

_MOST_VALUES = 40
"""Maximum number of places of a text at which a JSON value is tried."""
_DEEPEST = 8
"""Maximum depth of JSON in JSON, strings that are JSON again included."""

_JSON_START = re.compile(r'\{\s*"|\[\s*["{]')
_STRING = re.compile(r'\\.|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_MEMBER = re.compile(r'"\w{1,40}"\s*:\s*"')
_END_OF_OBJECT = re.compile(r'"\s*[}\]]')
_PATH = re.compile(r"\.(\w{1,5})$")
_PATH_KEYS = ("path", "file_path", "filename", "file_name", "file", "name")
_TEXT_CELLS = ("markdown", "raw")
_LONG_STRING = re.compile(r"[=(,:\[]\s{0,80}([rRuU]?)(\"\"\"|''')([\s\S]*?)\2")
"""A string of several lines that is assigned or passed, and thus no docstring."""
_BACKTICKS = re.compile("`+")
_STRAY_TICKS = re.compile(r"^`{1,2}(?=[A-Za-z@#])|(?<=[^\s`])`{1,2}$", re.MULTILINE)
_TICKS = "\u00b4\u2018\u2019\u201c\u201d"
"""Accents and quotation marks that are typed, or printed, for a backtick."""
_MARK_AS_FENCE = re.compile(
    rf"^[ \t]*(?P<mark>'''|\"\"\"|`{{1,2}}|[{_TICKS}]{{3}}|~{{1,2}}|:::)[ \t]*"
    r"(?P<info>python3?|py|pytorch|triton|cuda)?[ \t]*$",
    re.IGNORECASE,
)
_TAG = (
    r"<[|!]?/?[A-Za-z_][\w:-]*(?:=[^<>\s]{0,80}|(?:\s+[\w:-]{1,40}=\"[^\"<>]{0,200}\")*)\s*/?\|?>"
    r"|<!\[CDATA\["
)
_CLOSING_TAG = r"</[A-Za-z_][\w:-]{0,60}>|<\|[\w-]{1,60}\|>|\]\]>"
_TAGS_BEFORE = re.compile(rf"^[ \t]*(?:(?:{_TAG})[ \t]*)+")
_TAGS_AFTER = re.compile(rf"(?:(?:{_CLOSING_TAG})[ \t]*+){{1,6}}$")


def held_in(text: str) -> Iterator[str]:
    """Yield the texts that a whole answer holds in JSON or in strings."""
    for undo in (_of_json, _of_strings):
        yield from (found for found in undo(text) if found != text)


def reread(text: str) -> Iterator[str]:
    """Yield a whole answer with other marks, blanks or escapes, one change at a time."""
    for undo in (_with_fences, _without_tags, _with_plain_blanks):
        yield from (found for found in undo(text) if found != text)
    if "\\n" in text:
        yield unescaped(text)


def _of_json(text: str) -> Iterator[str]:
    """Yield the code in all JSON values of a text, as blocks in their order."""
    blocks = [block for value in _json_values(text) for block in _blocks(value)]
    if any(ENTRY_CLASS in block for block in blocks):
        yield "\n\n".join(blocks)


def _json_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects and arrays in a text, from left to right, none inside another."""
    decoder, place = json.JSONDecoder(strict=False), 0
    for _ in range(_MOST_VALUES):
        start = _JSON_START.search(text, place)
        if start is None:
            return
        try:
            value, place = decoder.raw_decode(text, start.start())
            yield value
        except (ValueError, RecursionError):
            place = start.end()


def _blocks(value: Any, info: str = "python", depth: int = _DEEPEST) -> Iterator[str]:
    """Yield a block for each string of several lines in a JSON value."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        value = ("" if any(item.endswith("\n") for item in value) else "\n").join(value)
    if not depth:
        return
    if isinstance(value, str):
        if value.lstrip()[:1] in ("{", "[", '"'):
            try:
                yield from _blocks(json.loads(value, strict=False), info, depth - 1)
                return
            except (ValueError, RecursionError):
                pass
        if "\n" in value:
            yield value if "```" in value and parsed(value) is None else _fenced(value, info)
    elif isinstance(value, list):
        for item in value:
            yield from _blocks(item, info, depth - 1)
    elif isinstance(value, Mapping) and value.get("cell_type") not in _TEXT_CELLS:
        paths = [value[key] for key in _PATH_KEYS if isinstance(value.get(key), str)]
        ends = [found[1] for path in paths if (found := _PATH.search(path))]
        for item in value.values():
            yield from _blocks(item, ends[0] if ends else info, depth - 1)


def _fenced(code: str, info: str) -> str:
    """Return a block that no fence within the code, such as in a docstring, can end."""
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(code)), default=0))
    return f"{fence}{info}\n{code}\n{fence}"


def _of_strings(text: str) -> Iterator[str]:
    """Yield strings with escaped line breaks, the last one first: of Python, of broken JSON."""
    found = [m[0] for m in _STRING.finditer(text) if ENTRY_CLASS in m[0] and "\\n" in m[0]]
    yield from (unescaped(quoted[1:-1]) for quoted in reversed(found))
    for quoted in reversed(list(_LONG_STRING.finditer(text))):
        if ENTRY_CLASS in quoted[3]:
            yield quoted[3] if quoted[1] in ("r", "R") else unescaped(quoted[3])
    place = text.find(f"class {ENTRY_CLASS}")
    starts = [start.end() for start in _MEMBER.finditer(text, 0, max(place, 0))]
    ends = [end.start() for end in _END_OF_OBJECT.finditer(text, max(place, 0))]
    if starts:  # line breaks or quotes are not escaped in it, or it was cut off
        raw = text[starts[-1] : ends[-1] if ends else len(text)]
        yield raw
        yield unescaped(raw)


def _with_fences(text: str) -> Iterator[str]:
    """Yield the text with backticks for other marks around code: the last one ends it."""
    yield _STRAY_TICKS.sub("", text)
    lines = text.split("\n")
    is_fenced = False
    for number, line in enumerate(lines):
        is_fenced ^= line.lstrip().startswith("```")
        opening = None if is_fenced else _MARK_AS_FENCE.match(line)
        if opening is None or not (opening["info"] or number == 0 or not lines[number - 1].strip()):
            continue
        ends = [n for n in range(number + 1, len(lines)) if lines[n].strip() == opening["mark"]]
        for end in ends[-1:] or [len(lines)]:
            yield "\n".join(
                [*lines[:number], "```python", *lines[number + 1 : end], "```", *lines[end + 1 :]]
            )
        return


def _without_tags(text: str) -> Iterator[str]:
    """Yield the text without tags at the beginning and the end of its lines."""
    if "<" in text:
        lines = (_TAGS_BEFORE.sub("", line) for line in text.split("\n"))
        yield "\n".join(_TAGS_AFTER.sub("", line) for line in lines)


def _with_plain_blanks(text: str) -> Iterator[str]:
    """Yield the text with plain blanks for others, and without characters of no width."""
    if text.isascii():
        return
    blanks = {ord(c): " " for c in set(text) if unicodedata.category(c) == "Zs"}
    nothing = {ord(c): None for c in set(text) if unicodedata.category(c) == "Cf"}
    yield text.translate({**blanks, **nothing})
