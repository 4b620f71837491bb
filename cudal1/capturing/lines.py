"""Lay out calls and constructors as lines of source."""

from __future__ import annotations

import ast

MAX_WIDTH = 99
"""Characters of a line that is not split."""
INDENT = " " * 4


def with_constructor(
    source: str, name: str, given: list[tuple[str, str]], settings: list[str]
) -> str | None:
    """Return a source in which a class's constructor makes its arguments itself.

    A class that needs a configuration stays one class, which authors read more easily than a
    subclass. None is returned where the constructor's signature or body is not plain.
    """
    for cls in ast.parse(source).body:
        if isinstance(cls, ast.ClassDef) and cls.name == name:
            inits = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
            break
    else:
        return None
    if len(inits) != 1 or inits[0].decorator_list:
        return None
    init = inits[0]
    arguments = init.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs or arguments.kwonlyargs:
        return None
    if any(isinstance(node, ast.Return) for node in ast.walk(init)):
        return None
    names = [each.arg for each in arguments.args[1:]]
    values = dict(zip(names, [text for key, text in given if not key], strict=False))
    values |= {key: text for key, text in given if key}
    defaults = [ast.unparse(each) for each in arguments.defaults]
    said = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | values
    body = init.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if list(said) != list(dict.fromkeys(said)) or set(said) != set(names) or not body:
        return None
    indent = " " * init.col_offset
    inner = " " * body[0].col_offset
    lines = source.split("\n")
    made = [line for each in names for line in _assigned(each, said[each], inner)]
    first, last = body[0].lineno, init.end_lineno or 0
    return "\n".join(
        [
            *lines[: init.lineno - 1],
            f"{indent}def __init__({arguments.args[0].arg}):",
            *made,
            *lines[first - 1 : last],
            *(f"{inner}{each}" for each in settings),
            *lines[last:],
        ]
    )


def _assigned(name: str, text: str, indent: str) -> list[str]:
    """Return the lines of an assignment; those of a long call have an argument each."""
    line = f"{indent}{name} = {text}"
    call = ast.parse(text, mode="eval").body
    if len(line) <= MAX_WIDTH or not isinstance(call, ast.Call):
        return [line]
    given = [ast.unparse(each) for each in (*call.args, *call.keywords)]
    return call_lines(f"{name} = {ast.unparse(call.func)}", given, indent)


def call_lines(called: str, given: list[str], indent: str) -> list[str]:
    """Return the lines of a call, an argument each where one line is too short."""
    line = f"{indent}{called}({', '.join(given)})"
    if len(line) <= MAX_WIDTH:
        return [line]
    lines = [f"{indent}{called}("]
    for each in given:
        call = ast.parse(f"f({each})", mode="eval").body
        assert isinstance(call, ast.Call)
        inner = call.args[0] if call.args else call.keywords[0].value
        prefix = f"{call.keywords[0].arg}=" if call.keywords else ""
        if len(each) > MAX_WIDTH and isinstance(inner, ast.Call):
            parts = [ast.unparse(part) for part in (*inner.args, *inner.keywords)]
            nested = call_lines(f"{prefix}{ast.unparse(inner.func)}", parts, f"{indent}{INDENT}")
            lines += [*nested[:-1], f"{nested[-1]},"]
        else:
            lines.append(f"{indent}{INDENT}{each},")
    return [*lines, f"{indent})"]
