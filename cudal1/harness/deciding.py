"""Record which constants and sources decide verdicts; fingerprints cover the record.

    python -m cudal1.harness.deciding [--same-verdicts "why"]

`cudal1/deciding.json` holds every constant of the deciding modules by its name, and a digest of
their sources, comments and docstrings aside. The constants are part of `EvalProtocol.id`. A change
of the sources needs another `HARNESS_VERSION`, or a sentence that says why verdicts stay the same.
The record is then written anew. A test compares the record with the sources.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import operator
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cudal1.protocol import DECIDING, HARNESS_VERSION

HARNESS = Path(__file__).parent
OUTSIDE = ("admission", "builds", "cluster", "schedule", "deciding.py")
"""Folders and modules that decide which candidate is judged when and where, and nothing about its
verdict."""
BENEATH = (HARNESS.parent / "program" / "form.py", HARNESS.parent / "program" / "numbering.py")
"""Modules of other rooms that decide verdicts: a copy of the reference is known by its form."""
UNTOLD = (
    "sources that decide verdicts have changed: raise HARNESS_VERSION in cudal1/protocol.py, or "
    "say with --same-verdicts why every verdict stays the same"
)
ARITHMETIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.USub: operator.neg,
}


def deciding_sources() -> list[Path]:
    """Return the modules that decide verdicts, in the order of their paths."""
    found = (path.relative_to(HARNESS) for path in HARNESS.rglob("*.py"))
    return sorted([*BENEATH, *(HARNESS / path for path in found if path.parts[0] not in OUTSIDE)])


def constants() -> dict[str, Any]:
    """Return the constants of the deciding modules by module and name: `timing.rule.SOON`.

    A constant is a name in capitals at the top of a module. Its value is made of numbers, truth
    values and tuples of them.
    """
    found: dict[str, Any] = {}
    for path in deciding_sources():
        module = ".".join(_place(path).with_suffix("").parts)
        for name, value in _constants_of(ast.parse(path.read_text(encoding="utf-8"))):
            found[f"{module}.{name}"] = value
    return found


def digest() -> str:
    """Return the SHA-256 of what the deciding modules do: their syntax without docstrings."""
    whole = hashlib.sha256()
    for path in deciding_sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)  # that of a lambda is one expression
            if isinstance(body, list):
                body[:] = [each for each in body if not _is_text(each)]
        whole.update(_place(path).as_posix().encode())
        whole.update(ast.dump(tree).encode())
    return whole.hexdigest()


def _place(path: Path) -> Path:
    """Return a module's path in the harness, or in the package if it is of another room."""
    return path.relative_to(HARNESS) if path.is_relative_to(HARNESS) else Path(*path.parts[-2:])


def _constants_of(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            pairs = [(target, value)]
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        else:
            continue
        for name, each in pairs:
            if isinstance(name, ast.Name) and name.id.strip("_").isupper():
                try:
                    yield name.id, _value(each)
                except ValueError:
                    continue


def _value(node: ast.expr) -> Any:
    """Return the value of an expression of numbers.

    Raises:
        ValueError: the expression is made of anything else.
    """
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return node.value
        case ast.Tuple(elts=elements):
            return [_value(each) for each in elements]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in ARITHMETIC:
            return ARITHMETIC[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return ARITHMETIC[type(op)](_value(left), _value(right))
        case _:
            raise ValueError(ast.dump(node))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def main() -> None:
    """Write the record anew, but not where sources changed without a new version or a reason."""
    parser = argparse.ArgumentParser(description="Write the record of what decides verdicts.")
    parser.add_argument("--same-verdicts", metavar="WHY", help="why the version stays")
    why = parser.parse_args().same_verdicts
    known = json.loads(DECIDING.read_text(encoding="utf-8")) if DECIDING.exists() else {}
    record = {"version": HARNESS_VERSION, "sources": digest(), "why": why, "constants": constants()}
    if known.get("sources") == record["sources"] and known.get("version") == HARNESS_VERSION:
        return
    if known.get("version") == HARNESS_VERSION and not why:
        sys.exit(UNTOLD)
    DECIDING.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
