r"""Removes what a source says about itself, for a model that must judge what the source does.

Comments in strings of C code are removed by `cudal1.llm.reviewer.c_comments`; the prompt is
elsewhere.

Threat: comments and docstrings are where a candidate would talk to the reviewer, so they go. It
would be worse to take code for a comment: code that is hidden from the reviewer runs all the same.
So every removal is checked: the syntax tree must stay the same, bare strings apart. A source that
cannot be checked so is shown as it is, under a line that says so.

A source that could read its own docstrings keeps them all. A source that could read its file keeps
its comments, too. Every other docstring leaves a mark with its length. Strings lose their C
comments only if they go to compilers, and nowhere else (`cudal1.llm.reviewer.compiled`). Words in
names and in strings that are used stay. Nothing that is shown is invisible: a name stands as Python
reads it (NFKC). A character that has no picture, or moves others, stands as its code point.

Comments are found by `tokenize` after `ast.parse` has accepted the source. Pygments' Python lexer
took over 10 s for 100 KB of blank lines (measured, 2.21). `tokenize` alone took as long for 100 KB
of `'\`; but that is no Python, so `tokenize` never gets to see it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata
from collections.abc import Iterator
from itertools import accumulate, zip_longest

from cudal1.files.python_file import MAX_PARSED, as_read, misread, parsed, visible
from cudal1.llm.reviewer.c_comments import without_c_comments
from cudal1.llm.reviewer.compiled import compiled

__all__ = ["MAX_SHOWN", "NOT_STRIPPED", "meaning", "stripped"]

MAX_SHOWN = 200_000
"""The most characters of a source that are shown: all of any candidate, since
`cudal1.extract.extract` admits none that is longer. A longer source is shown by its two ends."""
NOT_STRIPPED = "# [cudal1's note: comments could not be removed from this source]\n"

Edit = tuple[int, int, bytes]
"""Start, end, and the replacement; places count bytes of UTF-8."""

_READS_ITSELF = re.compile(
    r"__doc__|__code__|co_consts|getdoc|getsource|inspect|linecache|__file__|get_objects"
)
"""Words by which a program may get its own bare strings. If it hides those words, it shows what it
does with the strings."""
_READS_FILE = re.compile(
    r"getsource|getcomments|inspect|linecache|traceback|tokenize|__file__|__loader__|__spec__|"
    r"candidate\.py"
)
"""Words by which a program may get its own comments."""
_MARK = re.compile(rb'"\[\d{1,6} bytes of a string removed\]"')
_BLANK_LINES = re.compile(rb"\n(?:[ \t\f]*+\n){2,}")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def stripped(source: str, *, max_chars: int = MAX_SHOWN) -> str:
    r"""Return the source without comments, bare strings, and C comments in strings of C code.

    Blank lines collapse to one, line ends become `\n`, and invisible characters become `visible`;
    all other bytes stay. A mark stands where a bare string was. A source is shown as it is, under
    `NOT_STRIPPED`, if it does not parse, is longer than `MAX_PARSED`, or would be decoded to
    another text. Strings stay unless it is sure that they hold C and are only compiled.

    The result has at most some `max_chars` characters, with a mark where the middle was. It can
    always be encoded in UTF-8.
    """
    code = _code(source)
    shown = NOT_STRIPPED + as_read(source) if code is None else code
    return _shortened(visible(shown, max_chars=max_chars), max_chars)


def meaning(source: str) -> str:
    """Return a text that is the same for all sources that differ in what `stripped` removes.

    Layout and the lengths of docstrings do not count either. Everything counts in a source that
    cannot be stripped, or might read its own docstrings.
    """
    code = _code(source)
    tree = None if code is None else parsed(code, limit=2 * MAX_PARSED)
    if code is None or tree is None:
        return f"{NOT_STRIPPED}{source}"
    return code if _READS_ITSELF.search(code) else "\n".join(map(repr, _outline(tree)))


def _shortened(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n# [cudal1's note: {left_out} characters left out]\n{text[-half:]}"


def _code(source: str) -> str | None:
    """Return the whole source, stripped; None when that cannot be done, or not be checked."""
    if len(source) > MAX_PARSED or misread(source):
        return None
    text = as_read(source)
    tree = parsed(text)
    if tree is None:
        return None
    encoded = text.encode()
    idle = [] if _READS_ITSELF.search(text) else list(_idle_statements(tree, encoded))
    for with_lines in (True, False):  # a line that a backslash continues must not go
        tokens = _tokens(text, with_lines, keeps_comments=bool(_READS_FILE.search(text)))
        if tokens is None:
            return None
        edits = [*tokens, *idle]
        shorter = _edited(encoded, edits)
        tree_after = parsed(shorter.decode(), limit=2 * MAX_PARSED)  # a mark is longer than `""`
        if tree_after is not None and _are_alike(tree, tree_after):
            return _tidied(shorter, tree_after).decode().strip("\n") + "\n"
    return None


# --- Python --------------------------------------------------------------------------------------


def _tokens(text: str, with_lines: bool, *, keeps_comments: bool) -> list[Edit] | None:
    """Return edits that remove comments and normalise names; None where not all can be read."""
    edits: list[Edit] = []
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    places = [0, *accumulate(len(character.encode()) for character in text)]
    plain = _NOT_ASCII.sub("x", text)  # 3.12 takes time quadratic in a line's length if not ASCII
    try:
        for token in tokenize.generate_tokens(io.StringIO(plain).readline):
            if token.type not in (tokenize.NAME, tokenize.COMMENT):
                continue
            row, column = token.start
            line, start = lines[row - 1], starts[row - 1]
            if token.type == tokenize.NAME:
                name = line[column : token.end[1]]
                if (normal := unicodedata.normalize("NFKC", name)) != name:
                    end = start + column + len(name)
                    edits.append((places[start + column], places[end], normal.encode()))
            elif not keeps_comments:
                before, end = line[:column].rstrip(" \t"), start + len(line)
                if line[:column].strip():
                    edits.append((places[start + len(before)], places[end], b""))
                else:
                    edits.append((places[start], places[end] + with_lines, b""))
    except (tokenize.TokenError, SyntaxError):
        return None
    return edits


def _idle_statements(tree: ast.Module, text: bytes) -> Iterator[Edit]:
    """Yield an edit for each statement that holds only strings: a mark takes its place."""
    starts = _line_starts(text)
    for block in _blocks(tree):
        for node in filter(_is_idle, block):
            start, end = _span(node, starts)
            if _MARK.fullmatch(text, start, end) is None:
                yield start, end, f'"[{end - start} bytes of a string removed]"'.encode()


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _is_idle(node: object) -> bool:
    """Return whether a node is a statement of strings alone, in tuples and lists or not."""
    if not isinstance(node, ast.Expr):
        return False
    waiting: list[ast.expr] = [node.value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.Tuple | ast.List) and inner.elts:
            waiting += inner.elts
        elif not (isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes)):
            return False
    return True


def _are_alike(one: ast.Module, other: ast.Module) -> bool:
    """Return whether two trees differ in idle statements and `pass` at most."""
    pairs = zip_longest(_outline(one), _outline(other))
    return all(type(a) is type(b) and a == b for a, b in pairs)


def _outline(tree: ast.Module) -> Iterator[object]:
    """Yield all that a tree holds but places, in a fixed order.

    It does not recurse, since trees may be deep.
    """
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            kept = [p for p in part if not (isinstance(p, ast.Pass) or _is_idle(p))]
            yield len(kept)
            waiting += kept
        elif isinstance(part, ast.AST):
            yield type(part).__name__
            waiting += [getattr(part, name, None) for name in part._fields]
        else:
            yield part


def _line_starts(text: bytes) -> list[int]:
    return [0, *(found.end() for found in re.finditer(rb"\n", text))]


def _span(node: ast.stmt | ast.expr, starts: list[int]) -> tuple[int, int]:
    last = node.end_lineno or node.lineno
    return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + (node.end_col_offset or 0)


def _edited(text: bytes, edits: list[Edit]) -> bytes:
    pieces, place = list[bytes](), 0
    for start, end, instead in sorted(edits):
        if start >= place:  # else within a removed span
            pieces += [text[place:start], instead]
            place = end
    return b"".join([*pieces, text[place:]])


# --- blank lines, and strings --------------------------------------------------------------------


def _tidied(text: bytes, tree: ast.Module) -> bytes:
    """Return the text with single blank lines and without C comments in compiled strings.

    Blank lines stay inside strings of several lines.
    """
    pieces, place = list[bytes](), 0
    for start, end, is_compiled in sorted(_long_strings(tree, text.decode(), _line_starts(text))):
        if start >= place:
            literal = text[start:end].decode()
            pieces += [
                _BLANK_LINES.sub(b"\n\n", text[place:start]),
                (without_c_comments(literal) if is_compiled else literal).encode(),
            ]
            place = end
    return b"".join([*pieces, _BLANK_LINES.sub(b"\n\n", text[place:])])


def _long_strings(
    tree: ast.Module, source: str, starts: list[int]
) -> Iterator[tuple[int, int, bool]]:
    """Yield the span of each string of several lines, and whether compilers alone read it."""
    given = compiled(tree, source)
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant | ast.JoinedStr):
            if node.end_lineno != node.lineno:
                yield *_span(node, starts), id(node) in given
        else:
            waiting += ast.iter_child_nodes(node)
