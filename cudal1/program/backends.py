"""The languages of a candidate's own kernels, with the kernels' names, read from its source.

Only code that `ModelNew` can reach counts. That a kernel ran is not said: a source may have one and
a path without it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from cudal1.files import source_files
from cudal1.files.python_file import parsed
from cudal1.program.kernel_sources import kernels_of
from cudal1.program.live import live_code

NUM_CACHED = 1024
"""Number of sources with known kernels."""


class Backend(StrEnum):
    """A language of kernels."""

    TRITON = "triton"
    CUDA = "cuda"
    CUTLASS_DSL = "cutlass-dsl"
    TILELANG = "tilelang"


PACKAGE: dict[Backend, tuple[str, str]] = {
    Backend.TRITON: ("triton", "triton"),
    Backend.CUTLASS_DSL: ("cutlass", "nvidia-cutlass-dsl"),
    Backend.TILELANG: ("tilelang", "tilelang"),
}
"""The module that kernels of a backend import, and the package that installs it."""
_DECORATORS = {
    Backend.CUTLASS_DSL: ("cutlass.cute.kernel",),
    Backend.TILELANG: ("tilelang.jit", "tilelang.language.prim_func"),
}
"""Decorators of kernels, by full name."""


@lru_cache(NUM_CACHED)
def kernels_by_backend(source: str) -> Mapping[Backend, tuple[str, ...]]:
    """Return the names of a candidate's kernels, by each language that it has kernels in.

    A source that does not parse, is too deep, or has no `ModelNew`, has none.
    """
    body: list[ast.stmt] = []
    for text in source_files.split(source).values():
        tree = parsed(text)
        body += [] if tree is None else tree.body
    try:
        live = live_code(ast.Module(body, []), "ModelNew")
        kernels = kernels_of(live)
    except RecursionError:
        return MappingProxyType({})
    cuda = [name for text in kernels.texts for name in text.kernels]
    found = {
        Backend.TRITON: [name for name in kernels.names if name not in cuda],
        Backend.CUDA: cuda,
    }
    for backend, decorators in _DECORATORS.items():
        found[backend] = [
            name
            for name, function in live.functions.items()
            if any(live.dotted(_bare(each)) in decorators for each in function.decorator_list)
        ]
    named = {backend: tuple(dict.fromkeys(names)) for backend, names in found.items() if names}
    return MappingProxyType(named)


def in_words(source: str) -> str:
    """Return a candidate's kernels in one line; empty without any."""
    found = kernels_by_backend(source)
    return "; ".join(f"{backend}: {', '.join(names)}" for backend, names in found.items())


def _bare(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator
