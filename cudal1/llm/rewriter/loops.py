"""Rules that need a computation: Python loops over rows, columns or chunks, and repeated expressions.

A loop body that treats every row alike is written once for all rows: `torch.stack([f(x[i]) for i in
range(x.shape[0])])` becomes `f(x)`, with reductions over the row's dimension kept as columns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from cudal1.llm.rewriter.matching import Binding
from cudal1.llm.rewriter.program import Program
from cudal1.llm.rewriter.rule import Kind, Template
from cudal1.llm.rewriter.terms import Term

Found = tuple[str, Kind, Template, Binding]

POINTWISE: Final = frozenset(
    {"relu", "tanh", "sigmoid", "exp", "sqrt", "abs", "sin", "cos", "silu", "gelu", "softplus", "mish", "hardswish", "erf",
     "neg", "recip", "add", "mul", "pow", "log", "log1p", "square", "clamp", "leaky_relu", "elu", "relu6", "expm1"}
)  # fmt: skip
_INFIX: Final = {"add": "+", "mul": "*", "pow": "**", "matmul": "@"}
_FUNCTIONAL: Final = frozenset({"silu", "gelu", "softplus", "mish", "hardswish", "leaky_relu", "elu", "relu6"})
_ROW_REDUCTIONS: Final = frozenset({"sum", "mean", "amax", "amin"})
CHUNK_ROWS: Final = (8, 16, 32, 64, 128)
_MIN_CHAIN: Final = 4
"""Pointwise operations in a row that make working chunk by chunk worth a try."""


def procedural_options(program: Program, node: ast.expr, term: Term) -> Iterator[Found]:
    """What this module's rules propose for one expression."""
    if term.op in {"stack", "cat"} and term.args and term.args[0].op == "each":
        yield from _loops(term)
    elif term.op in POINTWISE and _ends_chain(program, node):
        yield from _chunks(term)


def _loops(term: Term) -> Iterator[Found]:
    iterable, body = term.args[0].args
    dim = term.args[1].value if len(term.args) > 1 else 0
    if iterable.op == "range" and len(iterable.args) == 1 and iterable.args[0].op == "size":
        base, along = iterable.args[0].args
        if along.value == 0 and dim == 0 and term.op == "stack":
            writer = _RowWriter(base)
            yield from _batched("row_loop", writer, writer.write(body), Kind.FAST)
    elif iterable.op == "range" and len(iterable.args) in (1, 3) and term.op == "cat":
        base = _sliced(body)
        writer = _BlockWriter(base) if base is not None else None
        if writer is not None and dim in (0, 1, -1):
            yield from _batched("list_cat", writer, writer.write(body), Kind.FAST)
    elif iterable.op in {"split", "chunk"} and term.op == "cat":
        writer = _BlockWriter(iterable.args[0], whole=True)
        yield from _batched("list_cat", writer, writer.write(body), Kind.FAST)


def _batched(family: str, writer: _Writer, text: str | None, kind: Kind) -> Iterator[Found]:
    if text is None or not writer.seen:
        return
    binding = writer.binding
    yield family, kind, template(text), binding
    row = text.replace("_x", "r") if "_x" in text else text
    if family == "row_loop" and "dim" not in text:
        yield family, Kind.MID, template(f"torch.stack([{row} for r in _x.unbind(0)])"), binding
        yield family, Kind.SLOW, template(f"torch.cat([{row} for r in _x.split(1)])"), binding
    else:
        yield family, Kind.MID, template(text.replace("_x", "_x.contiguous()")), binding
    halves = text.replace("_x", "_x[:_x.shape[0] // 2]")
    yield family, Kind.WRONG, template(text.replace("_x", "_x[:1]")), binding
    yield family, Kind.WRONG, template(text.replace("_x", "_x[0]") + ".expand_as(_x)"), binding
    yield family, Kind.WRONG, template(halves), binding


@lru_cache(maxsize=4096)
def template(text: str) -> Template:
    """A parsed template; the same text is parsed once."""
    return Template.parse(text)


class _Writer:
    """Writes a loop's body as template text; None where it does not know how."""

    def __init__(self, base: Term) -> None:
        self.base = base
        self.seen = False
        self.binding: dict[str, Term] = {"_x": base}

    def leaf(self, term: Term) -> str:
        """A metavariable for something that is the same in every turn."""
        for name, bound in self.binding.items():
            if bound is term:
                return name
        name = f"_a{len(self.binding)}"
        self.binding[name] = term
        return name

    def element(self, term: Term) -> bool:
        """Whether a term is the part that this turn of the loop works on."""
        raise NotImplementedError

    def reduction(self, term: Term) -> str | None:
        """A reduction inside the body."""
        raise NotImplementedError

    def write(self, term: Term) -> str | None:
        """Template text for a term of the body."""
        if self.element(term):
            self.seen = True
            return "_x"
        if term.op == "const":
            return f"({term.value!r})"
        if not _mentions_loop(term):
            return self.leaf(term)
        if term.op in POINTWISE | {"matmul"}:
            return self.operation(term)
        if term.op == "call" and not _mentions_loop(term.args[0]) and len(term.args) == 2:
            inner = self.write(term.args[1])
            return None if inner is None else f"{self.leaf(term.args[0])}({inner})"
        return self.reduction(term)

    def operation(self, term: Term) -> str | None:
        """A pointwise operation or a product."""
        parts = [self.write(arg) for arg in term.args]
        texts = [p for p in parts if p is not None]
        if len(texts) != len(parts) or (term.op == "matmul" and _mentions_loop(term.args[1])):
            return None
        if term.op in _INFIX:
            right = term.args[1]
            if term.op == "add" and right.op == "neg":
                return f"({texts[0]} - {self.write(right.args[0])})"
            if term.op == "mul" and right.op == "recip":
                return f"({texts[0]} / {self.write(right.args[0])})"
            return f"({texts[0]} {_INFIX[term.op]} {texts[1]})"
        if term.op == "neg":
            return f"(-{texts[0]})"
        if term.op == "recip":
            return f"(1.0 / {texts[0]})"
        if term.op == "gelu":
            return f"F.gelu({texts[0]}, approximate={term.args[1].value!r})"
        namespace = "F" if term.op in _FUNCTIONAL else "torch"
        return f"{namespace}.{term.op}({', '.join(texts)})"


class _RowWriter(_Writer):
    """`x[i]` for i in range(x.shape[0])."""

    def element(self, term: Term) -> bool:
        return term.op == "index" and term.args[0] is self.base and term.args[1].op == "bound"

    def reduction(self, term: Term) -> str | None:
        if not term.args:
            return None
        inner = self.write(term.args[0])
        if inner is None:
            return None
        if term.op in {"softmax", "log_softmax"} and term.args[1].value in (0, -1):
            return f"torch.{term.op}({inner}, dim=-1)"
        if term.op in {"cumsum"} and term.args[1].value in (0, -1):
            return f"torch.cumsum({inner}, dim=-1)"
        if term.op == "max" and len(term.args) == 3 and term.args[1].value is None:
            return f"{inner}.amax(dim=-1, keepdim=True)"
        if term.op in _ROW_REDUCTIONS and term.args[1].value in (None, 0, -1):
            return f"{inner}.{term.op}(dim=-1, keepdim=True)"
        if term.op == "norm" and len(term.args) == 1:
            return f"{inner}.norm(dim=-1, keepdim=True)"
        return None


class _BlockWriter(_Writer):
    """`x[:, i:i + n]` for i in range(0, x.shape[1], n), or the chunks of a split."""

    def __init__(self, base: Term, *, whole: bool = False) -> None:
        super().__init__(base)
        self.whole = whole

    def element(self, term: Term) -> bool:
        if self.whole:
            return term.op == "bound"
        return term.op == "index" and term.args[0] is self.base and _mentions_loop(term.args[1])

    def operation(self, term: Term) -> str | None:
        # a tensor from outside has the block's shape, not that of the whole
        others = [a for a in term.args if a.op != "const" and not _mentions_loop(a)]
        return None if others or term.op == "matmul" else super().operation(term)

    def reduction(self, term: Term) -> str | None:
        return None


@lru_cache(maxsize=8192)
def _mentions_loop(term: Term) -> bool:
    return term.op in {"bound", "opaque"} or any(map(_mentions_loop, term.args))


def _sliced(body: Term) -> Term | None:
    """The tensor that the body takes blocks of, if there is one only."""
    if body.op == "index" and _mentions_loop(body.args[1]) and not _mentions_loop(body.args[0]):
        return body.args[0]
    found = {t for t in map(_sliced, body.args) if t is not None}
    return found.pop() if len(found) == 1 else None


def _ends_chain(program: Program, node: ast.expr) -> bool:
    """The node is a whole statement's value, and nothing pointwise follows it."""
    definition = program.definitions[program.owner[id(node)]]
    if definition.value is not node or len(definition.targets) != 1:
        return False
    term = program.term_of[id(node)]
    return not any(
        term in other.args and other.op in POINTWISE
        for other in program.first_node if other is not term
    )  # fmt: skip


def _chunks(term: Term) -> Iterator[Found]:
    base = _chain_base(term)
    if base is None:
        return
    writer = _ChainWriter(base)
    text = writer.write(term)
    if text is None or not writer.seen or len(text) > 400:
        return
    body = text.replace("_x", "c")
    for rows in CHUNK_ROWS:
        joined = f"torch.cat([{body} for c in _x.split({rows})])"
        yield "chunked_chain", Kind.MID, template(joined), writer.binding
    yield "chunked_chain", Kind.WRONG, template(f"torch.cat([{body} for c in _x.split(32)[1:]])"), writer.binding
    yield "chunked_chain", Kind.WRONG, template(f"torch.stack([{body} for c in _x.split(64)])"), writer.binding


class _ChainWriter(_Writer):
    """A pointwise chain on one tensor and numbers."""

    def element(self, term: Term) -> bool:
        return term is self.base

    def reduction(self, term: Term) -> str | None:
        return None

    def write(self, term: Term) -> str | None:
        if self.element(term):
            self.seen = True
            return "_x"
        if term.op == "const":
            return f"({term.value!r})"
        return self.operation(term) if term.op in POINTWISE else None


def _chain_base(term: Term) -> Term | None:
    """The one tensor that a chain of at least `_MIN_CHAIN` pointwise operations starts from."""
    inner: set[Term] = set()
    bases: set[Term] = set()
    todo = [term]
    while todo:
        current = todo.pop()
        if current.op in POINTWISE:
            if current not in inner:
                inner.add(current)
                todo += current.args
        elif current.op != "const":
            bases.add(current)
    return bases.pop() if len(bases) == 1 and len(inner) >= _MIN_CHAIN else None
