"""Choose smaller sizes of KernelBench's problems by a rule: their own fill a GPU.

The rule reads whole numbers that a file names at its top level, alone or in a tuple or list. A
number above a bound is halved until it is within it, so that a power of two that divided it mostly
still does. Numbers inside functions and classes stay.
"""

from __future__ import annotations

import ast

Size = int | list[int]


def shrunk(source: str, largest: int) -> dict[str, Size]:
    """Return the constants of a problem file that hold a larger number, and their replacements.

    A file that is no Python has none.
    """
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, Size] = {}
    for node in nodes:
        for name, value in _named(node):
            size = _size(value)
            if size is not None and (smaller := _within(size, largest)) != size:
                found[name] = smaller
            else:
                found.pop(name, None)
    return found


def _named(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """Return names and values of `a = 1`, `a = b = 1` and `a, b = 1, 2`."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pass
        case ast.Assign(targets=targets, value=value):
            values = [value] * len(targets)
        case _:
            return []
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    is_plain = len(names) == len(targets) == len(values)
    return list(zip(names, values, strict=True)) if is_plain else []


def _size(node: ast.expr) -> Size | None:
    """Return a whole number, a product of some, or several; None for anything else."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            a, b = _size(left), _size(right)
            return a * b if isinstance(a, int) and isinstance(b, int) else None
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            sizes = [_size(part) for part in parts]
            whole = [size for size in sizes if isinstance(size, int)]
            return whole if whole and len(whole) == len(sizes) else None
        case _:
            return None


def _within(size: Size, bound: int) -> Size:
    return (
        [_halved(each, bound) for each in size] if isinstance(size, list) else _halved(size, bound)
    )


def _halved(number: int, bound: int) -> int:
    while number > bound:
        number //= 2
    return number
