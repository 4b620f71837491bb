"""Pieces of code in an answer: the code that its blocks carry, and code-like lines of its prose.

The packing of code is undone here: margins of lists and quotations, escapes of HTML, a shell's
here-document, the plus signs of a new file's diff. The code itself is never mended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1.extract.answer import Part
from cudal1.extract.python_text import ENTRY_CLASS, defines_entry, strip_line

_IMPORT_LINE = re.compile(
    r"^(?:import [A-Za-z_][\w.]*(?: as \w+)?(?:, *[\w.]+(?: as \w+)?)*"
    r"|from [\w.]+ import [\w, *(]*[\w*(,])\s*(?:#.*)?$"
)
_DEFINITION_LINE = re.compile(
    r"^(?:@\w|class \w+[ \t]*[(:]|(?:async )?def \w+[ \t]*\(|\w+[ \t]*=[ \t])"
)
_CODE_LINE = re.compile(
    r"^(?:\s|#|@\w|[])}'\"]|[A-Za-z_][\w.]*(?:\(|\[|[ \t]*[-+*/]?=(?!=))"
    r"|(?:class|def|async|if|for|while|with|try|except|else|elif|finally)\b.*[:(,\\]\s*(?:#.*)?$"
    r"|(?:assert|del|raise|global)\b)"
)
_HEADING = re.compile(r"^#{2,6} \S")
_TAG = r"</?[|!]?[A-Za-z_][\w:-]*(?:[=\s][^<>]{0,200})?\|?>"
_TAG_BEFORE_CODE = re.compile(
    rf"^\s*(?:{_TAG}\s*|`{{1,2}})++(?=(?:import|from|class|def|async)\s|[#@]|\"\"\"|'''|$)"
)
_TAG_AFTER_CODE = re.compile(r"(?:</[A-Za-z_][\w:-]{0,60}>\s*+){1,4}$")
_LEFT_OUT = re.compile(
    r"^\s*(?:#|//)\s*(?:\.{3}|…|\(?(?:same as|rest of|as before|as above|existing code"
    r"|remaining code|unchanged)\b)",
    re.IGNORECASE,
)
_HERE_DOCUMENT = re.compile(r"^\s*(?:cat|tee)\b[^<]*<<-?\s*['\"]?(\w+)['\"]?")
_ENTITY = re.compile(r"&(lt|gt|amp|quot|apos|#39|#x27);")
_CHARACTERS = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_DIFF_HEADER = ("--- ", "+++ ", "@@", "diff ", "index ", "new file", "\\ No newline")
_SEARCH_MARK = re.compile(r"^<{5,9} ?SEARCH\b")


@dataclass(frozen=True)
class Piece:
    """A contiguous piece of code of an answer, as it would be in a file."""

    lines: list[str]
    part: Part
    """The part of the answer that holds it."""

    @property
    def is_fenced(self) -> bool:
        """Return whether it was marked as code, not recognised in prose."""
        return self.part.is_code

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """The sort key of pieces: the highest rank is wanted; among equals the last piece."""
        leaves_out = any(_LEFT_OUT.match(line) for line in self.lines)
        return (not self.part.is_aside, not leaves_out, not self.part.is_cut)


def pieces_of(parts: Sequence[Part]) -> list[Piece]:
    """Return the pieces in parts of an answer, in order."""
    return [
        Piece(_at_margin(lines), part)
        for part in parts
        for lines in (_unwrapped(part) if part.is_code else _code_in_prose(part.lines))
    ]


def _unwrapped(part: Part) -> list[list[str]]:
    """Return a block's code: itself, its here-documents, or a diff's new file; no other diff."""
    lines = without_margin(part.margin, part.lines)
    text = "\n".join(lines)
    if "<" not in text and ">" not in text and _ENTITY.search(text):
        lines = _ENTITY.sub(lambda m: _CHARACTERS.get(m[1], "'"), text).split("\n")
    if is_edit(lines):
        body = [line for line in lines if line and not line.startswith(_DIFF_HEADER)]
        is_new_file = all(line.startswith("+") for line in body)
        return [[line[1:] for line in body]] if is_new_file else []
    if documents := _here_documents(lines):
        return documents
    if not part.is_closed:
        lines = _until_prose(lines)
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    return [lines[first + 1 :] if lines[first : first + 1] and lines[first][:2] == "%%" else lines]


def _until_prose(lines: list[str]) -> list[str]:
    """Return the lines of an unclosed block, up to prose behind `ModelNew`."""
    quote, is_behind = "", False
    for number, line in enumerate(lines):
        if is_behind and not quote and (_HEADING.match(line) or not _CODE_LINE.match(line or " ")):
            return lines[:number]
        is_behind = is_behind or (not quote and line.startswith(f"class {ENTRY_CLASS}"))
        _, quote = strip_line(line, quote)
    return lines


def is_edit(lines: Sequence[str]) -> bool:
    """Return whether a block is an edit of a file: a diff, or search and replace."""
    marks = sum(line.startswith(("+", "-", "@@")) for line in lines)
    return any(_SEARCH_MARK.match(line) for line in lines) or (
        any(line.startswith(("@@ ", "+++ ", f"+class {ENTRY_CLASS}")) for line in lines)
        and marks > 2
    )


def _here_documents(lines: Sequence[str]) -> list[list[str]]:
    """Return the texts that a shell is told to write into files."""
    found: list[list[str]] = []
    end = ""
    for line in lines:
        if end:
            if line.strip() == end:
                end = ""
            else:
                found[-1].append(line)
        elif opening := _HERE_DOCUMENT.match(line):
            end = opening[1]
            found.append([])
    return found


def without_margin(margin: str, lines: list[str]) -> list[str]:
    """Return the lines without their fence's margin; unchanged if some line lacks it."""
    if depth := margin.count(">"):
        return [re.sub(rf"^(?:[ \t]{{0,3}}>){{1,{depth}}} ?", "", line) for line in lines]
    kept = " " * len(margin.expandtabs())
    expanded = [line.expandtabs() if margin else line for line in lines]
    if all(line.startswith(kept) for line in expanded if line.strip()):
        return [line[len(kept) :] for line in expanded]
    return lines


def _at_margin(lines: list[str]) -> list[str]:
    """Return the lines moved to the left by the first one's indentation, if that is needed."""
    first = next((line for line in lines if line.strip()), "")
    indent = len(first) - len(first.lstrip(" \t"))
    if not indent or defines_entry(lines):
        return lines
    return [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in lines]


def _code_in_prose(lines: Sequence[str]) -> list[list[str]]:
    """Return runs of lines that look like code, from an import or a definition on."""
    runs: list[list[str]] = []
    indent, quote = -1, ""  # of the run; no run has a negative indentation
    for raw in lines:
        line = (
            _TAG_AFTER_CODE.sub("", _TAG_BEFORE_CODE.sub("", raw))
            if "<" in raw or "`" in raw
            else raw
        )
        stripped = line.lstrip(" \t")
        margin = len(line) - len(stripped)
        if indent >= 0 and (quote or not stripped or margin > indent):
            pass
        elif _IMPORT_LINE.match(stripped) and (indent < 0 or margin <= indent):
            if indent < 0 or not any(_IMPORT_LINE.match(old.strip()) for old in runs[-1]):
                runs.append([])  # code-like lines before the imports are prose
            indent = margin
        elif indent < 0 and _DEFINITION_LINE.match(stripped):
            runs.append([])
            indent = margin
        elif indent < 0 or margin < indent or not _CODE_LINE.match(stripped):
            indent = -1
            continue
        runs[-1].append(line)
        _, quote = strip_line(line, quote)
    return runs
