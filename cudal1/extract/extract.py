"""The extraction of a candidate's source from a completion, or the reason why there is none.

`answer` splits a text into parts, and `piece` finds code in them. This module chooses one piece and
completes it with others where a model has split its module. Where the result is no Python, the
texts that `carriers` find inside the answer are tried, and taken if they are Python. No text is
executed. A hostile text is parsed as in `python_file`, within bounds. The harness's worker finds
out whether a source runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cudal1.extract.answer import Answer, Part, read
from cudal1.extract.carriers import held_in, reread
from cudal1.extract.marked_lines import ESCAPES, MARKS
from cudal1.extract.piece import Piece, is_edit, pieces_of, without_margin
from cudal1.extract.python_text import (
    ENTRY_CLASS,
    assigns_entry,
    defines_entry,
    is_imports_only,
    names_of,
    top_classes,
)
from cudal1.extract.turn import REASONING_CLOSE, turn_of
from cudal1.files.python_file import MAX_PARSED, parsed
from cudal1.record import Record

MAX_SOURCE_CHARS = 200_000
"""Maximum length of a source in characters; no source that a person writes for one module is nearly
as long."""

NO_CODE = f"no code that defines class {ENTRY_CLASS}"
CUT_OFF = f"cut off before any code defined class {ENTRY_CLASS}"
ONLY_A_DIFF = f"only a diff that touches class {ENTRY_CLASS}, not its source"
_MAX_NAMES = 4
_MOST_TEXTS = 12
"""Maximum number of texts inside an answer, and inside those, that are tried."""
_MOST_CHARS = 600_000
"""Maximum number of characters of all these texts."""

_NOT_PYTHON = frozenset(
    "bash sh shell zsh console text txt plaintext output log json yaml toml xml html markdown md "
    "c c++ cpp cxx cuda cu h hpp hip glsl asm ptx diff patch cmake make makefile dockerfile".split()
)
_NO_ATTEMPT = frozenset("bash sh shell zsh console text txt plaintext output log".split())


class Extraction(Record):
    """A source, or the reason why there is none; exactly one of the two is set."""

    source: str | None = None
    reason: str | None = None


def extract(text: str) -> Extraction:
    """Return the source of `ModelNew` in an answer.

    It looks at code under a `Code Implementation` heading, then at what follows it, and, if nothing
    was attempted there, at all code; in blocks first, then in prose. Of several pieces that define
    `ModelNew` it takes the last, but rather one that is complete, and not under a heading about an
    alternative. A block that was never closed counts: the harness finds out whether a truncated
    source still runs. Where nothing is found, or no Python, texts that the answer carries in other
    ways are searched likewise, and taken if they are Python.
    """
    if problem := _unreadable(text):
        return Extraction(reason=problem)
    answer = read(text)
    if answer.is_empty:
        if not answer.has_reasoning:
            return Extraction(reason="empty answer")
        is_cut = answer.is_cut_in_reasoning
        return Extraction(reason="nothing but reasoning" + (", cut off" if is_cut else ""))
    source = _source_in(answer)
    if source is None or not _is_python(source):
        carried, doubtful = _carried(text, answer)
        source = carried or source or doubtful
    return Extraction(reason=_reason(answer)) if source is None else _checked(source)


def _carried(text: str, answer: Answer) -> tuple[str | None, str | None]:
    """Return the first Python source that the answer carries in another way.

    The second value is the first source that has a text of its own and is no Python.
    """
    body = turn_of(text)
    ends = [end.end() for end in REASONING_CLOSE.finditer(body)] if answer.has_reasoning else []
    body = body[ends[-1] :] if ends else body
    if answer.is_cut_in_reasoning or (ENTRY_CLASS not in body and body.isascii()):
        return None, None
    texts, num_held, doubtful = [body], 0, None
    for number in range(_MOST_TEXTS):
        if number == len(texts) or sum(map(len, texts[: number + 1])) > _MOST_CHARS + len(body):
            break
        if number and "```" in texts[number] and _is_a_source(texts[number]):
            return texts[number], doubtful  # the fence stands in a docstring and marks no block
        inner = read(texts[number])
        for source in _sources_in(inner, is_whole=number == 0):
            if _is_python(source):
                return source, doubtful
            doubtful = doubtful or (source if 0 < number <= num_held else None)
        texts += [t for t in held_in(texts[number]) if t not in texts and ENTRY_CLASS in t]
        num_held = num_held if number else len(texts) - 1
        texts += [t for t in reread(texts[number]) if t not in texts and ENTRY_CLASS in t]
    return None, doubtful


def _sources_in(answer: Answer, *, is_whole: bool) -> Iterator[str]:
    """Yield the sources of an answer, as it stands and with each change of its lines undone."""
    if not is_whole and (source := _source_in(answer)) is not None:
        yield source
    for undo in (*MARKS, *ESCAPES):
        undone = [
            undo(without_margin(part.margin, part.lines)) if part.is_code or undo in MARKS else None
            for part in answer.parts
        ]
        if any(lines is not None for lines in undone):
            parts = tuple(
                part if lines is None else replace(part, lines=lines, margin="")
                for part, lines in zip(answer.parts, undone, strict=True)
            )
            if (source := _source_in(replace(answer, parts=parts))) is not None:
                yield source


def _source_in(answer: Answer) -> str | None:
    """Return the source in the best group of an answer's parts that has one."""
    sources = (_source(pieces_of(group)) for group in _groups(answer))
    return next((source for source in sources if source is not None), None)


def _is_a_source(text: str) -> bool:
    """Return whether a text is Python that defines `ModelNew` as it stands."""
    return parsed(text) is not None and defines_entry(text.split("\n"))


def _is_python(source: str) -> bool:
    """Return whether a source parses; a long one is not tried."""
    return len(source) > MAX_PARSED or parsed(source) is not None


def _unreadable(text: str) -> str | None:
    if "\x00" in text:
        return "contains NUL bytes"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains characters that are no text (lone surrogates)"
    return None


def _checked(code: str) -> Extraction:
    source = code.strip("\n").rstrip() + "\n"
    if len(source) > MAX_SOURCE_CHARS:
        return Extraction(reason=f"source of {len(source)} characters is too long")
    return Extraction(source=source)


def _groups(answer: Answer) -> Iterator[Sequence[Part]]:
    """Yield groups of the answer's parts to search, the best first."""
    if answer.after_last_thought:
        yield from _by_section(answer.parts[answer.after_last_thought :])
    yield from _by_section(answer.parts)


def _by_section(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Yield the implementation, the parts from it on, and all if neither attempts an answer."""
    late = _from_implementation(parts)
    if late is not parts:
        yield [part for part in parts if part.in_implementation]
        yield late
        if any(_is_attempt(part) for part in late) or _is_bare_heading(late):
            return
    yield parts


def _from_implementation(parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts from the first `Code Implementation` heading on; without one, all."""
    first = next((i for i, part in enumerate(parts) if part.in_implementation), None)
    return parts if first is None else parts[first:]


def _is_attempt(part: Part) -> bool:
    return part.is_code and part.language not in _NO_ATTEMPT


def _is_bare_heading(parts: Sequence[Part]) -> bool:
    """Return whether the answer ends with the heading."""
    return not any(line.strip() for part in parts for line in part.lines[not part.is_code :])


def _source(pieces: list[Piece]) -> str | None:
    """Return the best piece that defines `ModelNew`, completed by others if needed."""
    for defines in (defines_entry, assigns_entry):
        for is_fenced in (True, False):
            defining = [
                (piece.rank, number)
                for number, piece in enumerate(pieces)
                if piece.is_fenced is is_fenced and defines(piece.lines)
            ]
            if defining:
                return _completed(pieces, max(defining)[1])
    return None


def _completed(pieces: list[Piece], chosen: int) -> str:
    """Return a piece with the imports, kernels and helpers that only other pieces bind.

    Models split a module over several blocks to explain it. Pieces are joined as a person would
    paste them: in order, but late imports first. A piece that needs no other is left alone, so that
    nothing else in the answer can change it.
    """
    needed = set(names_of(pieces[chosen].lines).free)
    before, after = list[list[str]](), list[list[str]]()
    for number in [*range(chosen - 1, -1, -1), *range(chosen + 1, len(pieces))]:
        piece = pieces[number]
        if not needed or not _may_complete(piece, is_later=number > chosen):
            continue
        names = names_of(piece.lines)
        if needed & names.top:
            needed = (needed - names.top) | names.free
            if number > chosen and not is_imports_only(piece.lines):
                after.append(piece.lines)
            else:
                before.insert(0, piece.lines)
    return "\n\n\n".join(
        "\n".join(lines).strip("\n").rstrip() for lines in [*before, pieces[chosen].lines, *after]
    )


def _may_complete(piece: Piece, *, is_later: bool) -> bool:
    """Return whether a piece may complete another; a later use of `ModelNew` is an example."""
    if not piece.is_fenced:
        return is_imports_only(piece.lines)
    if piece.part.language in _NOT_PYTHON or (is_later and piece.part.is_cut):
        return False
    return not (is_later and any(f"{ENTRY_CLASS}(" in line for line in piece.lines))


def _reason(answer: Answer) -> str:
    """Return why no piece defines `ModelNew`."""
    parts = _from_implementation(answer.parts)
    blocks = [part for part in parts if part.is_code]
    has_code = any(_is_attempt(part) for part in parts)
    if parts is not answer.parts and not has_code and _is_bare_heading(parts):
        return CUT_OFF
    if blocks and blocks[-1].is_cut:
        return CUT_OFF
    if any(is_edit(block.lines) and ENTRY_CLASS in "\n".join(block.lines) for block in blocks):
        return ONLY_A_DIFF
    names = list(
        dict.fromkeys(
            name
            for piece in pieces_of(parts if has_code else answer.parts)
            if piece.part.language not in _NOT_PYTHON
            for name in top_classes(piece.lines)
        )
    )
    if not names:
        return NO_CODE
    if names[_MAX_NAMES:]:
        names[_MAX_NAMES:] = [f"{len(names) - _MAX_NAMES} more"]
    said = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    return f"defines {said} but not {ENTRY_CLASS}"
