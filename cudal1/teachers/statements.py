"""Statements of `forward`: plain assignments, and loops that are equal to one value.

`rows = []` with the loop that fills it equals a list comprehension. A tensor of zeros with the loop
that adds to it equals `sum_of_loop([...])`. Loops that carry other state are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from cudal1.teachers.spelling import NAMESPACES, SUM_OF_LOOP
from cudal1.teachers.trees import loaded, rebuilt


def is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is only a constant."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def is_plain(statement: ast.stmt) -> bool:
    """Return whether a statement returns, or assigns to names and nothing else."""
    if isinstance(statement, ast.Return):
        return statement.value is not None
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.target, ast.Name)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        return all(isinstance(n, ast.Name) for n in names)
    return False


def plain_parts(statement: ast.stmt) -> tuple[ast.Name | ast.Tuple, ast.expr]:
    """Return target and value of a plain assignment; `x += y` counts as `x = x + y`."""
    if isinstance(statement, ast.AugAssign):
        assert isinstance(statement.target, ast.Name)
        target = statement.target
        return target, ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    assert isinstance(target, ast.Name | ast.Tuple)
    return target, statement.value


def assigned(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns or may change in place."""
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Expr):
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names - {"self", *NAMESPACES}


def groups(body: list[ast.stmt]) -> Iterator[tuple[tuple[ast.stmt, ...], ast.expr | None]]:
    """Yield groups of statements, each with the value that it equals, if any.

    `rows = []` with the loop that fills it is one group, equal to a list comprehension. So is a
    tensor of zeros with the loop that adds to it.
    """
    index = 0
    while index < len(body):
        value = None
        if index + 1 < len(body):
            pair, rest = (body[index], body[index + 1]), body[index + 2 :]
            value = _filled_list(*pair, rest) or _summed(*pair, rest)
        if value is not None:
            yield (body[index], body[index + 1]), value
            index += 2
        else:
            yield (body[index],), None
            index += 1


def _filled_list(first: ast.stmt, loop: ast.stmt, rest: list[ast.stmt]) -> ast.expr | None:
    match first:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=[])):
            pass
        case _:
            return None
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or loop.orelse:
        return None
    *before, last = loop.body
    match last:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id=filled), attr="append"), args=[element]
            )
        ):
            if filled != name:
                return None
        case _:
            return None
    inner = set[str]().union(*map(assigned, before))
    local: dict[str, ast.expr] = {}
    for statement in before:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return None
        if loaded(statement.value) & (inner - set(local)):
            return None  # carried from one turn of the loop to the next
        local[statement.targets[0].id] = _inlined(statement.value, local)
    later = set[str]().union(*map(loaded, rest))
    if inner & later or name in set[str]().union(*map(loaded, (element, *local.values()))):
        return None
    generator = ast.comprehension(target=loop.target, iter=loop.iter, ifs=[], is_async=0)
    return ast.ListComp(elt=_inlined(element, local), generators=[generator])


def _summed(first: ast.stmt, loop: ast.stmt, rest: list[ast.stmt]) -> ast.expr | None:
    match first, loop:
        case (
            ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr="zeros" | "zeros_like")),
            ),
            ast.For(target=ast.Name(id=variable), iter=iterable, body=[statement], orelse=[]),
        ) if is_plain(statement):
            target, value = plain_parts(statement)
        case _:
            return None
    match target, value:
        case ast.Name(id=target_name), ast.BinOp(
            left=ast.Name(id=left), op=ast.Add(), right=element
        ) if target_name == left == name and name not in loaded(element):
            pass
        case _:
            return None
    if variable in set[str]().union(*map(loaded, rest)):
        return None
    target = ast.Name(variable, ast.Store())
    generator = ast.comprehension(target=target, iter=iterable, ifs=[], is_async=0)
    items = ast.ListComp(elt=element, generators=[generator])
    return ast.Call(ast.Name(SUM_OF_LOOP, ast.Load()), [items], [])


def _substitute(node: ast.AST, local: Mapping[str, ast.expr]) -> ast.AST:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return local.get(node.id, node)
    return rebuilt(node, lambda part: _substitute(part, local))


def _inlined(node: ast.expr, local: Mapping[str, ast.expr]) -> ast.expr:
    expression = _substitute(node, local)
    assert isinstance(expression, ast.expr)
    return expression
