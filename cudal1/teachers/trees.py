"""Copies of syntax trees with some of their nodes exchanged, and the names in them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)


def rebuilt(node: Node, part: Callable[[ast.AST], ast.AST]) -> Node:
    """Return a copy of a node with each child replaced by `part` of it."""
    fields: dict[str, Any] = {}
    for name in node._fields:
        child: Any = getattr(node, name, None)
        if isinstance(child, ast.AST):
            fields[name] = part(child)
        elif isinstance(child, list):
            children = cast(list[object], child)
            fields[name] = [part(c) if isinstance(c, ast.AST) else c for c in children]
        else:
            fields[name] = child
    if isinstance(node, ast.For | ast.Assign | ast.With | ast.FunctionDef):
        fields["lineno"] = 0  # printing asks for it where a type comment could stand
    return type(node)(**fields)


def loaded(node: ast.AST) -> set[str]:
    """Return the names that are read."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def stored(node: ast.AST) -> set[str]:
    """Return the names that are assigned."""
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def computed(node: ast.expr) -> ast.expr:
    """Return the node, or its value if literal numbers alone decide it."""
    if isinstance(node, ast.IfExp) and isinstance(node.test, ast.Constant):
        return node.body if node.test.value else node.orelse
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
        right = node.comparators[0]
        if isinstance(right, ast.Constant):
            return ast.Constant(node.left.value == right.value)
    if isinstance(node, ast.BinOp):
        value = _number(node)
        if value is not None:
            return ast.Constant(float(f"{value:.10g}") if isinstance(value, float) else value)
    return node


def _number(node: ast.expr) -> int | float | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _number(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=operator, right=right):
            a, b = _number(left), _number(right)
            return None if a is None or b is None else _combined(operator, a, b)
        case _:
            return None


def _combined(operator: ast.operator, a: float, b: float) -> int | float | None:
    match operator:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div() if b:
            return a / b
        case _:
            return None
