"""From a completion's text to a candidate's source, or the reason there is none.

Text is never executed or parsed as Python here: hostile source can crash a parser, and whether it
is valid is for the harness's worker to find out. `answer` takes a text apart and `piece` finds code
in it; here one piece is chosen, and completed by others where a model has split its module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from cudal1.answer import Answer, Part, read
from cudal1.piece import Piece, is_edit, pieces_of
from cudal1.python_text import (
    ENTRY_CLASS,
    assigns_entry,
    defines_entry,
    is_imports_only,
    names_of,
    top_classes,
)
from cudal1.record import Record

MAX_SOURCE_CHARS = 200_000
"""A longer source is refused: nothing that a person would write for one module comes near it."""

NO_CODE = f"no code that defines class {ENTRY_CLASS}"
CUT_OFF = f"cut off before any code defined class {ENTRY_CLASS}"
ONLY_A_DIFF = f"only a diff that touches class {ENTRY_CLASS}, not its source"
_MAX_NAMES = 4

_NOT_PYTHON = frozenset(
    "bash sh shell zsh console text txt plaintext output log json yaml toml xml html markdown md "
    "c c++ cpp cxx cuda cu h hpp hip glsl asm ptx diff patch cmake make makefile dockerfile".split()
)
_NO_ATTEMPT = frozenset("bash sh shell zsh console text txt plaintext output log".split())
_JSON_STRING = re.compile(r'\\.|"(?:[^"\\\n]|\\.)*"')
_ENTRY_IN_JSON = rf"\nclass {ENTRY_CLASS}"


class Extraction(Record):
    """A source, or the reason why there is none; exactly one of the two is set."""

    source: str | None = None
    reason: str | None = None


def extract(text: str) -> Extraction:
    """The source of `ModelNew` in an answer.

    Looks, in this order, at code under a `Code Implementation` heading, at what follows it, and, if
    nothing was attempted there, at all code; in blocks first, then in prose. Of several pieces that
    define `ModelNew` it takes the last, but rather one that is complete, and not under a heading
    that speaks of an alternative. A block that was never closed counts: whether a truncated source
    still runs is for the harness to find out.
    """
    if problem := _unreadable(text):
        return Extraction(reason=problem)
    answer = read(text)
    if answer.is_empty:
        if not answer.has_reasoning:
            return Extraction(reason="empty answer")
        is_cut = answer.is_cut_in_reasoning
        return Extraction(reason="nothing but reasoning" + (", cut off" if is_cut else ""))
    for group in _groups(answer):
        if (source := _source(pieces_of(group))) is not None:
            return _checked(source)
    for inner in _json_strings(text):
        if (found := extract(inner)).source is not None:
            return found
    return Extraction(reason=_reason(answer))


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
    """Parts of the answer among which to look, best first."""
    if answer.after_last_thought:
        yield from _by_section(answer.parts[answer.after_last_thought :])
    yield from _by_section(answer.parts)


def _by_section(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """The implementation, what follows it, and all if neither attempts an answer."""
    late = _from_implementation(parts)
    if late is not parts:
        yield [part for part in parts if part.in_implementation]
        yield late
        if any(_is_attempt(part) for part in late) or _is_bare_heading(late):
            return
    yield parts


def _from_implementation(parts: Sequence[Part]) -> Sequence[Part]:
    """The parts from the first `Code Implementation` heading on; all parts if there is none."""
    first = next((i for i, part in enumerate(parts) if part.in_implementation), None)
    return parts if first is None else parts[first:]


def _is_attempt(part: Part) -> bool:
    return part.is_code and part.language not in _NO_ATTEMPT


def _is_bare_heading(parts: Sequence[Part]) -> bool:
    """Whether the answer ends with the heading."""
    return not any(line.strip() for part in parts for line in part.lines[not part.is_code :])


def _source(pieces: list[Piece]) -> str | None:
    """The best piece that defines `ModelNew`, completed by others if it needs them."""
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
    """A piece with what it uses and only other pieces bind: imports, kernels, helpers.

    Models split a module over several blocks, as they would explain it. Pieces are joined as
    somebody would paste them: in order, but late imports first. A piece that stands alone is left
    alone, so that nothing else in the answer can change it.
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
    """Whether a piece may be joined to another; a later use of `ModelNew` is an example."""
    if not piece.is_fenced:
        return is_imports_only(piece.lines)
    if piece.part.language in _NOT_PYTHON or (is_later and piece.part.is_cut):
        return False
    return not (is_later and any(f"{ENTRY_CLASS}(" in line for line in piece.lines))


def _json_strings(text: str) -> Iterator[str]:
    """Strings of JSON that hold a `ModelNew` with its line breaks escaped, the last one first."""
    if _ENTRY_IN_JSON not in text:
        return
    found = [m[0] for m in _JSON_STRING.finditer(text) if _ENTRY_IN_JSON in m[0]]
    for quoted in reversed(found):
        try:
            inner = json.loads(quoted, strict=False)
        except ValueError:
            continue
        if isinstance(inner, str) and _ENTRY_IN_JSON not in inner:
            yield inner


def _reason(answer: Answer) -> str:
    """Why no piece defines `ModelNew`."""
    parts = _from_implementation(answer.parts)
    blocks = [part for part in parts if part.is_code]
    has_code = any(_is_attempt(part) for part in parts)
    if parts is not answer.parts and not has_code and _is_bare_heading(parts):
        return CUT_OFF
    if blocks and blocks[-1].is_cut:
        return CUT_OFF
    if any(is_edit(block.lines) and ENTRY_CLASS in "\n".join(block.lines) for block in blocks):
        return ONLY_A_DIFF
    names = list(dict.fromkeys(
        name
        for piece in pieces_of(parts if has_code else answer.parts)
        if piece.part.language not in _NOT_PYTHON
        for name in top_classes(piece.lines)
    ))  # fmt: skip
    if not names:
        return NO_CODE
    if names[_MAX_NAMES:]:
        names[_MAX_NAMES:] = [f"{len(names) - _MAX_NAMES} more"]
    said = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    return f"defines {said} but not {ENTRY_CLASS}"
