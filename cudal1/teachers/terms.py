"""Terms: expressions in one canonical spelling, so that a rule needs to be written once.

`x.sum(-1, keepdim=True)` and `torch.sum(x, dim=-1, keepdim=True)` become the same Term; `a - b` is
`add(a, neg(b))`, `a / b` is `mul(a, recip(b))`, `x * x` is `pow(x, 2)`. Terms are interned: equal
terms are the same object. They are for matching only; code is printed from syntax trees.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from types import EllipsisType

from cudal1.teachers.spelling import (
    ALIASES,
    BINARY,
    MATH,
    MODULE_FUNCTIONS,
    NAMESPACES,
    REQUIRED,
    SIGNATURES,
    SUM_OF_LOOP,
    dotted,
)

Value = int | float | bool | str | bytes | complex | None


class Term:
    """An operation on terms; `value` tells apart operations that share a name."""

    __slots__ = ("args", "op", "value")

    def __init__(self, op: str, args: tuple[Term, ...], value: Value) -> None:
        self.op = op
        self.args = args
        self.value = value

    def __repr__(self) -> str:
        """Return the term in a readable form."""
        inside = ", ".join(map(repr, self.args))
        return (
            f"{self.op}[{self.value!r}]({inside})"
            if self.value is not None
            else f"{self.op}({inside})"
        )


class Terms:
    """Makes terms; one instance for each program or pattern."""

    def __init__(
        self,
        *,
        attributes: Mapping[str, Value],
        modules: Mapping[str, str],
        metavariables: bool = False,
    ) -> None:
        """Take the known numbers among `self`'s attributes, and its modules' class names."""
        self._interned: dict[tuple[object, ...], Term] = {}
        self._attributes = attributes
        self._modules = modules
        self._metavariables = metavariables
        self.names: dict[str, Term] = {}
        self.on_term: Callable[[ast.expr, Term], None] | None = None

    def raw(self, op: str, args: tuple[Term, ...] = (), value: Value = None) -> Term:
        """Return the interned term, without simplification."""
        key = (op, type(value), value, *map(id, args))
        term = self._interned.get(key)
        if term is None:
            term = self._interned[key] = Term(op, args, value)
        return term

    def const(self, value: Value) -> Term:
        """Return the term of a constant."""
        return self.raw("const", (), value)

    def make(self, op: str, *args: Term) -> Term:
        """Return the term of an operation, in canonical form."""
        if op == "sub":
            return self.make("add", args[0], self.make("neg", args[1]))
        if op == "div":
            return self.make("mul", args[0], self.make("recip", args[1]))
        if op == "rsqrt":
            return self.make("recip", self.make("sqrt", *args))
        if op == "square":
            return self.make("pow", args[0], self.const(2))
        if args and all(a.op == "const" and isinstance(a.value, int | float) for a in args):
            folded = self._fold(op, [a.value for a in args])
            if folded is not None:
                return self.const(folded)
        if op == "mul":
            return self._mul(*args)
        if op == "pow" and len(args) == 2 and args[1].op == "const":
            exponent = args[1].value
            if exponent == 0.5:
                return self.raw("sqrt", args[:1])
            if exponent in (-0.5, -1):
                inner = self.raw("sqrt", args[:1]) if exponent == -0.5 else args[0]
                return self.raw("recip", (inner,))
            if exponent == 2:
                return self.raw("pow", (args[0], self.const(2)))
        return self.raw(op, args)

    def _mul(self, left: Term, right: Term) -> Term:
        if left is right:
            return self.raw("pow", (left, self.const(2)))
        for one, other in ((left, right), (right, left)):
            if one.op == "const" and one.value == -1:
                return self.make("neg", other)
            if one.op == "const" and one.value == 1:
                return other
            if one.op == "pow" and one.args[0] is other and one.args[1].value == 2:
                return self.raw("pow", (other, self.const(3)))
        return self.raw("mul", (left, right))

    @staticmethod
    def _fold(op: str, values: list[Value]) -> Value:
        numbers = [v for v in values if isinstance(v, int | float)]
        try:
            match op, numbers:
                case "add", [a, b]:
                    return a + b
                case "mul", [a, b]:
                    return a * b
                case "neg", [a]:
                    return -a
                case "recip", [a]:
                    return 1 / a
                case _:
                    function = MATH.get(op)
                    result = function(*numbers) if function else None
                    return result if isinstance(result, int | float) else None
        except (ArithmeticError, ValueError, TypeError):
            return None

    def of(self, node: ast.expr) -> Term:
        """Return the term of an expression; report every part of it to `on_term`."""
        term = self._of(node)
        if self.on_term is not None:
            self.on_term(node, term)
        return term

    def _of(self, node: ast.expr) -> Term:
        if isinstance(node, ast.Constant):
            return self.const("..." if isinstance(node.value, EllipsisType) else node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return self.make(BINARY[type(node.op)], self.of(node.left), self.of(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.make("neg", self.of(node.operand))
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Slice):
            bounds = (node.lower, node.upper, node.step)
            return self.raw(
                "slice", tuple(self.const(None) if b is None else self.of(b) for b in bounds)
            )
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
            return self._comprehension(node)
        children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        shape = "".join(
            type(c).__name__
            for c in ast.walk(node)
            if isinstance(c, ast.cmpop | ast.boolop | ast.unaryop)
        )
        if isinstance(
            node, ast.Lambda | ast.SetComp | ast.DictComp | ast.ListComp | ast.GeneratorExp
        ):
            return self.raw("opaque", (), ast.dump(node))
        return self.raw(type(node).__name__.lower() + shape, tuple(map(self.of, children)))

    def _name(self, name: str) -> Term:
        known = self.names.get(name)
        if known is not None:
            return known
        if self._metavariables and name.startswith("_"):
            return self.raw("?", (), name)
        return self.raw("name", (), name)

    def _attribute(self, node: ast.Attribute) -> Term:
        name = dotted(node)
        if name is not None:
            if name.startswith("self.") and name.count(".") == 1:
                if node.attr in self._attributes:
                    return self.const(self._attributes[node.attr])
                return self.raw("attr", (self.raw("name", (), "self"),), node.attr)
            if name == "math.pi":
                return self.const(math.pi)
            if name.split(".")[0] in {"torch", "F", "nn", "math"}:
                return self.raw("global", (), name)
        base = self.of(node.value)
        if node.attr in {"T", "mT"}:
            return self.make(node.attr, base)
        if node.attr == "values" and base.op in {"max", "min"}:
            return self.raw("a" + base.op, base.args)
        return self.raw("attr", (base,), node.attr)

    def _subscript(self, node: ast.Subscript) -> Term:
        base, index = self.of(node.value), self.of(node.slice)
        if base.op == "attr" and base.value == "shape" and index.op == "const":
            return self.raw("size", (base.args[0], index))
        if base.op in {"max", "min"} and index.op == "const" and index.value == 0:
            return self.raw("a" + base.op, base.args)
        return self.raw("index", (base, index))

    def _call(self, node: ast.Call) -> Term:
        positional = [self.of(a.value if isinstance(a, ast.Starred) else a) for a in node.args]
        keywords = {
            ALIASES.get(k.arg or "**", k.arg or "**"): self.of(k.value) for k in node.keywords
        }
        if any(isinstance(a, ast.Starred) for a in node.args):
            return self.raw("starred", (self.of(node.func), *positional))
        if isinstance(node.func, ast.Attribute):
            namespace = dotted(node.func.value)
            if namespace in NAMESPACES:
                return self._operation(node.func.attr, positional, keywords)
            if namespace == "self":
                return self._module_call(node.func, positional, keywords)
            return self._operation(
                node.func.attr, [self.of(node.func.value), *positional], keywords
            )
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "slice" and len(positional) == 2:
            return self.raw("slice", (*positional, self.const(None)))
        if name in {"float", "int", "range", "len", "list", SUM_OF_LOOP}:
            return (
                self.make(name, *positional) if name in MATH else self.raw(name, tuple(positional))
            )
        return self._generic("call", [self.of(node.func), *positional], keywords)

    def _module_call(
        self, func: ast.Attribute, positional: list[Term], keywords: dict[str, Term]
    ) -> Term:
        function = MODULE_FUNCTIONS.get(self._modules.get(func.attr, ""))
        if function is not None and len(positional) == 1 and not keywords:
            return self._operation(function, positional, {})
        return self._generic("call", [self.of(func), *positional], keywords)

    def _operation(self, name: str, positional: list[Term], keywords: dict[str, Term]) -> Term:
        name = ALIASES.get(name, name)
        if name == "transpose" and len(positional) == 3:
            dims = {a.value for a in positional[1:] if a.op == "const"}
            if dims in ({0, 1}, {-1, -2}):
                return self.make("T" if dims == {0, 1} else "mT", positional[0])
        if name in {"reshape", "permute", "expand"} and len(positional) > 2:
            positional = [positional[0], self.raw("tuple", tuple(positional[1:]))]
        if "input" in keywords:
            positional = [keywords.pop("input"), *positional]
        signature = SIGNATURES.get(name)
        if signature is not None and positional:
            args, rest = positional[:1], positional[1:]
            for index, (parameter, default) in enumerate(signature):
                if index < len(rest):
                    args.append(rest[index])
                elif parameter in keywords:
                    args.append(keywords.pop(parameter))
                elif default is not REQUIRED and (
                    default is None or isinstance(default, int | float | str)
                ):
                    args.append(self.const(default))
                else:
                    return self._generic(name, positional, keywords)
            if not keywords:
                return self.raw(name, tuple(args))
        return self._generic(name, positional, keywords)

    def _generic(self, op: str, positional: list[Term], keywords: dict[str, Term]) -> Term:
        if not keywords:
            return self.make(op, *positional)
        names = sorted(keywords)
        return self.raw(op + ":" + ",".join(names), (*positional, *(keywords[n] for n in names)))

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> Term:
        generator = node.generators[0]
        if not isinstance(generator.target, ast.Name) or generator.ifs:
            return self.raw("opaque", (), ast.dump(node))
        iterable = self.of(generator.iter)
        name = generator.target.id
        shadowed, listener = self.names.get(name), self.on_term
        self.names[name] = self.raw("bound", (), sum(t.op == "bound" for t in self.names.values()))
        self.on_term = None
        body = self.of(node.elt)
        self.on_term = listener
        del self.names[name]
        if shadowed is not None:
            self.names[name] = shadowed
        return self.raw("each", (iterable, body))
