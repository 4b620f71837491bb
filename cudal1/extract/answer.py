"""An answer's text as runs of prose and code blocks, without the model's reasoning before it.

The text is read line by line, once. Fences, sections and tags are understood as models write them:
forgotten, unclosed, nested, quoted, inside strings. `extract` chooses among the blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from cudal1.extract.python_text import strip_line
from cudal1.extract.turn import REASONING_CLOSE, REASONING_OPEN, turn_of

_MARGIN = r"(?P<margin>(?:[ \t]|>|(?:\d{1,3}[.)]|[-*+])[ \t])*)"
_FENCE = rf"^{_MARGIN}(?P<fence>`{{3,}}|~{{3,}})"
_OPEN = re.compile(rf"{_FENCE}(?P<info>[^`]*)$")
_CLOSE_AND_MORE = re.compile(_FENCE)
_OPEN_AFTER_PROSE = re.compile(r"^[^`]*[^`\s](?:[ \t]+|:)(?P<fence>`{3,})(?P<info>[\w+.-]*)\s*$")
_OPEN_TAG = re.compile(
    r"^\s*(?:<pre\b[^<>]{0,200}>\s*(?:<code\b[^<>]{0,200}>)?|<code\b[^<>]{0,200}>)(?P<rest>.*)$",
    re.IGNORECASE,
)
_CLOSE_TAG = re.compile(
    r"</(?P<name>answer|code|pre|kernel|output|python|response|result|solution)>\s*$", re.IGNORECASE
)
_LANGUAGE = re.compile(r"^\s?(?:[\w+.-]+\s*$|(?:python|py|cpp|cuda)\b)", re.IGNORECASE)
_MARKDOWN = ("markdown", "md")
_CODE_IN_INFO = re.compile(r"^\s*(?:[\w+.-]+\s+)?((?:import|from|class)\s.*)$")
_SECTION = re.compile(r"^\s{0,3}#{2,6}\s+\S|^\s{0,3}\*\*[^*]+\*\*:?\s*$")  # `#` comments
_IMPLEMENTATION = re.compile(
    r"^[^\w\n]{0,12}(?:(?:step|part|section)\W{1,4})?(?:\d{1,2}\W{1,4})?(?:final\s+)?"
    r"code\s+implementation\b.{0,40}$",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\b(?:alternatives?|variants?|optional|fallback|original|reference|baseline|previous|naive)\b",
    re.IGNORECASE,
)
_MOST_TAGS = 4
"""Maximum number of tags that are looked for at the end of a line."""
_DEEPEST = 7
"""Level of a heading without `#`: bold, or a plain line."""


@dataclass
class Part:
    """A run of prose, or the content of one fence."""

    is_code: bool
    in_implementation: bool = False
    """True if it is under a heading `Code Implementation`."""
    is_aside: bool = False
    """True if it is under a heading about another version: an alternative, the original."""
    info: str = ""
    """Text after the opening fence: the language."""
    margin: str = ""
    """Text before the opening fence: white space, list or quotation marks."""
    is_closed: bool = False
    """True if a fence of its own, or a tag, closes it."""
    is_cut: bool = False
    """True if the answer ends in it."""
    lines: list[str] = field(default_factory=list[str])

    @property
    def language(self) -> str:
        """The language in lower case; empty when none is named."""
        named = re.match(r"[\s{.]*([\w+#-]*)", self.info)
        return named[1].lower() if named else ""

    @property
    def is_blank(self) -> bool:
        """Return whether it holds nothing but white space."""
        return not any(line.strip() for line in self.lines)


@dataclass(frozen=True)
class Answer:
    """The parts of an answer, in order."""

    parts: tuple[Part, ...]
    after_last_thought: int
    """Index of the first part behind the last closing tag of reasoning."""
    has_reasoning: bool
    is_cut_in_reasoning: bool

    @property
    def is_empty(self) -> bool:
        """Return whether it holds nothing but reasoning."""
        return all(part.is_blank and not part.is_code for part in self.parts)


def read(text: str) -> Answer:
    """Return the answer in a text.

    Reasoning is left out. If there is nothing else, but the reasoning comes to a `Code
    Implementation`, that is the answer: the model forgot to close its tag, or answered inside it.
    """
    reader = _Reader(turn_of(text).split("\n"))
    thoughts = reader.reasoning
    answer = Answer(
        parts=tuple(reader.parts),
        after_last_thought=reader.after_last_thought,
        has_reasoning=bool(thoughts),
        is_cut_in_reasoning=reader.in_reasoning,
    )
    headings = [i for i, line in enumerate(thoughts) if _IMPLEMENTATION.match(line)]
    if answer.is_empty and headings:
        parts = tuple(_Reader(thoughts[headings[-1] :]).parts)
        return replace(answer, parts=parts, after_last_thought=0)
    return answer


class _Reader:
    """Splits an answer into parts while it goes through its lines."""

    def __init__(self, lines: list[str]) -> None:
        self.parts = [Part(is_code=False)]
        self.reasoning: list[str] = []
        self.in_reasoning = False
        self.after_last_thought = 0
        self._lines = lines
        self._fence = ""  # fence of the open block
        self._quote = ""  # triple quote that is open in that block
        self._string_until = -1  # the last line of that string, once it is known
        self._level = 0  # level of the implementation's heading
        for index in range(len(lines)):
            line = self._without_reasoning(index)
            if line is not None:
                (self._read_code if self._fence else self._read_prose)(index, line)
        if self._fence:
            self._cut_off()

    def _without_reasoning(self, index: int) -> str | None:
        """Return a line without reasoning, or None when all of it is reasoning."""
        line, at = self._lines[index], 0
        if "<" not in line and "[" not in line and "◁" not in line:  # no tag
            if self.in_reasoning:
                self.reasoning.append(line)
            return None if self.in_reasoning else line
        while True:
            if self.in_reasoning:
                end = REASONING_CLOSE.search(line, at)
                self.reasoning.append(line[at : end.start()] if end else line[at:])
                if end is None:
                    return None
                self.in_reasoning, at = False, end.end()
                self._start_anew()
            elif not self._fence and (opening := REASONING_OPEN.match(line, at)):
                self.in_reasoning, at = True, opening.end()
                self.reasoning.append("")
            elif end := self._stray_close(index, line, at):
                if not self.reasoning:  # the opening tag was part of the prompt
                    self.reasoning += self._lines[:index]
                    self.parts.clear()
                    self._level = 0
                self.reasoning.append(line[at : end.start()])
                at = end.end()
                self._fence = self._quote = ""
                self._start_anew()
            else:
                break
        rest = line[at:]
        return None if at and not rest.strip() else rest

    def _stray_close(self, index: int, line: str, at: int) -> re.Match[str] | None:
        """Return a closing tag of reasoning without an opening; in code it is alone on its line."""
        end = REASONING_CLOSE.search(line, at)
        if end is None or not self._fence:
            return end
        is_alone = not line[at : end.start()].strip()
        return end if is_alone and not self._is_inside_string(index) else None

    def _start_anew(self) -> None:
        """Begin a part behind reasoning."""
        self.after_last_thought = len(self.parts)
        self._add(is_code=False)

    def _add(self, *, is_code: bool, info: str = "", margin: str = "") -> Part:
        last = self.parts[-1] if self.parts else Part(is_code=False)
        part = Part(is_code, last.in_implementation, last.is_aside, info, margin)
        self.parts.append(part)
        return part

    def _read_prose(self, _index: int, line: str) -> None:
        opening = _OPEN.match(line) or (_OPEN_AFTER_PROSE.match(line) if "```" in line else None)
        if opening:
            self._open(opening)
        elif (tag := _OPEN_TAG.match(line)) and not _CLOSE_TAG.search(line):
            self._fence = "</"
            self._add(is_code=True).lines += [tag["rest"]] if tag["rest"].strip() else []
        elif heading := _IMPLEMENTATION.match(line) or _SECTION.match(line):
            self._head(line, is_implementation=heading.re is _IMPLEMENTATION)
        else:
            self.parts[-1].lines.append(line)

    def _head(self, line: str, *, is_implementation: bool) -> None:
        """Begin the section of a heading; a deeper one stays within the implementation."""
        marks = line.lstrip(" ")
        level = len(marks) - len(marks.lstrip("#")) or _DEEPEST
        part = self._add(is_code=False)
        part.lines.append(line)
        if level <= self._level or (is_implementation and not self._level):
            part.in_implementation = is_implementation
            self._level = level if is_implementation else 0
        part.is_aside = not is_implementation and _ASIDE.search(line) is not None

    def _open(self, opening: re.Match[str]) -> None:
        found = opening.groupdict()
        self._fence, self._quote, self._string_until = found["fence"], "", -1
        self._add(is_code=True, info=found["info"], margin=found.get("margin") or "")
        if code := _CODE_IN_INFO.match(found["info"]):
            self._take(code[1])

    def _close(self, rest: str) -> None:
        block = self.parts[-1]
        block.lines += [rest] if rest.strip(" \t>") else []
        block.is_closed, self._fence, self._quote = True, "", ""
        self._add(is_code=False)

    def _take(self, line: str) -> None:
        self.parts[-1].lines.append(line)
        _, self._quote = strip_line(line, self._quote)

    def _read_code(self, index: int, line: str) -> None:
        if "```" in line or "~~~" in line or "</" in line:
            opening, rest = self._opening(line), self._before_closing(line)
            is_mark = opening is not None or rest is not None
            if is_mark and not self._is_inside_string(index):
                if opening is not None:  # the model forgot to close
                    self._open(opening)
                else:
                    self._close(rest or "")
                return
        self._take(line)

    def _opening(self, line: str) -> re.Match[str] | None:
        """Return a fence that opens the next block inside a block; None without one.

        Only a fence of the same kind with a language opens one. Around Markdown, and inside a tag,
        any fence does.
        """
        found = _OPEN.match(line)
        if found is None:
            return None
        if self._fence == "</":
            return found
        is_kin = found["fence"][0] == self._fence[0] or self.parts[-1].language in _MARKDOWN
        return found if is_kin and _LANGUAGE.match(found["info"]) else None

    def _before_closing(self, line: str) -> str | None:
        """Return the text before the mark that closes the block, or None when the line has none.

        Prose may follow a fence: a fence is no Python.
        """
        stripped = line.rstrip()
        for _ in range(_MOST_TAGS):
            tag = _CLOSE_TAG.search(stripped, max(stripped.rfind("</"), 0))
            if tag is None or f"<{tag['name']}" in stripped:  # the tag of a word in a comment
                break
            stripped = stripped[: tag.start()].rstrip()
        has_tag = len(stripped) < len(line.rstrip())
        mark = self._fence[0]
        if mark in "`~":
            bare = stripped.rstrip(mark)
            if len(stripped) - len(bare) >= len(self._fence) and mark not in bare:
                is_in_comment = bare.lstrip().startswith("#") and bare[-1:].isspace()
                return None if is_in_comment else bare
            if (found := _CLOSE_AND_MORE.match(line)) and found["fence"].startswith(self._fence):
                return ""
        return stripped if has_tag else None

    def _is_inside_string(self, index: int) -> bool:
        """Return whether the line belongs to a triple-quoted string of the open block.

        It does only if that string ends before another block begins: quotes are forgotten more
        often than fences are. Between the line and that end, fences come in pairs.
        """
        if not self._quote:
            return False
        if index <= self._string_until:
            return True
        is_open = False
        for number in range(index, len(self._lines)):
            line = self._lines[number]
            fence = _OPEN.match(line)
            if fence and is_open and fence["info"].strip(" \t\"'"):
                return False
            is_open ^= fence is not None
            if self._quote in line:
                self._string_until = number
                return not is_open
        return False

    def _cut_off(self) -> None:
        """End the open block; its last line may be the beginning of the fence that is missing."""
        block = self.parts[-1]
        last = block.lines[-1].strip() if block.lines else ""
        block.is_closed = bool(last) and not last.strip(self._fence[0])
        block.is_cut = not block.is_closed
        if block.is_closed:
            block.lines.pop()
