"""What the source alone gives away. Advisory: signs label, explain and prioritise; never decide.

Reads the syntax tree, so that comments and docstrings say nothing. Nothing is run or imported.

Threat: any sign can be written another way, so nothing may depend on finding one; and the source
may be made to exhaust whoever reads it. Only so much of it is parsed, what cannot be parsed is
searched for words, and that is a label, too.

Why our own, and not KernelGuard 0.3.2 (PyPI, MIT, June 2026, 10,600 lines in one file): of the
corpus of then it labelled 10 of 35 cheats, and 17 of the 44 shipped references; a source of 1 MB
took it 34 s, and four of seven hostile ones raised errors (measured).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from cudal1.harness import signs
from cudal1.harness.lines import one_line
from cudal1.harness.signs import Severity
from cudal1.harness.wire import SOURCE_NAME
from cudal1.verdict import FlagSource, HackFlag

__all__ = ["Severity", "screen", "severity", "syntax_error"]

MAX_PARSED = 100_000
"""Characters; parsing takes some 2 µs each."""
MAX_SOURCE_BYTES = 1 << 20
MAX_EVIDENCE = 120

Sign = tuple[str, int]
"""A kind and the number of a line that shows it."""

_BY_NAME = {name: kind for kind, names in signs.NAMES.items() for name in names}
_BY_ATTRIBUTE = {name: kind for kind, names in signs.ATTRIBUTES.items() for name in names}
_TEXTS = {kind: re.compile(pattern) for kind, pattern in signs.TEXTS.items()}
_C_COMMENT = re.compile(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//[^\n]*")
_NO_CODE = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|' r"'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''|"
    r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.DOTALL,
)  # fmt: skip
_WORDS = {
    kind: re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?!\w)")
    for kind, names in signs.NAMES.items()
}


def screen(source: str) -> tuple[HackFlag, ...]:
    """A flag for each kind of sign, with the first line that shows it; the worst kinds first."""
    source = source[:MAX_SOURCE_BYTES]
    tree = _parsed(source)
    first: dict[str, int] = {}
    for kind, line in _signs(tree) if tree is not None else _signs_of_words(source):
        first[kind] = min(line, first.get(kind, line))
    lines = source.split("\n")
    flags = [
        HackFlag(kind=kind, source=FlagSource.SCREEN, evidence=_evidence(line, lines))
        for kind, line in first.items()
    ]
    return tuple(sorted(flags, key=lambda flag: (-severity(flag), first[flag.kind])))


def severity(flag: HackFlag) -> Severity:
    """How soon to look at it; flags of other sources, which decide, are worth an alarm."""
    return signs.SEVERITIES[flag.kind] if flag.is_advisory else Severity.ALARM


def syntax_error(source: str) -> str | None:
    """What the parser says of a source that is no Python, as whoever imported it would say it.

    The one thing here that decides: no process need be started to find out. A source that names an
    encoding is left to one.
    """
    if len(source) > MAX_PARSED or any("coding" in line for line in source.split("\n", 2)[:2]):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source, filename=SOURCE_NAME)
    except SyntaxError as error:
        return one_line(f"{type(error).__name__}: {error}")
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _parsed(source: str) -> ast.Module | None:
    """The syntax tree; None when there is none to be had."""
    if len(source) > MAX_PARSED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in its strings
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _evidence(line: int, lines: list[str]) -> str:
    text = lines[line - 1] if line <= len(lines) else ""
    shown = "".join(c if c.isprintable() else " " for c in text[: 10 * MAX_EVIDENCE])
    return f"line {line}: {shown.strip()[:MAX_EVIDENCE]}"


# --- the syntax tree -----------------------------------------------------------------------------


def _signs(tree: ast.Module) -> Iterator[Sign]:
    known = _imported(tree)
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # any bare string
    for node in ast.walk(tree):
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
            yield "fallback", node.lineno


def _imported(tree: ast.Module) -> dict[str, str]:
    """What names stand for: `from os import fork as f` makes `f` stand for `os.fork`."""
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
    """The full name of `a.b.c`; empty where it does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([known.get(node.id, node.id), *reversed(parts)])


def _in_name(node: ast.Attribute | ast.Name, known: dict[str, str]) -> Iterator[Sign]:
    name = _dotted(node, known)
    if not isinstance(node.ctx, ast.Load):
        inside = any(name.startswith(f"{module}.") for module in signs.PATCHABLE)
        if isinstance(node, ast.Attribute) and inside and not name.startswith(signs.SWITCHES):
            yield "patched_runtime", node.lineno
    elif name in _BY_NAME and (isinstance(node, ast.Attribute) or name != "id"):
        yield _BY_NAME[name], node.lineno
    if isinstance(node, ast.Attribute) and node.attr in _BY_ATTRIBUTE:
        yield _BY_ATTRIBUTE[node.attr], node.lineno


def _in_import(node: ast.Import | ast.ImportFrom) -> Iterator[Sign]:
    for alias in node.names:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
        full = f"{module}.{alias.name}" if isinstance(node, ast.ImportFrom) else module
        if full.split(".")[0] == "cudal1" and full != "cudal1.harness.worker.fake":
            yield "harness_access", node.lineno
        kind = _BY_NAME.get(module) or _BY_NAME.get(full)
        if kind is not None:
            yield kind, node.lineno


def _in_call(node: ast.Call, known: dict[str, str]) -> Iterator[Sign]:
    name = _dotted(node.func, known)
    if name == "setattr" and node.args:
        target = _dotted(node.args[0], known)
        if target.split(".")[0] in signs.PATCHABLE and not target.startswith(signs.SWITCHES):
            yield "patched_runtime", node.lineno
    if name == "id":
        yield "pointer_cache", node.lineno


def _in_definition(node: ast.ClassDef | ast.FunctionDef, known: dict[str, str]) -> Iterator[Sign]:
    if isinstance(node, ast.ClassDef):
        bases = [_dotted(base, known) for base in node.bases]
        if "torch.Tensor" in bases:
            yield "tensor_subclass", node.lineno
    elif node.name in ("__torch_function__", "__torch_dispatch__"):
        yield "tensor_subclass", node.lineno
    elif node.name == "forward":
        yield from _in_forward(node, known)


def _in_forward(node: ast.FunctionDef, known: dict[str, str]) -> Iterator[Sign]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.AugAssign) and _dotted(inner.target, known).startswith("self."):
            if isinstance(inner.value, ast.Constant):
                yield "call_counter", inner.lineno
        elif isinstance(inner, ast.Return) and isinstance(inner.value, ast.Call):
            name = _dotted(inner.value.func, known)
            if name.rpartition(".")[2] in ("empty", "empty_like", "empty_strided", "new_empty"):
                yield "uninitialised_output", inner.lineno


def _in_text(node: ast.Constant) -> Iterator[Sign]:
    text = _C_COMMENT.sub(" ", str(node.value)) if "\n" in str(node.value) else str(node.value)
    for kind, pattern in _TEXTS.items():
        if pattern.search(text):
            yield kind, node.lineno


# --- without a tree ------------------------------------------------------------------------------


def _signs_of_words(source: str) -> Iterator[Sign]:
    """Signs of a source that could not be parsed: its words, strings and comments left out."""
    yield "unparsed", 1
    code = _NO_CODE.sub(lambda found: "\n" * found.group().count("\n"), source)
    for kind, pattern in _WORDS.items():
        found = pattern.search(code)
        if found:
            yield kind, code.count("\n", 0, found.start()) + 1
