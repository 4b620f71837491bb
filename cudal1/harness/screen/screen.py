"""The screen reads a source for signs of cheats. Signs label, explain and prioritise; never decide.

It reads the syntax tree, so that comments and docstrings have no effect. Nothing is run or
imported.

Threat: any sign can be written another way, so nothing may depend on finding one. The source may
also be made to exhaust its reader. So only a limited length is parsed. A source that cannot be
parsed is searched for words, and that is a label, too.

KernelGuard 0.3.2 (PyPI, MIT, June 2026, 10,600 lines in one file) is not used. It labelled 10 of 35
cheats of the corpus at that time, and 17 of the 44 shipped references. A source of 1 MB took it 34
s, and four of seven hostile ones raised errors (measured).
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, chain

from cudal1.files.python_file import MAX_PARSED, as_read, misread, parsed, visible
from cudal1.harness.screen import misleading, signs
from cudal1.harness.screen.lines import one_line
from cudal1.harness.screen.signs import Severity
from cudal1.harness.shared.wire import SOURCE_NAME
from cudal1.verdict import FlagSource, HackFlag

__all__ = ["Severity", "screen", "severity", "syntax_error"]

MAX_SOURCE_BYTES = 1 << 20
MAX_EVIDENCE = 120

_CONTEXT = 30
"""Characters that are shown before a sign on a line that is too long to be shown whole."""

Found = tuple[str, ast.AST]
"""A kind, and the node that is a sign of it."""
Place = tuple[int, int]
"""A line, counted from 1, and the number of UTF-8 bytes before the place on it."""

_BY_NAME = {name: kind for kind, names in signs.NAMES.items() for name in names}
_BY_ATTRIBUTE = {name: kind for kind, names in signs.ATTRIBUTES.items() for name in names}
_TEXTS = {kind: re.compile(pattern) for kind, pattern in signs.TEXTS.items()}
_C_COMMENT = re.compile(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//[^\n]*")
_BLANKS = re.compile(r"[ \t]+")
_WORDS = {
    kind: re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?!\w)")
    for kind, names in signs.NAMES.items()
}


def screen(source: str) -> tuple[HackFlag, ...]:
    """Return a flag for each kind of sign, with the first line that shows it; the worst first.

    A source that Python would read as another text is flagged for that, too: it is never run.
    """
    source = source[:MAX_SOURCE_BYTES]
    text = as_read(source)
    lines = text.split("\n")
    first: dict[str, Place] = {}
    for kind, place in chain(_signs(text), _misleading(source, lines)):
        first[kind] = min(place, first.get(kind, place))
    flags = [
        HackFlag(kind=kind, source=FlagSource.SCREEN, evidence=_evidence(place, lines))
        for kind, place in first.items()
    ]
    return tuple(sorted(flags, key=lambda flag: (-severity(flag), first[flag.kind])))


def severity(flag: HackFlag) -> Severity:
    """Return the urgency of a flag; flags of other sources, which decide, are alarms."""
    return signs.SEVERITIES[flag.kind] if flag.is_advisory else Severity.ALARM


def syntax_error(source: str) -> str | None:
    """Return why a source is not the Python that it seems to be; None if it is.

    Nothing else in this module decides; no process need be started to find a syntax error.
    """
    if said := misread(source):
        return one_line(said)
    if len(source) > MAX_PARSED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(as_read(source), filename=SOURCE_NAME)
    except SyntaxError as error:
        return one_line(f"{type(error).__name__}: {error}")
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _signs(text: str) -> Iterator[tuple[str, Place]]:
    """Yield every sign in the syntax tree; without a tree, every sign in the words."""
    tree = parsed(text)
    if tree is None:
        yield from _signs_of_words(text)
        return
    for kind, node in _found(tree):
        yield kind, (getattr(node, "lineno", 1), getattr(node, "col_offset", 0))


def _misleading(source: str, lines: list[str]) -> Iterator[tuple[str, Place]]:
    """Yield the signs of `misleading`, with their lines."""
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    for kind, place in misleading.signs(source):
        number = bisect_right(starts, place) - 1
        before = lines[number][: place - starts[number]]
        yield kind, (number + 1, len(before.encode("utf-8", "replace")))


def _evidence(place: Place, lines: list[str]) -> str:
    """Return the line; of a line that is too long to be shown, the part at the place."""
    number, column = place
    line = lines[number - 1] if number <= len(lines) else ""
    before = line.encode("utf-8", "replace")[:column].decode("utf-8", "ignore")
    said = _plain(before).lstrip()
    if len(said) > MAX_EVIDENCE // 2:
        said = f"… {said[-_CONTEXT:]}"
    behind = line[len(before) : len(before) + MAX_EVIDENCE]
    return f"line {number}: {f'{said}{_plain(behind)}'.strip()[:MAX_EVIDENCE]}"


def _plain(text: str) -> str:
    """Return the text with runs of blanks as one, and with unseen characters made visible."""
    return _BLANKS.sub(" ", visible(text, kept=""))


# --- the syntax tree -----------------------------------------------------------------------------


def _found(tree: ast.AST) -> Iterator[Found]:
    """Yield the kinds of signs in a tree, each with its node."""
    known = _imported(tree)
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # any bare string
    for node in ast.walk(tree):
        yield from _in_annotation(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield from _in_text(node)
        elif isinstance(node, ast.Attribute | ast.Name):
            yield from _in_name(node, known)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from _in_import(node)
        elif isinstance(node, ast.Call):
            yield from _in_call(node, known)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from _in_definition(node, known)
        elif isinstance(node, ast.ExceptHandler):
            yield "fallback", node


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return the full name of each imported name: `os.fork` for `from os import fork as f`."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
    return known


def _dotted(node: ast.AST, known: dict[str, str]) -> str:
    """Return the full name of `a.b.c`; empty where it does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([known.get(node.id, node.id), *reversed(parts)])


def _in_name(node: ast.Attribute | ast.Name, known: dict[str, str]) -> Iterator[Found]:
    name = _dotted(node, known)
    if not isinstance(node.ctx, ast.Load):
        inside = any(name.startswith(f"{module}.") for module in signs.PATCHABLE)
        if isinstance(node, ast.Attribute) and inside and not name.startswith(signs.SWITCHES):
            yield "patched_runtime", node
    elif name in _BY_NAME and (isinstance(node, ast.Attribute) or name != "id"):
        yield _BY_NAME[name], node
    if isinstance(node, ast.Attribute) and node.attr in _BY_ATTRIBUTE:
        yield _BY_ATTRIBUTE[node.attr], node


def _in_import(node: ast.Import | ast.ImportFrom) -> Iterator[Found]:
    for alias in node.names:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
        full = f"{module}.{alias.name}" if isinstance(node, ast.ImportFrom) else module
        if full.split(".")[0] == "cudal1" and full != "cudal1.harness.worker.fake":
            yield "harness_access", node
        kind = _BY_NAME.get(module) or _BY_NAME.get(full)
        if kind is not None:
            yield kind, node


def _in_call(node: ast.Call, known: dict[str, str]) -> Iterator[Found]:
    name = _dotted(node.func, known)
    if name == "setattr" and node.args:
        target = _dotted(node.args[0], known)
        if target.split(".")[0] in signs.PATCHABLE and not target.startswith(signs.SWITCHES):
            yield "patched_runtime", node
    if name == "id":
        yield "pointer_cache", node


def _in_definition(node: ast.ClassDef | ast.FunctionDef, known: dict[str, str]) -> Iterator[Found]:
    if isinstance(node, ast.ClassDef):
        bases = [_dotted(base, known) for base in node.bases]
        if "torch.Tensor" in bases:
            yield "tensor_subclass", node
    elif node.name in ("__torch_function__", "__torch_dispatch__"):
        yield "tensor_subclass", node
    elif node.name == "forward":
        yield from _in_forward(node, known)


def _in_forward(node: ast.FunctionDef, known: dict[str, str]) -> Iterator[Found]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.AugAssign) and _dotted(inner.target, known).startswith("self."):
            if isinstance(inner.value, ast.Constant):
                yield "call_counter", inner
        elif isinstance(inner, ast.Return) and isinstance(inner.value, ast.Call):
            name = _dotted(inner.value.func, known)
            if name.rpartition(".")[2] in ("empty", "empty_like", "empty_strided", "new_empty"):
                yield "uninitialised_output", inner


def _in_annotation(node: ast.AST) -> Iterator[Found]:
    """Yield the signs of the code in a quoted annotation, at the place of the string."""
    for name in ("annotation", "returns"):
        said = getattr(node, name, None)
        if isinstance(said, ast.Constant) and isinstance(said.value, str):
            tree = parsed(said.value.strip())
            yield from ((kind, said) for kind, _ in ([] if tree is None else _found(tree)))


def _in_text(node: ast.Constant) -> Iterator[Found]:
    text = _C_COMMENT.sub(" ", str(node.value)) if "\n" in str(node.value) else str(node.value)
    for kind, pattern in _TEXTS.items():
        if pattern.search(text):
            yield kind, node


# --- without a tree ------------------------------------------------------------------------------


def _signs_of_words(text: str) -> Iterator[tuple[str, Place]]:
    """Yield signs of a source without a syntax tree, from words outside strings and comments."""
    yield "unparsed", (1, 0)
    code = misleading.NO_CODE.sub(lambda found: "\n" * found.group().count("\n"), text)
    for kind, pattern in _WORDS.items():
        found = pattern.search(code)
        if found:
            yield kind, (code.count("\n", 0, found.start()) + 1, 0)
