"""Find weights that reachable code folds, keeps in another form, turns or reduces."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1.program.live import Live
from cudal1.program.operators import has_input, input_names
from cudal1.program.technique import Technique

_WEIGHT = re.compile(r"weight|^w(?:[_\d]|$)|_w$|kernel$", re.IGNORECASE)
"""Pattern of the names of weights."""
_TURNS = frozenset(("t", "transpose", "permute", "T", "mT", "movedim", "swapaxes"))
_CHANGES = _TURNS | frozenset(
    "contiguous view reshape flip squeeze unsqueeze detach clone float half bfloat16 to data "
    "flatten sum mean mul div expand narrow rot90".split()
)
"""Methods and attributes with a value that is made of the weight that they belong to."""
_PRODUCTS = frozenset("torch.matmul torch.mm torch.bmm torch.mv torch.nn.functional.linear".split())
_REDUCTIONS = frozenset(("sum", "mean"))


def of_weights(live: Live) -> Iterator[Technique]:
    """Yield the techniques that show by a source's use of its weights."""
    inputs = input_names(live)
    for node in live.nodes:
        if _is_fold(node, inputs):
            yield Technique.FOLDED_WEIGHTS
        if _is_stored_otherwise(node):
            yield Technique.LAYOUT
    if any(_is_kept(live, name, value) for name, value in _made_once(live)):
        yield Technique.PRECOMPUTED


def has_reduced_weights(live: Live) -> bool:
    """Return whether weights are summed or averaged before they are used."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _REDUCTIONS
        and (
            is_weight(node.func.value)
            or (live.dotted(node.func).startswith("torch.") and any(map(is_weight, node.args[:1])))
        )
        for node in live.nodes
    )


def has_reduced_operands(live: Live) -> bool:
    """Return whether a product has the sum or the mean of something for an operand."""
    return any(_is_reduction(live, each) for node in live.called for each in _operands(live, node))


def multiplies_weights_first(live: Live) -> bool:
    """Return whether a product in a call has no input in it."""
    inputs = input_names(live)
    return any(
        not any(has_input(each, inputs) for each in operands)
        for node in live.called
        if (operands := _operands(live, node))
    )


def _operands(live: Live, node: ast.AST) -> list[ast.expr]:
    """Return the operands of a matrix product; none for other nodes."""
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return [left, right]
        case ast.Call(args=[left, right, *_]) if live.dotted(node.func) in _PRODUCTS:
            return [left, right]
        case _:
            return []


def _is_reduction(live: Live, node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _REDUCTIONS
        case ast.Name(id=name) if live.named.get(name):
            values = live.named[name]
            return all(isinstance(e, ast.Call) and _is_reduction(live, e) for e in values)
        case _:
            return False


def is_weight(node: ast.AST) -> bool:
    """Return whether an expression is a weight, or a weight in another form."""
    match node:
        case ast.Name(id=name):
            return _WEIGHT.search(name) is not None
        case ast.Attribute(attr=name, value=value):
            if name in _CHANGES:
                return is_weight(value)
            return _WEIGHT.search(name) is not None
        case ast.Call(func=ast.Attribute(attr=name, value=value), args=given):
            if name in _CHANGES and is_weight(value):
                return True
            is_function = isinstance(value, ast.Name) and value.id == "torch"
            return is_function and name in _CHANGES and any(map(is_weight, given[:1]))
        case ast.Subscript(value=value):
            return is_weight(value)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.Add() | ast.Sub()):
            return is_weight(left)
        case _:
            return False


def _is_fold(node: ast.AST, inputs: frozenset[str]) -> bool:
    """Return whether a weight is multiplied by something that no input changes."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            sides = (left, right) if isinstance(node.op, ast.Mult) else (left,)
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            sides = (left, right) if is_weight(left) and is_weight(right) else ()
        case ast.Call(
            func=ast.Attribute(attr="matmul" | "mm", value=ast.Name(id="torch")), args=[left, right]
        ):
            sides = (left, right) if is_weight(left) and is_weight(right) else ()
        case ast.AugAssign(target=target, op=ast.Mult() | ast.Div()):
            return is_weight(target) and not has_input(node.value, inputs)
        case ast.Call(func=ast.Attribute(attr="mul_" | "div_" | "mul" | "div", value=value)):
            return is_weight(value) and not any(has_input(e, inputs) for e in (value, *node.args))
        case _:
            return False
    return any(map(is_weight, sides)) and not has_input(node, inputs)


def _is_stored_otherwise(node: ast.AST) -> bool:
    """Return whether a node makes a transposed copy of a weight."""
    match node:
        case ast.Call(func=ast.Attribute(attr="contiguous", value=value)):
            names = {each.attr for each in ast.walk(value) if isinstance(each, ast.Attribute)}
            return bool(names & _TURNS) and any(is_weight(each) for each in ast.walk(value))
        case _:
            return False


def _made_once(live: Live) -> Iterator[tuple[str, ast.expr]]:
    """Yield what is kept in attributes when an object is made, or in a call under a condition."""
    for node in live.made:
        yield from _kept_by(node)
    for choice in live.called:
        if isinstance(choice, ast.If):
            for each in choice.body:
                for node in ast.walk(each):
                    yield from _kept_by(node)


def _kept_by(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Attribute(attr=name, value=ast.Name())], value=value):
            yield name, value
        case ast.Call(
            func=ast.Attribute(attr="register_buffer"),
            args=[ast.Constant(value=str() as name), value, *_],
        ):
            yield name, value
        case _:
            pass


def _is_kept(live: Live, name: str, value: ast.expr) -> bool:
    """Return whether an attribute that calls read holds what was computed from a weight."""
    if name not in live.read or name in ("data", "weight", "bias"):
        return False
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        return False
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in ("detach", "clone", "to", "contiguous", "float"):
            break
        value = value.func.value  # a copy of a weight is no other form of it
        if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
            return False
    if isinstance(value, ast.Call) and live.dotted(value.func).startswith(("torch.nn.", "nn.")):
        return False
    return is_weight(value) or (
        isinstance(value, ast.BinOp) and (is_weight(value.left) or is_weight(value.right))
    )
