"""Finds the confirmed cheats that a source is most like: a choice of examples, never a verdict.

Features come from the syntax tree. They are paths of three nodes down; the full names of what is
called, imported, read and set; and words inside strings. Names that a source gives itself do not
count, nor do comments and docstrings. Features are weighted by their rarity among the cases
(TF-IDF), and sources are compared by the cosine. `benchmarks/answers/retrieval.py` measures this
against the alternatives in `retrieval_methods.py`: token n-grams, a mix of both, and the embedded
policy's hidden states.

Threat: a source may be made to exhaust this program, or to be like nothing, or like a harmless
case. The first is bounded here: nothing recurses, and the text to parse and the features have
limits. If a source does not parse, its words are the features. The rest is possible, and so
likeness decides nothing.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from cudal1.files.python_file import MAX_PARSED, parsed
from cudal1.hack_case import HackCase

__all__ = ["likenesses", "most_similar"]

MAX_FEATURES = 4096
"""The most features of one source. Of more, the smallest hashes stay: an author does not choose
them."""
NUM_CACHED = 2048
"""Sources with cached features, at some 3 KB each, and 48 KB at most."""
DEPTH = 3
"""Nodes in a path."""
MAX_NAME = 60
"""Characters of a name that count; features are made of names, and would grow with them."""
MAX_PARTS = 8
"""The most parts of a dotted name; longer names belong to no known function."""
COMMON = 0.01
"""Weight of a feature that all cases have; the rarest of 500 weigh 5.5."""

_WORD = re.compile(r"[A-Za-z_]\w*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_PUBLIC = frozenset(dir(builtins)) | {"self", "cls", "Model", "ModelNew", "forward"}
"""Names that mean the same in all sources."""
_TELLING = (0, 1, None, True, False)


@dataclass(frozen=True, eq=False)
class _Features:
    hashes: NDArray[np.uint32]
    """Hashes of the features, ascending, each once."""
    counts: NDArray[np.float64]
    """1 + the logarithm of the number of times that each feature occurs."""


def most_similar(source: str, cases: Sequence[HackCase], count: int) -> list[HackCase]:
    """Return at most `count` different cases, the most similar first.

    The order of `cases` does not matter. 500 cases take 15 ms once their features are cached, which
    takes 1.3 ms each (measured, one core).
    """
    different = list({case.id: case for case in cases}.values())
    scores = likenesses(source, [case.source for case in different])
    ranked = sorted(zip(scores, different, strict=True), key=lambda pair: (-pair[0], pair[1].id))
    return [case for _, case in ranked[:count]]


def likenesses(source: str, others: Sequence[str]) -> list[float]:
    """Return the cosine of a source with each of the others, from 0 to 1.

    The others alone decide how rare a feature is.
    """
    if not others:
        return []
    query = _features(source[: MAX_PARSED + 1])
    found = [_features(other[: MAX_PARSED + 1]) for other in others]
    hashes = np.concatenate([one.hashes for one in found])
    counts = np.concatenate([one.counts for one in found])
    owners = np.repeat(np.arange(len(found)), [len(one.hashes) for one in found])
    known, places, num_having = np.unique(hashes, return_inverse=True, return_counts=True)
    rarity = np.log((len(found) + 1) / (num_having + 1)) + COMMON
    weights = counts * rarity[places]
    wanted = query.counts * _looked_up(
        query.hashes, known, rarity, default=math.log(len(found) + 1)
    )
    at_hand = _looked_up(hashes, query.hashes, wanted, default=0.0)
    products = np.bincount(owners, weights * at_hand, len(found))
    squares = np.bincount(owners, weights * weights, len(found))
    lengths = np.sqrt(squares * (wanted @ wanted))
    scores = np.divide(products, lengths, out=np.zeros(len(found)), where=lengths > 0)
    return np.round(np.minimum(scores, 1.0), 9).tolist()


def _looked_up(
    hashes: NDArray[np.uint32],
    known: NDArray[np.uint32],
    values: NDArray[np.float64],
    *,
    default: float,
) -> NDArray[np.float64]:
    """Return the value of each hash; `known` ascends."""
    if len(known) == 0:
        return np.full(len(hashes), default)
    places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.where(known[places] == hashes, values[places], default)


@lru_cache(maxsize=NUM_CACHED)
def _features(source: str) -> _Features:
    tree = parsed(source)
    named = _in_tree(tree) if tree is not None else _in_words(source[:MAX_PARSED])
    counted = Counter(crc32(name.encode("utf-8", "replace")) for name in named)
    kept = sorted(counted.items())[:MAX_FEATURES]
    return _Features(
        np.array([name for name, _ in kept], dtype=np.uint32),
        1 + np.log(np.array([times for _, times in kept], dtype=np.float64)),
    )


def _in_words(source: str) -> Iterator[str]:
    """Yield features of a source that is no Python, named as those of a tree."""
    for found in _DOTTED.finditer(source):
        name = found[0]
        yield from (f"name {name}", f"call {name}", f"word {name}")
        if "." in name:
            yield f"attribute {name.rpartition('.')[2]}"


# --- the syntax tree -----------------------------------------------------------------------------


def _in_tree(tree: ast.Module) -> Iterator[str]:
    known = _imported(tree)
    waiting: list[tuple[ast.AST, tuple[str, ...], str]] = [(tree, (), "")]
    while waiting:
        node, path, place = waiting.pop()
        if isinstance(node, ast.expr_context | ast.Pass) or _is_said(node):
            continue
        path = (*path, _label(node, known)[:MAX_NAME])[-DEPTH:]
        if isinstance(node, ast.FunctionDef):
            place = node.name[:MAX_NAME] if _is_public(node.name) else "function"
        yield from (f"path {' > '.join(path[i:])}" for i in range(len(path)))
        yield from _named(node, known, place)
        waiting += [(child, path, place) for child in ast.iter_child_nodes(node)]


def _is_said(node: ast.AST) -> bool:
    """Return whether a node is a docstring or another bare constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_public(name: str) -> bool:
    return name in _PUBLIC or (name.startswith("__") and name.endswith("__"))


def _label(node: ast.AST, known: dict[str, str]) -> str:
    """Return the kind of a node, with those of its names that are not the source's own."""
    match node:
        case ast.Name():
            return known.get(node.id) or (node.id if _is_public(node.id) else "Name")
        case ast.Attribute():
            return "self." if _is_own(node) else f".{node.attr}"
        case ast.Constant():
            return type(node.value).__name__
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp():
            return type(node.op).__name__
        case ast.Compare():
            return type(node.ops[0]).__name__
        case ast.FunctionDef() | ast.ClassDef() if _is_public(node.name):
            return f"{type(node).__name__} {node.name}"
        case _:
            return type(node).__name__


def _named(node: ast.AST, known: dict[str, str], place: str) -> Iterator[str]:
    """Yield the names that a node calls, reads or sets, and the words in it."""
    match node:
        case ast.Attribute() if _is_own(node):
            yield f"own {type(node.ctx).__name__} in {place}"
        case ast.Attribute() | ast.Name():
            if name := _dotted(node, known):
                yield f"name {name} {type(node.ctx).__name__}"
                yield f"name {name}"
            if isinstance(node, ast.Attribute):
                yield f"attribute {node.attr}"
        case ast.Call():
            if name := _dotted(node.func, known):
                yield f"call {name}"
                yield f"call {name} in {place}"
        case ast.keyword():
            yield f"keyword {node.arg}"
        case ast.Constant(value=str() | bytes() as value):
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            yield from (f"word {found[0]}" for found in _WORD.finditer(text))
        case ast.Constant(value=value) if any(value is one for one in _TELLING):
            yield f"value {value}"
        case _:
            pass


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _imported(tree: ast.Module) -> dict[str, str]:
    """Map names to what they import: after `from os import fork as f`, `f` maps to `os.fork`."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                known[alias.asname or top] = (alias.name if alias.asname else top)[:MAX_NAME]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module or ''}.{alias.name}"
                known[alias.asname or alias.name] = full[:MAX_NAME]
    return known


def _dotted(node: ast.AST, known: dict[str, str]) -> str:
    """Return the full name of `a.b.c`; empty where it begins with one of the source's own names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < MAX_PARTS:
        parts.append(node.attr[:MAX_NAME])
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    first = known.get(node.id) or (node.id[:MAX_NAME] if _is_public(node.id) else "")
    return ".".join([first, *reversed(parts)]) if first else ""
