"""The source around the body of `forward`: class, constructor, imports and constants in use."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from cudal1.teachers.program import Program
from cudal1.teachers.trees import loaded, rebuilt

_IMPORTS = {
    "torch": "import torch",
    "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
    "math": "import math",
}


def assembled(program: Program, body: list[str], names: Collection[str] | None = None) -> str:
    """Return a source made of the statements of forward and the rest of the reference.

    Args:
        program: the reference.
        body: statements, without indentation.
        names: names that the statements read and do not bind; looked up when not given.
    """
    frame = _frame(program.module, program.model, program.forward)
    if names is None:
        names = loaded(ast.parse("\n".join(body)))
    text = [*frame.lines, f"    {frame.signature}"]
    text += ["        " + line for statement in body for line in statement.split("\n")]
    used = (set(names) - set(program.arguments)) | frame.names
    return "\n".join(_preamble(used, frame.head)) + "\n\n\n" + "\n".join(text) + "\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """The parts of a reference that are the same in every variant."""

    head: Mapping[str, tuple[int, str, frozenset[str]]]
    """Order, code and read names of each top-level definition, by the name that it binds."""
    lines: list[str]
    """The class without forward."""
    signature: str
    names: frozenset[str]
    """Top-level names that the class reads outside of forward's body."""


@lru_cache(maxsize=512)
def _frame(module: ast.Module, model: ast.ClassDef, forward: ast.FunctionDef) -> Frame:
    head: dict[str, tuple[int, str, frozenset[str]]] = {}
    for order, node in enumerate(module.body):
        names = _binds(node)
        if names & {"Model", "get_inputs", "get_init_inputs"}:
            continue
        head.update(dict.fromkeys(names, (order, ast.unparse(node), frozenset(loaded(node)))))
    lines = [f"class ModelNew({', '.join(map(ast.unparse, model.bases))}):"]
    read = set[str]().union(*map(loaded, model.bases))
    for node in model.body:
        if node is forward or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        text = ast.unparse(_without_docstring(node)).replace("super(Model, self)", "super()")
        lines += [*("    " + line if line else "" for line in text.split("\n")), ""]
        read |= _free(node)
    read |= loaded(forward.args)
    return Frame(head, lines, f"def forward({ast.unparse(forward.args)}):", frozenset(read))


def _free(node: ast.stmt) -> set[str]:
    """Return the names that a method reads and does not bind."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    bound = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    bound |= {a.arg for n in ast.walk(node) if isinstance(n, ast.arguments) for a in n.args}
    return {n.id for n in names} - bound


def _without_docstring(node: ast.stmt) -> ast.stmt:
    match node:
        case ast.FunctionDef(body=[ast.Expr(value=ast.Constant()), _, *_]):
            copy = rebuilt(node, lambda part: part)
            copy.body = copy.body[1:]
            return copy
        case _:
            return node


def _binds(node: ast.stmt) -> frozenset[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return frozenset(a.asname or a.name.split(".")[0] for a in node.names)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return frozenset({node.name})
    if isinstance(node, ast.Assign):
        return frozenset(t.id for t in node.targets if isinstance(t, ast.Name))
    return frozenset()


def _preamble(used: set[str], head: Mapping[str, tuple[int, str, frozenset[str]]]) -> list[str]:
    wanted, todo = dict[str, int](), sorted(used)
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in head:
            order, text, uses = head[name]
            wanted[text] = order
            todo += sorted(uses)
        elif name in _IMPORTS:
            wanted[_IMPORTS[name]] = -1
    lines = sorted(
        wanted, key=lambda text: (not text.startswith(("import ", "from ")), wanted[text], text)
    )
    imports = [t for t in lines if t.startswith(("import ", "from "))]
    imports.sort(key=lambda t: (t.startswith(("import torch", "from torch")), len(t)))
    rest = [t for t in lines if t not in imports]
    return [*imports, *(["", *rest] if rest else [])]
