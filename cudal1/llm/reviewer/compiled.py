"""Finds the strings of a source that only compilers read: those may lose their C comments.

Threat: other code may run the comments of a string (`exec(text.split("//")[1])`), so such a string
must be shown whole. A string counts as compiled only where all of its uses can be seen. No string
counts where a name could be looked up, or a compiler replaced, in ways that cannot be seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1.program.names import last_name

__all__ = ["compiled"]

_COMPILERS = {"load_inline", "RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel"}
"""Functions that take C code and do nothing with it but compile it."""
_MODULES = ("torch", "cupy")
"""Modules that provide these functions."""
_LOOKS_AROUND = re.compile(
    r"globals|locals|vars\b|__dict__|__builtins__|modules|frame|[gs]etattr|attrgetter|linecache|mock|"
    r"\bexec\b|\beval\(|(?<!torch\.)\bcompile\(|__import__|importlib|inspect|\bgc\b|\.code\b|\bopen\(|"
    r"read_text|read_bytes|__FILE__|__doc__|__code__|co_consts"
)
"""Words by which a program may get a string that it does not name, or replace a function."""


def compiled(tree: ast.Module, source: str) -> set[int]:
    """Return ids of the nodes that are given to compilers, by themselves or under one name only."""
    if _LOOKS_AROUND.search(source) or not _are_real(tree):
        return set()
    given: set[int] = set()  # nodes that are arguments of a compiler
    uses: dict[str, list[ast.Name]] = {}
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in _COMPILERS:
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                parts = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
                given |= {id(part) for part in parts}
        elif isinstance(node, ast.Name):
            uses.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                values.setdefault(target.id, []).append(node.value)
    otherwise = set(_other_names(tree))
    for name, assigned in values.items():
        read = [use for use in uses[name] if isinstance(use.ctx, ast.Load)]
        is_bound_once = len(assigned) == 1 == len(uses[name]) - len(read)
        is_given = read and all(id(use) in given for use in read)
        if is_bound_once and is_given and name not in otherwise:
            given.add(id(assigned[0]))
    return given


def _are_real(tree: ast.Module) -> bool:
    """Return whether each name of a compiler is imported, and bound in no other way."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names):
                is_trusted = (module or "").split(".")[0] in _MODULES and not node.level
                for alias in names:
                    if alias.asname in _COMPILERS:
                        return False
                    if alias.name in _COMPILERS and not is_trusted:
                        return False
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                if name in _COMPILERS:
                    return False
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
            ):
                if name in _COMPILERS:
                    return False
            case ast.Constant(value=str(text)):
                if text in _COMPILERS:
                    return False
            case _:
                pass
    return True


def _other_names(tree: ast.Module) -> Iterator[str]:
    """Yield names that are read, or bound, in other ways than as a variable."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.arg(arg=name) | ast.Constant(value=str(name)):
                yield name
            case ast.alias(name=name, asname=asname):
                yield from (name, asname or name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case _:
                pass
