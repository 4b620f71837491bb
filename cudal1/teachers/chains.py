"""Rules for long pointwise chains: in place, or chunk by chunk so that temporaries stay in a cache.

The best number of rows of a chunk depends on the shape and the machine, and one chunk may be best.
A policy has to find this knob by measuring.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from cudal1.teachers.matching import Binding
from cudal1.teachers.program import Program
from cudal1.teachers.rule import Kind, Template
from cudal1.teachers.spelling import POINTWISE
from cudal1.teachers.terms import Term

Found = tuple[str, Kind, Template, Binding]

FUNCTIONAL: Final = frozenset(
    {"silu", "gelu", "softplus", "mish", "hardswish", "leaky_relu", "elu", "relu6"}
)
INFIX: Final = {"add": "+", "mul": "*", "pow": "**", "matmul": "@"}
CHUNK_ROWS: Final = (32, 64, 128, 256, 512)
_MIN_OPERATIONS: Final = 5
_MAX_OPERATIONS: Final = 40
_IN_PLACE: Final = frozenset(
    {
        "relu",
        "tanh",
        "sigmoid",
        "exp",
        "sqrt",
        "abs",
        "sin",
        "cos",
        "log",
        "log1p",
        "neg",
        "erf",
        "expm1",
    }
)
_NAMES: Final = ("c", "d", "g", "h", "k", "p", "r", "s")


@lru_cache(maxsize=4096)
def template(text: str) -> Template:
    """Return a template; the same text is parsed once."""
    return Template(text)


def chain_options(
    program: Program, node: ast.expr, term: Term, region_of: Mapping[Term, int]
) -> Iterator[Found]:
    """Yield in-place and chunked forms of a chain that ends in this expression.

    A chain stays within the code that one rule has matched, or outside of all matches.
    """
    if not _is_end(program, node, term, region_of):
        return
    base, operations = _chain(term, region_of)
    if base is None or not _MIN_OPERATIONS <= len(operations) <= _MAX_OPERATIONS:
        return
    binding = {"_x": base}
    try:
        plain = _Code(term, base, "c", in_place=False).lines
        reused = _Code(term, base, "_x", in_place=True).lines
    except _Unwritable:
        return
    yield "chunked_chain", Kind.FAST, template("\n".join(reused)), binding
    body = "".join(f"    {line}\n" for line in plain[:-1]) + f"    parts.append({plain[-1]})\n"
    for rows in CHUNK_ROWS:
        yield (
            "chunked_chain",
            Kind.MID,
            template(f"parts = []\nfor c in _x.split({rows}):\n{body}torch.cat(parts)"),
            binding,
        )
    for rows, joined in ((32, "torch.cat(parts[1:])"), (64, "torch.stack(parts[:1])")):
        yield (
            "chunked_chain",
            Kind.WRONG,
            template(f"parts = []\nfor c in _x.split({rows}):\n{body}{joined}"),
            binding,
        )


class _Unwritable(Exception):
    """A chain needs more temporaries than there are names."""


class _Code:
    """Statements that compute a chain; the last line is the value."""

    def __init__(self, term: Term, base: Term, name: str, *, in_place: bool) -> None:
        self.base = base
        self.in_place = in_place
        self.left = _uses(term, base)
        self.name_of: dict[Term, str] = {base: name}
        self.lines: list[str] = []
        self.busy = {name}
        text, _ = self.text(term)
        self.lines.append(text)

    def text(self, term: Term) -> tuple[str, bool]:
        """Return code for a term, and whether it is a fresh tensor that may be overwritten."""
        if term.op == "const":
            return (
                repr(term.value)
                if not isinstance(term.value, int | float) or term.value >= 0
                else f"({term.value!r})"
            ), False
        name = self.name_of.get(term)
        if name is not None:
            self.use(term)
            return name, False
        shared = self.left[term] > 1
        text, fresh = self.operation(term)
        if not shared:
            return text, fresh
        name = next((n for n in _NAMES if n not in self.busy), None)
        if name is None:
            raise _Unwritable
        self.busy.add(name)
        self.lines.append(f"{name} = {text}")
        self.name_of[term] = name
        self.use(term)
        return name, False

    def use(self, term: Term) -> None:
        """Count one use; after the last, the name is free."""
        self.left[term] -= 1
        if self.left[term] == 0:
            self.busy.discard(self.name_of[term])

    def operation(self, term: Term) -> tuple[str, bool]:
        args = term.args
        if term.op == "add" and args[1].op == "neg" and self.left[args[1]] == 1:
            return self.infix("-", "sub_", args[0], args[1].args[0])
        if term.op == "mul" and args[1].op == "recip" and self.left[args[1]] == 1:
            return self.infix("/", "div_", args[0], args[1].args[0])
        if term.op == "add" or term.op == "mul":
            left, right = args if args[0].op != "const" else (args[1], args[0])
            return self.infix(INFIX[term.op], f"{term.op}_", left, right)
        if term.op == "pow" and args[1].op == "const":
            if args[1].value == 2:
                inner, fresh = self.text(args[0])
                return (
                    f"{inner}.square_()" if fresh and self.in_place else f"{inner}.square()"
                ), True
            return self.infix("**", "pow_", *args)
        inner, fresh = self.text(args[0])
        if term.op == "recip":
            return (
                f"{inner}.reciprocal_()" if fresh and self.in_place else f"(1.0 / {inner})"
            ), True
        if fresh and self.in_place and term.op in _IN_PLACE and len(args) == 1:
            return f"{inner}.{term.op}_()", True
        if term.op == "neg":
            return f"(-{inner})", True
        rest = "".join(f", {a.value!r}" for a in args[1:])
        if term.op == "gelu":
            rest = f", approximate={args[1].value!r}"
        if any(a.op != "const" for a in args[1:]):
            raise _Unwritable
        return f"{'F' if term.op in FUNCTIONAL else 'torch'}.{term.op}({inner}{rest})", True

    def infix(self, sign: str, method: str, left: Term, right: Term) -> tuple[str, bool]:
        first, fresh = self.text(left)
        second, fresh_second = self.text(right)
        if self.in_place and fresh:
            return (
                f"{first}.{method}({second.strip('()') if right.op == 'const' else second})",
                True,
            )
        if self.in_place and fresh_second and not fresh and sign in "+*":
            return f"{second}.{method}({first})", True
        return f"({first} {sign} {second})", True


def _uses(term: Term, base: Term) -> Counter[Term]:
    uses: Counter[Term] = Counter({term: 1})
    done: set[Term] = set()
    todo = [term]
    while todo:
        current = todo.pop()
        if current in done or current is base or current.op == "const":
            continue
        done.add(current)
        for arg in current.args:
            uses[arg] += 1
            todo.append(arg)
    return uses


def _is_end(program: Program, node: ast.expr, term: Term, region_of: Mapping[Term, int]) -> bool:
    """Return whether the node is a statement's value and not part of a longer chain."""
    definition = program.definitions[program.owner[id(node)]]
    if definition.value is not node or len(definition.targets) > 1:
        return False
    region = region_of.get(term)
    return all(
        region_of.get(parent) != region or _chain(parent, region_of)[0] is None
        for parent in program.pointwise_parents.get(term, ())
    )


def _chain(term: Term, region_of: Mapping[Term, int]) -> tuple[Term | None, set[Term]]:
    """Return the one tensor that a chain starts from (None: several), and its operations."""
    region = region_of.get(term)
    inner: set[Term] = set()
    bases: set[Term] = set()
    todo = [term]
    while todo:
        current = todo.pop()
        if current.op in POINTWISE and region_of.get(current) == region:
            if current not in inner:
                inner.add(current)
                todo += current.args
        elif current.op != "const":
            bases.add(current)
            if len(bases) > 1:
                return None, inner
    return (bases.pop() if bases else None), inner
