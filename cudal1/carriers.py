"""Ways in which an answer carries a source other than as it would stand in a file.

Tool calls and notebooks are JSON, interpreters print prompts, viewers number lines, transports
escape. Each way is undone here without a look at the others; whether what comes out is wanted is
for `extract` to say, which asks only where an answer as it stands holds no Python that defines
`ModelNew`. Nothing is invented: what is taken away is what the way has added.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cudal1.python_text import ENTRY_CLASS

_MOST_VALUES = 40
"""Places of a text at which a JSON value is tried to be read."""
_DEEPEST = 8
"""Levels of JSON in JSON, and of strings in it that are JSON again."""
_FEWEST = 3
"""Lines that must be numbered, quoted or marked one after the other."""

_JSON_START = re.compile(r'\{\s*"|\[\s*["{]')
_STRING = re.compile(r'\\.|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_MEMBER = re.compile(r'"\w{1,40}"\s*:\s*"')
_END_OF_OBJECT = re.compile(r'"\s*[}\]]')
_PATH = re.compile(r"\.(\w{1,5})$")
_PATH_KEYS = ("path", "file_path", "filename", "file_name", "file", "name")
_TEXT_CELLS = ("markdown", "raw")
_ESCAPE = re.compile(r"\\(?:([nrt\"'\\/bf])|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8}))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_BREAK = re.compile(
    r"'''|\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|\\r\\n|\\[nrt]",
)
"""An escape outside of strings of one line; those of several lines have true line breaks."""
_PROMPT = re.compile(r"^[ \t]*(?:>>>|\.\.\.|In ?\[[\d ]*\]:|\.{3,}:)(?: (?P<code>.*)|[ \t]*)$")
_OUTPUT = re.compile(r"^[ \t]*Out ?\[[\d ]*\]:")
_NUMBERED = re.compile(
    r"^[ \t]*(?:L|[Ll]ine )?(?P<number>\d{1,5})(?:[ \t]*[:|│┃▏.)\]→]|\t|(?= )|$)(?P<code>.*)$"
)
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
_CLOSING_TAG = r"</[A-Za-z_][\w:-]*\s*>|<\|[\w-]{1,60}\|>|\]\]>"
_TAGS_BEFORE = re.compile(rf"^[ \t]*(?:(?:{_TAG})[ \t]*)+")
_TAGS_AFTER = re.compile(rf"(?:(?:{_CLOSING_TAG})[ \t]*)+$")

Lines = Sequence[str]


def in_lines() -> Sequence[Callable[[Lines], list[str] | None]]:
    """Return functions that undo one way each in a block or a run of prose; None where it is not.

    Behind an escape may stand another, and strings may keep theirs.
    """
    return (
        _typed,
        _unprompted,
        _unnumbered,
        partial(_unmarked, mark=">"),
        partial(_unmarked, mark="+"),
        *(partial(_unescaped, levels=n, last=last) for n in (1, 2, 3) for last in _LAST_LEVEL),
        _without_entities,
    )


def in_text(text: str) -> Iterator[str]:
    """Yield the texts that a whole answer carries, each way undone by itself."""
    for undo in (_of_json, _of_strings, _with_fences, _without_tags, _with_plain_blanks):
        yield from (found for found in undo(text) if found != text)
    if "\\n" in text:
        yield unescaped(text)


def unescaped(text: str) -> str:
    """Return the text with the escapes of JSON and Python resolved, and plain line ends."""

    def character(found: re.Match[str]) -> str:
        if found[1]:
            return _ESCAPED.get(found[1], found[1])
        code = int(found[2] or found[3] or found[4], 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else found[0]

    return _ESCAPE.sub(character, text).replace("\r\n", "\n")


# --- ways that mark each line --------------------------------------------------------------------


def _typed(lines: Lines) -> list[str] | None:
    """Return what was typed at an interpreter's prompts; the other lines are what it printed."""
    typed = [prompt["code"] or "" for line in lines if (prompt := _PROMPT.match(line))]
    return typed if any(typed) else None


def _unprompted(lines: Lines) -> list[str] | None:
    """Return the lines between a notebook's prompts, which stand on lines of their own."""
    kept = [
        line
        for line in lines
        if not _OUTPUT.match(line) and (not (prompt := _PROMPT.match(line)) or prompt["code"])
    ]
    return kept if len(kept) < len(lines) else None


def _unnumbered(lines: Lines) -> list[str] | None:
    """Return the lines without the numbers before them, where those count up."""
    kept: list[str] = []
    run: list[str] = []
    last, gap = 0, 0  # blank lines may be counted though they have no number
    for line in [*lines, "."]:
        found = _NUMBERED.match(line)
        number = int(found["number"]) if found else 0
        if run and not line.strip():
            run.append("")
            gap += 1
        elif run and found and number in (last + 1, last + 1 + gap):
            run.append(found["code"])
            last, gap = number, 0
        else:
            whole = lines[len(kept) : len(kept) + len(run)]
            kept += _at_margin(run) if len(run) >= _FEWEST else whole
            run, last, gap = ([found["code"]], number, 0) if found else ([], 0, 0)
            kept += [] if found else [line]
    return None if kept[:-1] == list(lines) else kept[:-1]


def _unmarked(lines: Lines, *, mark: str) -> list[str] | None:
    """Return the lines without a mark before each, where there are several of them."""
    bare = [line.lstrip(" \t") for line in lines]
    if sum(line.startswith(mark) for line in bare) < _FEWEST:
        return None
    marked = [line[1:] if line.startswith(mark) else None for line in bare]
    kept = iter(_at_margin([line for line in marked if line is not None]))
    return [
        line if without is None else next(kept) for line, without in zip(lines, marked, strict=True)
    ]


def _at_margin(lines: Lines) -> list[str]:
    """Return the lines without the blanks that all of them begin with."""
    depth = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return [line[depth:] for line in lines]


# --- ways that change characters -----------------------------------------------------------------


def _unescaped(lines: Lines, *, levels: int, last: Callable[[str], str]) -> list[str] | None:
    """Return the lines with escapes resolved so many times, the last time in a way of its own."""
    text = "\n".join(lines)
    if "\\" * levels + "n" not in text:
        return None
    for _ in range(levels - 1):
        text = unescaped(text)
    return last(text).split("\n")


def _with_breaks(text: str) -> str:
    """Return the text with line breaks for escapes that stand outside of strings."""
    return _BREAK.sub(_line_break, text)


def _with_breaks_and_quotes(text: str) -> str:
    """Return the text as `_with_breaks`, where quotes are escaped too."""
    return _with_breaks(text.replace('\\"', '"'))


_LAST_LEVEL = (unescaped, _with_breaks, _with_breaks_and_quotes)
"""Strings are escaped as all else; or not; or only their quotes are."""


def _line_break(found: re.Match[str]) -> str:
    return {"\\n": "\n", "\\r\\n": "\n", "\\r": "\n", "\\t": "\t"}.get(found[0], found[0])


def _without_entities(lines: Lines) -> list[str] | None:
    """Return the lines with characters for the entities of HTML."""
    text = "\n".join(lines)
    return html.unescape(text).split("\n") if "&" in text and ";" in text else None


def _with_plain_blanks(text: str) -> Iterator[str]:
    """Yield the text with plain blanks for others, and without what takes no place."""
    if text.isascii():
        return
    blanks = {ord(c): " " for c in set(text) if unicodedata.category(c) == "Zs"}
    nothing = {ord(c): None for c in set(text) if unicodedata.category(c) == "Cf"}
    yield text.translate({**blanks, **nothing})


# --- ways that hold a source ---------------------------------------------------------------------


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
            yield value if "```" in value else f"```{info}\n{value}\n```"
    elif isinstance(value, list):
        for item in value:
            yield from _blocks(item, info, depth - 1)
    elif isinstance(value, Mapping) and value.get("cell_type") not in _TEXT_CELLS:
        paths = [value[key] for key in _PATH_KEYS if isinstance(value.get(key), str)]
        ends = [found[1] for path in paths if (found := _PATH.search(path))]
        for item in value.values():
            yield from _blocks(item, ends[0] if ends else info, depth - 1)


def _of_strings(text: str) -> Iterator[str]:
    """Yield strings with escaped line breaks, the last one first: of Python, of broken JSON."""
    found = [m[0] for m in _STRING.finditer(text) if ENTRY_CLASS in m[0] and "\\n" in m[0]]
    yield from (unescaped(quoted[1:-1]) for quoted in reversed(found))
    place = text.find(f"class {ENTRY_CLASS}")
    starts = [start.end() for start in _MEMBER.finditer(text, 0, max(place, 0))]
    ends = [end.start() for end in _END_OF_OBJECT.finditer(text, max(place, 0))]
    if starts and ends:  # its line breaks, and perhaps quotes, are not escaped
        raw = text[starts[-1] : ends[-1]]
        yield raw
        yield unescaped(raw)


def _with_fences(text: str) -> Iterator[str]:
    """Yield the text with backticks for other marks around code: the last one ends it."""
    lines = text.split("\n")
    marks = [_MARK_AS_FENCE.match(line) for line in lines]
    for number, opening in enumerate(marks):
        if opening is None or not (opening["info"] or number == 0 or not lines[number - 1].strip()):
            continue
        ends = [n for n in range(number + 1, len(lines)) if lines[n].strip() == opening["mark"]]
        for end in ends[-1:] or [len(lines)]:
            yield "\n".join([
                *lines[:number], "```python", *lines[number + 1 : end], "```", *lines[end + 1 :]
            ])  # fmt: skip
        return


def _without_tags(text: str) -> Iterator[str]:
    """Yield the text without tags at the beginning and the end of its lines."""
    if "<" in text:
        lines = (_TAGS_BEFORE.sub("", line) for line in text.split("\n"))
        yield "\n".join(_TAGS_AFTER.sub("", line) for line in lines)
