"""From a completion's text to a candidate's source, or the reason there is none.

Text is never executed or parsed as Python here: hostile source can crash a parser, and whether it
is valid is for the harness's worker to find out. The text is read line by line, once, as prose,
reasoning and code blocks; a model that forgets a fence, or to close one, is still understood.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field

from cudal1.record import Record

ENTRY = re.compile(r"^class[ \t]+ModelNew[ \t]*[(:]", re.MULTILINE)

MAX_SOURCE_CHARS = 200_000
"""A longer source is refused: nothing that a person would write for one module comes near it."""

_MARGIN = r"(?P<margin>(?:[ \t]|>|(?:\d{1,3}[.)]|[-*+])[ \t])*)"
_OPEN = re.compile(rf"^{_MARGIN}(?P<fence>`{{3,}}|~{{3,}})(?P<info>[^`]*)$")
_OPEN_AFTER_PROSE = re.compile(r"^[^`]*[^`\s](?:[ \t]+|:)(?P<fence>`{3,})(?P<info>[\w+.-]*)\s*$")
_CODE_IN_INFO = re.compile(r"^\s*(?:[\w+.-]+\s+)?((?:import|from|class)\s.*)$")
_REASONING_OPEN = re.compile(r"^\s*<(think|thinking|reasoning|thought)>", re.IGNORECASE)
_REASONING_CLOSE = re.compile(r"^\s*</(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_SECTION = re.compile(r"^\s{0,3}(?:#{2,6}\s+\S|\*\*[^*]+\*\*:?\s*$)")  # one `#` is a comment
_IMPLEMENTATION = re.compile(
    r"^[\s#*\d.):]*(?:final\s+)?code\s+implementation\b.{0,40}$", re.IGNORECASE
)
_IMPORT_LINE = re.compile(
    r"^(?:import [A-Za-z_][\w.]*(?: as \w+)?(?:, *[\w.]+(?: as \w+)?)*"
    r"|from [\w.]+ import [\w, *(]*[\w*(,])\s*(?:#.*)?$"
)
_CODE_LINE = re.compile(
    r"^(?:\s|#|@\w|(?:import|from|class|def|if|for|with|try|except|else|elif|assert|return)\b.*"
    r"|[])}'\"]|[A-Za-z_][\w.]*(?:\(|\[|[ \t]*[-+*/]?=(?!=)))"
)
_DEFINITION_LINE = re.compile(r"^(?:@\w|class \w|def \w|\w+[ \t]*=[ \t])")


class Extraction(Record):
    """A source, or the reason why there is none; exactly one of the two is set."""

    source: str | None = None
    reason: str | None = None


@dataclass
class _Part:
    """A run of prose, or what stands inside one fence."""

    is_code: bool
    in_implementation: bool
    """Under a heading `Code Implementation`."""
    margin: str = ""
    """What stands before the opening fence: white space, list or quotation marks."""
    is_closed: bool = False
    lines: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """Its lines, less the margin of its fence."""
        return "\n".join(_without(self.margin, self.lines))


def extract(text: str) -> Extraction:
    """The source of `ModelNew` in an answer.

    Looks, in this order, at the code blocks under a `Code Implementation` heading, at all code
    blocks, and at prose that turns into code; takes the last that defines `ModelNew`. Reasoning
    between tags is dropped first. A block that was never closed counts: whether a truncated
    source still runs is for the harness to find out.
    """
    if "\x00" in text:
        return Extraction(reason="contains NUL bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        return Extraction(reason="contains characters that are no text (lone surrogates)")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    parts = _parts(_after_orphan_reasoning(lines))
    blocks = [part for part in parts if part.is_code]
    if not blocks and not any(line.strip() for part in parts for line in part.lines):
        return Extraction(reason="nothing but reasoning" if text.strip() else "empty answer")
    for among in ([b for b in blocks if b.in_implementation], blocks):
        defining = [source for block in among if (source := _defining(block.text))]
        if defining:
            return _checked(defining[-1])
    for part in reversed(parts):
        if not part.is_code and ENTRY.search(part.text):
            return _checked(_code_in_prose(part.lines))
    if blocks and not blocks[-1].is_closed:
        return Extraction(reason="cut off before any code defined class ModelNew")
    return Extraction(reason="no code that defines class ModelNew")


def _checked(block: str) -> Extraction:
    source = block.strip("\n").rstrip() + "\n"
    if len(source) > MAX_SOURCE_CHARS:
        return Extraction(reason=f"source of {len(source)} characters is too long")
    return Extraction(source=source)


def _defining(block: str) -> str | None:
    """The block, moved to the left margin if need be, when it defines `ModelNew`."""
    for source in (block, textwrap.dedent(block)):
        if ENTRY.search(source):
            return source
    return None


def _after_orphan_reasoning(lines: list[str]) -> list[str]:
    """The lines after a closing reasoning tag whose opening one was part of the prompt."""
    first = next((line for line in lines if line.strip()), "")
    if _OPEN.match(first) or _REASONING_OPEN.match(first):
        return lines
    for index, line in enumerate(lines):
        if _REASONING_OPEN.match(line):
            return lines
        if _REASONING_CLOSE.match(line):
            return [_REASONING_CLOSE.sub("", line), *lines[index + 1 :]]
    return lines


def _parts(lines: list[str]) -> list[_Part]:
    """The answer as runs of prose and code blocks, without reasoning."""
    parts = [_Part(is_code=False, in_implementation=False)]
    fence = ""  # of the block that is open
    closing_tag = ""  # of the reasoning that is open
    for line in lines:
        here = parts[-1]
        if closing_tag:
            if closing_tag in line.lower():
                closing_tag = ""
            continue
        if not fence and (reasoning := _REASONING_OPEN.match(line)):
            tag = f"</{reasoning[1].lower()}>"
            closing_tag = "" if tag in line.lower() else tag
            continue
        opening = _opening(line, fence)
        if opening is not None:
            fence = opening["fence"]
            margin = opening.groupdict().get("margin") or ""
            parts.append(_Part(True, here.in_implementation, margin))
            if code := _CODE_IN_INFO.match(opening["info"]):
                parts[-1].lines.append(code[1])
        elif fence and (rest := _before_closing(line, fence)) is not None:
            here.lines += [rest] if rest.strip() else []
            here.is_closed, fence = True, ""
            parts.append(_Part(is_code=False, in_implementation=here.in_implementation))
        elif not fence and (_SECTION.match(line) or _IMPLEMENTATION.match(line)):
            parts.append(_Part(False, bool(_IMPLEMENTATION.match(line)), lines=[line]))
        else:
            here.lines.append(line)
    return parts


def _opening(line: str, fence: str) -> re.Match[str] | None:
    """The match of an opening fence, where `fence` is that of the block the line is in, if any.

    Inside a block only a fence of its kind with a language opens the next: somebody forgot to
    close.
    """
    found = _OPEN.match(line)
    if not fence:
        return found or (_OPEN_AFTER_PROSE.match(line) if "```" in line else None)
    if found and found["fence"][0] == fence[0] and re.match(r"^[\w+.-]+\s*$", found["info"]):
        return found
    return None


def _before_closing(line: str, fence: str) -> str | None:
    """What stands before the closing fence of a block, or None when the line has none."""
    stripped = line.rstrip()
    bare = stripped.rstrip(fence[0])
    if len(stripped) - len(bare) < len(fence) or fence[0] in bare:
        return None
    return "" if not bare.strip(" \t>") else bare


def _without(margin: str, lines: list[str]) -> list[str]:
    """The lines less the margin of their fence; as they are when some line does not keep it."""
    if ">" in margin:
        return [re.sub(r"^[ \t]*>[ \t]?", "", line) for line in lines]
    kept = " " * len(margin.expandtabs())
    expanded = [line.expandtabs() if margin else line for line in lines]
    if all(line.startswith(kept) for line in expanded if line.strip()):
        return [line[len(kept) :] for line in expanded]
    return lines


def _code_in_prose(lines: list[str]) -> str:
    """The lines from the first import or definition up to where prose begins again."""
    entry = next(index for index, line in enumerate(lines) if ENTRY.match(line))
    imports = (index for index in range(entry) if _IMPORT_LINE.match(lines[index]))
    definitions = (index for index in range(entry) if _DEFINITION_LINE.match(lines[index]))
    start = next(imports, next(definitions, entry))
    end = entry + 1
    while end < len(lines) and (not lines[end].strip() or _CODE_LINE.match(lines[end])):
        end += 1
    return "\n".join(lines[start:end])
