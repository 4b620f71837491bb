"""The undoing of changes to a source's lines: prompts, numbers, quotation marks, escapes.

Interpreters print prompts, viewers number lines, mails quote, transports escape. Each function here
undoes one change, independently of the others; `extract` decides whether the result is wanted.
Nothing is invented: only what a change has added is removed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from functools import partial

_FEWEST = 3
"""Lines in a row that must be numbered, quoted or marked."""

_ESCAPE = re.compile(r"\\(?:([nrt\"'\\/bf])|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8}))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_BREAK = re.compile(r"'''|\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|\\r\\n|\\[nrt]")
"""An escape outside of strings of one line; those of several lines have true line breaks."""
_PROMPT = re.compile(r"^[ \t]*(?:>>>|\.\.\.|In ?\[[\d ]*\]:|\.{3,}:)(?: (?P<code>.*)|[ \t]*)$")
_OUTPUT = re.compile(r"^[ \t]*Out ?\[[\d ]*\]:")
_NUMBERED = re.compile(
    r"^[ \t]*(?:L|[Ll]ine |[\[(#])?(?P<number>\d{1,5})"
    r"(?:[ \t]*[-:|│┃▏.)\]→]|\t|(?= )|$)(?P<code>.*)$"
)
_KEY_BEFORE_BLOCK = re.compile(r"^[ \t]*(?:- )?[\w-]{1,40}:[ \t]*[|>][-+]?\d?[ \t]*$")
"""A key of YAML with its text on the lines below, indented."""

Lines = Sequence[str]


def unescaped(text: str) -> str:
    """Return the text with the escapes of JSON and Python resolved, and plain line ends."""

    def character(found: re.Match[str]) -> str:
        if found[1]:
            return _ESCAPED.get(found[1], found[1])
        code = int(found[2] or found[3] or found[4], 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else found[0]

    return _ESCAPE.sub(character, text).replace("\r\n", "\n")


def _typed(lines: Lines) -> list[str] | None:
    """Return the lines typed at an interpreter's prompts; the other lines are its output."""
    typed = [prompt["code"] or "" for line in lines if (prompt := _PROMPT.match(line))]
    return typed if any(typed) else None


def _unprompted(lines: Lines) -> list[str] | None:
    """Return the lines between a notebook's prompts, which have lines of their own."""
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
    """Return the lines without a mark before each, where several have it."""
    bare = [line.lstrip(" \t") for line in lines]
    if sum(line.startswith(mark) for line in bare) < _FEWEST:
        return None
    marked = [line[1:] if line.startswith(mark) else None for line in bare]
    inside = [line for line in marked if line is not None]
    if all(line.rstrip().endswith(mark) for line in inside):  # a box
        inside = [line.rstrip()[:-1].rstrip() for line in inside]
    kept = iter(_at_margin(inside))
    return [
        line if without is None else next(kept) for line, without in zip(lines, marked, strict=True)
    ]


def _under_key(lines: Lines) -> list[str] | None:
    """Return the indented lines below the last key of YAML that has a block."""
    keys = [number for number, line in enumerate(lines) if _KEY_BEFORE_BLOCK.match(line)]
    if not keys:
        return None
    indent = len(lines[keys[-1]]) - len(lines[keys[-1]].lstrip())
    block = lines[keys[-1] + 1 :]
    ends = (
        number
        for number, line in enumerate(block)
        if line.strip() and len(line) - len(line.lstrip()) <= indent
    )
    return _at_margin(block[: next(ends, len(block))])


def _at_margin(lines: Lines) -> list[str]:
    """Return the lines without the blanks that all of them begin with."""
    depth = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return [line[depth:] for line in lines]


def _unescaped(lines: Lines, *, levels: int, last: Callable[[str], str]) -> list[str] | None:
    """Return the lines with `levels` layers of escapes resolved, the innermost by `last`."""
    text = "\n".join(lines)
    if "\\" * levels + "n" not in text:
        return None
    for _ in range(levels - 1):
        text = unescaped(text)
    return last(text).split("\n")


def _with_breaks(text: str) -> str:
    """Return the text with line breaks for escapes outside of strings."""
    return _BREAK.sub(_line_break, text)


def _with_breaks_and_quotes(text: str) -> str:
    """Return the text as `_with_breaks` does, with escaped quotes resolved, too."""
    return _with_breaks(text.replace('\\"', '"'))


_LAST_LEVEL = (unescaped, _with_breaks, _with_breaks_and_quotes)
"""Functions for the last layer: strings are escaped like the rest; or not; or only their quotes
are."""


def _line_break(found: re.Match[str]) -> str:
    return {"\\n": "\n", "\\r\\n": "\n", "\\r": "\n", "\\t": "\t"}.get(found[0], found[0])


def _without_entities(lines: Lines) -> list[str] | None:
    """Return the lines with characters for the entities of HTML."""
    text = "\n".join(lines)
    return html.unescape(text).split("\n") if "&" in text and ";" in text else None


MARKS: Sequence[Callable[[Lines], list[str] | None]] = (
    _typed,
    _unprompted,
    _unnumbered,
    *(partial(_unmarked, mark=mark) for mark in (">", "+", "|", "\u2502")),
    _under_key,
)
"""Functions that undo one way of marking lines each, in a block or a run of prose; None where it is
absent."""
ESCAPES: Sequence[Callable[[Lines], list[str] | None]] = (
    *(partial(_unescaped, levels=n, last=last) for n in (1, 2, 3) for last in _LAST_LEVEL),
    _without_entities,
)
"""Functions that undo one way of escaping characters each; in prose it covers a whole answer or
string."""
