"""Facts about Python text without parsing it: strings, top-level classes, names.

Answers may be hostile or broken, so nothing here is a grammar. One pass over the lines finds
strings and comments, and words are compared in the rest. A wrong guess costs a worse choice between
an answer's blocks, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ENTRY_CLASS = "ModelNew"

_TOKEN = re.compile(r"\\.|'''|\"\"\"|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|#")
_QUOTES = ("'''", '"""')
_QUOTE_END = {quote: re.compile(rf"\\.|{quote}") for quote in _QUOTES}
_CLASS = re.compile(
    r"(?P<indent>[ \t]*)class[ \t]+(?P<name>\w+)[ \t]*"
    r"(?:\(|:(?![ \t]*(?::|public\b|private\b|protected\b|virtual\b)))"
)
_ENTRY_ASSIGNED = re.compile(rf"{ENTRY_CLASS}[ \t]*=(?!=)")
_CONDITION = re.compile(r"(?:if|elif|else|try|except|finally|with)\b")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_DEFINED = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)")
_SIGNATURE = re.compile(r"\s*(?:async\s+)?def\b")
_ASSIGNED = re.compile(r"(\w+)\s*(?::[^=]+)?=(?!=)")
_PARAMETER = re.compile(r"(?:^\s*|[(,*]\s*)([A-Za-z_]\w*)\s*(?=[,:)=]|$)")
_LOCAL = re.compile(
    r"(?<!\w)(\w+)\s*:?=(?!=)|^(?:[\w\s,*]+|\s*\([\w\s,*]+\)\s*)=(?!=)"
    r"|\bfor\s+([\w, ()]{1,80}?)\s+in\b|\bas\s+(\w+)|\blambda\s+([\w, ]{1,80}?):"
)
_IMPORT = re.compile(r"\s*(?:from\s+[\w.]+\s+)?import\s+(?P<names>.*)$")
_IMPORTED = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?=\.|\s*(?:[,)\\]|$))")
_ALIAS = re.compile(r"(?<![\w.])[\w.]+\s+as\s+")


@dataclass(frozen=True)
class Names:
    """The names in a piece of source, as far as words tell."""

    top: frozenset[str]
    """Names bound at the left margin, by import, definition or assignment: other pieces may use
    them."""
    free: frozenset[str]
    """Names that the piece uses and binds nowhere."""


def strip_line(line: str, quote: str) -> tuple[str, str]:
    """Return the line without strings and comments, and the triple quote left open by it.

    `quote` is the one that is open before the line, or empty.
    """
    kept: list[str] = []
    at = 0
    while True:
        if quote:
            ends = (m.end() for m in _QUOTE_END[quote].finditer(line, at) if m[0] == quote)
            if not (at := next(ends, 0)):
                return "".join(kept), quote
            quote = ""
        token = _TOKEN.search(line, at)
        kept.append(line[at : token.start()] if token else line[at:])
        if token is None or token[0] == "#":
            return "".join(kept), ""
        quote = token[0] if token[0] in _QUOTES else ""
        at = token.end()


def code_of(lines: Sequence[str]) -> list[str]:
    """Return each line without strings and comments.

    A triple quote that is never closed counts as a slip: the lines behind it stay unchanged.
    """
    code: list[str] = []
    quote, opened = "", 0
    for line in lines:
        before = quote
        stripped, quote = strip_line(line, quote)
        code.append(stripped)
        if quote and not (before and stripped == ""):
            opened = len(code)
    return code if not quote else [*code[:opened], *lines[opened:]]


def top_classes(lines: Sequence[str]) -> list[str]:
    """Return the classes that the lines define at the left margin, or under a condition there."""
    found: list[str] = []
    header = ""  # the last line at the margin
    for line in code_of(lines):
        if line.strip() and not line[0].isspace():
            header = line
        named = _CLASS.match(line) if "class" in line else None
        if named and (not named["indent"] or _CONDITION.match(header)):
            found.append(named["name"])
    return found


def defines_entry(lines: Sequence[str]) -> bool:
    """Return whether the lines define `ModelNew` at top level."""
    return any(ENTRY_CLASS in line for line in lines) and ENTRY_CLASS in top_classes(lines)


def assigns_entry(lines: Sequence[str]) -> bool:
    """Return whether the lines assign another class to `ModelNew`, at the left margin."""
    return any(ENTRY_CLASS in line for line in lines) and any(
        _ENTRY_ASSIGNED.match(line) for line in code_of(lines)
    )


def names_of(lines: Sequence[str]) -> Names:
    """Return the names that the lines bind for other pieces, and those that they need.

    In doubt a name is not needed: a word that is bound anywhere counts as bound everywhere.
    """
    top: set[str] = set()
    bound: set[str] = set()
    used: set[str] = set()
    in_import = is_top_import = in_signature = False
    for line in code_of(lines):
        is_top = bool(line) and not line[0].isspace()
        imported = _IMPORT.match(line)
        if in_import or imported:
            names = imported["names"] if imported else line
            is_top_import = is_top_import if in_import else is_top
            (top if is_top_import else bound).update(_IMPORTED.findall(_ALIAS.sub("", names)))
            in_import = (in_import or names.startswith("(")) and ")" not in line
            continue
        if binding := _DEFINED.match(line) or (_ASSIGNED.match(line) if is_top else None):
            (top if is_top else bound).add(binding[1])
        bound.update(_WORD.findall(" ".join(m[0] for m in _LOCAL.finditer(line))))
        in_signature = in_signature or _SIGNATURE.match(line) is not None
        if in_signature:
            bound.update(_PARAMETER.findall(line))
            in_signature = ":" not in line.rpartition(")")[2]
        used.update(_WORD.findall(line))
    return Names(frozenset(top), frozenset(used - bound - top))


def is_imports_only(lines: Sequence[str]) -> bool:
    """Return whether the lines hold nothing but imports."""
    code = [line for line in code_of(lines) if line.strip()]
    return all(line.lstrip().startswith(("import ", "from ")) for line in code)
