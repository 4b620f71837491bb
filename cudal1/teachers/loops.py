"""Rules that must compute their replacement: Python loops over rows, columns or chunks.

A loop body that treats every row alike is written once for all rows: `torch.stack([f(x[i]) for i in
range(x.shape[0])])` becomes `f(x)`, with reductions over the row's dimension kept as columns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from cudal1.teachers.chains import FUNCTIONAL, INFIX, Found, template
from cudal1.teachers.program import Program
from cudal1.teachers.rule import Kind
from cudal1.teachers.spelling import POINTWISE
from cudal1.teachers.terms import Term

_ROW_REDUCTIONS: Final = frozenset({"sum", "mean", "amax", "amin"})


def loop_options(term: Term) -> Iterator[Found]:
    """Yield replacements of a loop with results that are stacked or concatenated."""
    if term.op not in {"stack", "cat"} or not term.args or term.args[0].op != "each":
        return
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


def step_options(program: Program, call: ast.Call, variable: str) -> list[Found]:
    """Return forms of a linear layer in a loop over steps that apply it once, before the loop."""
    term = program.term_of[id(call)]
    module, element = term.args
    binding = {"_lin": module, "_x": element.args[0]}
    before = "h = _lin(_x)"
    return [
        ("loop_projection", Kind.FAST, template(f"{before}\nh[:, {variable}]"), binding),
        (
            "loop_projection",
            Kind.MID,
            template(f"h = _lin(_x.contiguous())\nh[:, {variable}]"),
            binding,
        ),
        ("loop_projection", Kind.WRONG, template(f"{before}\nh[:, 0]"), binding),
        ("loop_projection", Kind.WRONG, template(f"{before}\nh[:, {variable} - 1]"), binding),
        ("loop_projection", Kind.WRONG, template(f"{before}\nh[{variable}]"), binding),
    ]


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


class _Writer:
    """Writes a loop's body as template text; None where it cannot."""

    def __init__(self, base: Term) -> None:
        self.base = base
        self.seen = False
        self.binding: dict[str, Term] = {"_x": base}

    def leaf(self, term: Term) -> str:
        """Return a metavariable for a term that is the same in every turn."""
        for name, bound in self.binding.items():
            if bound is term:
                return name
        name = f"_a{len(self.binding)}"
        self.binding[name] = term
        return name

    def element(self, term: Term) -> bool:
        """Return whether a term is the part that this turn of the loop works on."""
        raise NotImplementedError

    def reduction(self, term: Term) -> str | None:
        """Return the text of a reduction inside the body; None where it cannot be written."""
        raise NotImplementedError

    def write(self, term: Term) -> str | None:
        """Return the template text of a term of the body; None where it cannot be written."""
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
        """Return the text of a pointwise operation or a product; None if it cannot be written."""
        parts = [self.write(arg) for arg in term.args]
        texts = [p for p in parts if p is not None]
        if len(texts) != len(parts) or (term.op == "matmul" and _mentions_loop(term.args[1])):
            return None
        if term.op in INFIX:
            right = term.args[1]
            if term.op == "add" and right.op == "neg":
                return f"({texts[0]} - {self.write(right.args[0])})"
            if term.op == "mul" and right.op == "recip":
                return f"({texts[0]} / {self.write(right.args[0])})"
            return f"({texts[0]} {INFIX[term.op]} {texts[1]})"
        if term.op == "neg":
            return f"(-{texts[0]})"
        if term.op == "recip":
            return f"(1.0 / {texts[0]})"
        if term.op == "gelu":
            return f"F.gelu({texts[0]}, approximate={term.args[1].value!r})"
        namespace = "F" if term.op in FUNCTIONAL else "torch"
        return f"{namespace}.{term.op}({', '.join(texts)})"


class _RowWriter(_Writer):
    """Writes loops over rows: `x[i]` for i in range(x.shape[0])."""

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
    """Writes loops over blocks `x[:, i:i + n]` of n columns each, or over a split's chunks."""

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
    """Return the tensor that the body takes blocks of, if there is only one."""
    if body.op == "index" and _mentions_loop(body.args[1]) and not _mentions_loop(body.args[0]):
        return body.args[0]
    found = {t for t in map(_sliced, body.args) if t is not None}
    return found.pop() if len(found) == 1 else None
