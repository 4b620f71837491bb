"""Tests of arguments by name that become part of a source."""

from __future__ import annotations

import ast

import pytest

from cudal1.errors import SuiteError
from cudal1.suite.signatures import constructor, function, in_order, parsed, with_defaults

INPUTS = (
    "def get_inputs(n: int = 16, *, size=(2, 3), name: str = 'ä', more): return n, size, more\n"
)


def get_inputs() -> ast.FunctionDef:
    found = function(parsed(INPUTS).body, "get_inputs")
    assert found is not None
    return found


def made(source: str) -> ast.FunctionDef | None:
    return constructor(parsed(f"class Model:\n    {source}\n"), "Model")


def test_defaults_are_replaced_by_name() -> None:
    text = with_defaults(INPUTS, get_inputs(), {"n": 4, "size": [5], "more": None})
    found: dict[str, object] = {}
    exec(text, found)
    assert found["get_inputs"]() == (4, [5], None)  # pyright: ignore[reportCallIssue]


def test_text_beside_defaults_stays() -> None:
    text = with_defaults(INPUTS, get_inputs(), {"name": "b"})
    assert text == INPUTS.replace("'ä'", "'b'")


def test_a_default_over_several_lines_is_replaced_whole() -> None:
    source = "def f(x=(\n    1,\n    2,\n), y=3):\n    return x, y\n"
    of = function(parsed(source).body, "f")
    assert of is not None
    assert with_defaults(source, of, {"x": 7}) == "def f(x=7, y=3):\n    return x, y\n"


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(SuiteError, match="get_inputs has no parameter m"):
        with_defaults(INPUTS, get_inputs(), {"m": 1})


def test_arguments_come_in_the_constructors_order() -> None:
    of = made("def __init__(self, a, b=2.0, c='x', d=None): ...")
    assert in_order(of, {"c": "y", "a": 1}) == [1, 2.0, "y"]


def test_arguments_without_names_come_first() -> None:
    assert in_order(made("def __init__(self, a, b): ..."), {"b": 2}, given=(1,)) == [1, 2]


@pytest.mark.parametrize(
    ("source", "values", "said"),
    [
        ("def __init__(self, a): ...", {"b": 1}, "takes no b by its place"),
        ("def __init__(self, *, b): ...", {"b": 1}, "takes no b by its place"),
        ("def __init__(self, a, b): ...", {"b": 1}, "a has no value"),
        ("def __init__(self, a=f(), b=1): ...", {"b": 1}, "default of a is no literal"),
        ("pass", {"b": 1}, "inherited"),
    ],
)
def test_arguments_without_an_order_are_refused(
    source: str, values: dict[str, int], said: str
) -> None:
    with pytest.raises(SuiteError, match=said):
        in_order(made(source), values)


def test_an_absent_class_is_named() -> None:
    with pytest.raises(SuiteError, match="has no class Model"):
        constructor(parsed("x = 1"), "Model")
