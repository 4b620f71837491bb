"""Check how we write: the rules of english that a program can check. `make check` runs it.

    python tests/prose.py [PATH…]

It reads docstrings, the strings under constants, comments and names of tests, and prints a line for
each fault. What stays on purpose stands in tests/prose_allowed.txt, one a line: `PATH: words`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FOLDERS = ("cudal1", "tasks", "flows", "benchmarks", "tests")
NOT_OURS = ("suite/problems", "/exploits", "/honest", "/answers/", "fixtures")
"""Text that is data: problems, candidates, answers of models."""
ALLOWED = ROOT / "tests" / "prose_allowed.txt"
MAX_WORDS = 40
"""Words that a sentence may have. Twenty-five are many."""
CLAUSES = (
    "about",
    "as",
    "how",
    "of",
    "that",
    "those",
    "what",
    "whatever",
    "when",
    "where",
    "whether",
    "which",
    "who",
    "whoever",
    "whom",
    "whose",
    "why",
    "with",
    "nobody",
    "nothing",
)
"""Words that begin a clause without a verb of its own; a first line is a sentence."""
PEOPLE = re.compile(r"\b(who|whose|whom|whoever|nobody|somebody)\b", re.IGNORECASE)
HISTORY = re.compile(r"\b(any more|as before|no longer|used to be|formerly|from now on)\b", re.I)
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


class Text(NamedTuple):
    """Words of ours in a file."""

    path: Path
    line: int
    text: str
    kind: str
    """`docstring`, `constant`, `comment` or `test`."""


class Fault(NamedTuple):
    """A rule that a text breaks."""

    where: Text
    rule: str
    words: str

    def __str__(self) -> str:
        path = self.where.path.relative_to(ROOT).as_posix()
        return f"{path}:{self.where.line}: {self.rule}: {self.words}"


def texts(path: Path) -> Iterator[Text]:
    """Yield what people wrote in a module, code aside."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    yield from _described(path, tree)
    comment: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        words = token.string.lstrip("#").strip()
        if comment and token.start[0] == last + 1:
            comment.append(words)
        else:
            if comment:
                yield Text(path, start, " ".join(comment), "comment")
            comment, start = [words], token.start[0]
        last = token.start[0]
    if comment:
        yield Text(path, start, " ".join(comment), "comment")


def _described(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Yield docstrings, strings under names, and names of tests."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, owners):
            continue
        for number, each in enumerate(node.body):
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                continue
            if isinstance(each.value.value, str):
                kind = "constant" if number else "docstring"
                yield Text(path, each.lineno, each.value.value, kind)
        is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if is_test and path.name.startswith("test_"):
            yield Text(path, node.lineno, node.name.removeprefix("test_").replace("_", " "), "test")


def faults(text: Text) -> Iterator[Fault]:
    """Yield the rules that a text breaks."""
    first = text.text.strip().partition("\n\n")[0]
    word = re.match(r"[A-Za-z']*", first)
    if text.kind != "comment" and word and word[0].lower() in CLAUSES:
        yield Fault(text, "begins with a clause", " ".join(first.split()[:8]))
    prose = re.sub(r"``?[^`]*``?", "it", text.text)
    for found in PEOPLE.finditer(prose):
        yield Fault(text, "who is for people", _around(prose, found))
    for found in HISTORY.finditer(prose):
        yield Fault(text, "history goes to the log", _around(prose, found))
    if text.kind in ("docstring", "constant", "comment"):
        for paragraph in re.split(r"\n\s*\n|\n\s*[-*|]|\n    ", prose):
            for sentence in SENTENCE.split(" ".join(paragraph.split())):
                if len(sentence.split()) > MAX_WORDS:
                    yield Fault(text, "a long sentence", " ".join(sentence.split()[:8]))


def _around(prose: str, found: re.Match[str]) -> str:
    before, after = prose[: found.start()].split()[-3:], prose[found.end() :].split()[:4]
    return " ".join([*before, found[0], *after])


def main() -> None:
    """Print faults; exit with 1 if there are some that no line of the list allows."""
    named = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / name for name in FOLDERS]
    allowed = {line for line in ALLOWED.read_text(encoding="utf-8").splitlines() if line.strip()}
    seen: set[str] = set()
    bad = 0
    for folder in named:
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            if any(part in path.as_posix() for part in NOT_OURS):
                continue
            for text in texts(path):
                for fault in faults(text):
                    key = f"{path.relative_to(ROOT).as_posix()}: {fault.words}"
                    seen.add(key)
                    if key not in allowed:
                        print(fault)
                        bad += 1
    if len(sys.argv) == 1:
        for line in sorted(allowed - seen):
            print(f"{ALLOWED.name}: {line}: is written nowhere; remove the line")
            bad += 1
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
