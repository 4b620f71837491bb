"""Give the functions of a problem's source other arguments, by their names.

Suites of the field keep a module's arguments beside its file, by name. A problem of cudal1 has them
inside: `get_inputs()` takes none, and `get_init_inputs()` returns the constructor's in order.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from cudal1.errors import SuiteError

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(source: str) -> ast.Module:
    """Return a source's syntax tree.

    Raises:
        SuiteError: it is no Python.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SuiteError(f"is no Python ({error})") from error


def function(body: list[ast.stmt], name: str) -> ast.FunctionDef | None:
    """Return the last function of that name among statements."""
    found = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == name]
    return found[-1] if found else None


def constructor(tree: ast.Module, class_name: str) -> ast.FunctionDef | None:
    """Return the `__init__` that a class defines itself.

    Raises:
        SuiteError: the source has no such class.
    """
    for node in reversed(tree.body):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return function(node.body, "__init__")
    raise SuiteError(f"has no class {class_name}")


def with_defaults(source: str, of: ast.FunctionDef, values: Mapping[str, object]) -> str:
    """Return the source in which some parameters of a function have other defaults.

    Raises:
        SuiteError: the function has no such parameter.
    """
    spec = of.args
    ordered = [*spec.posonlyargs, *spec.args]
    padding: list[ast.expr | None] = [None] * (len(ordered) - len(spec.defaults))
    defaults = dict(zip((each.arg for each in ordered), [*padding, *spec.defaults], strict=True))
    defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)}
    places = {each.arg: each for each in (*ordered, *spec.kwonlyargs)}
    if unknown := sorted(values.keys() - places.keys()):
        raise SuiteError(f"{of.name} has no parameter {', '.join(unknown)}")
    lines = source.encode().split(b"\n")  # ast counts columns in UTF-8 bytes
    for name in sorted(values, key=lambda each: _end(places[each]), reverse=True):
        default = defaults[name]
        text = repr(values[name]).encode()
        if default is None:
            last, column = _end(places[name])
            lines[last] = lines[last][:column] + b"=" + text + lines[last][column:]
            continue
        first, (last, column) = default.lineno - 1, _end(default)
        made = lines[first][: default.col_offset] + text + lines[last][column:]
        lines[first : last + 1] = [made]
    return b"\n".join(lines).decode()


def in_order(
    of: ast.FunctionDef | None, values: Mapping[str, object], *, given: tuple[object, ...] = ()
) -> list[Any]:
    """Return a constructor's arguments in order, from arguments by name and its own defaults.

    Args:
        of: the constructor; None has no parameters.
        values: arguments by name.
        given: arguments that come first, without names.

    Raises:
        SuiteError: a parameter is unknown, comes by name alone, or before it one has no value.
    """
    if of is None:
        if values or given:
            raise SuiteError(
                "the constructor is inherited, so the order of its arguments is unknown"
            )
        return []
    ordered = [*of.args.posonlyargs, *of.args.args][1:]  # self
    names = [each.arg for each in ordered]
    if unknown := sorted(values.keys() - set(names)):
        raise SuiteError(f"the constructor takes no {', '.join(unknown)} by its place")
    defaults: dict[str, ast.expr] = dict(
        zip(reversed(names), reversed(of.args.defaults), strict=False)
    )
    last = max((names.index(name) for name in values), default=-1)
    made = list(given)
    for name in names[len(given) : last + 1]:
        if name not in values and name not in defaults:
            raise SuiteError(f"the constructor's {name} has no value")
        made.append(values[name] if name in values else _literal(defaults[name], name))
    return made


def _literal(node: ast.expr, name: str) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise SuiteError(f"the constructor's default of {name} is no literal") from error


def _end(node: ast.expr | ast.arg) -> tuple[int, int]:
    """Return the line, from 0, and the column in bytes behind a node."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno - 1, node.end_col_offset
