"""Names in a syntax tree."""

from __future__ import annotations

import ast


def last_name(node: ast.expr) -> str:
    """Return the last part of a name, such as `relu` of `torch.relu`; "" of what is no name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
