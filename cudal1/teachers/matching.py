"""Unification of a pattern's term with a program's term.

Metavariables start with `_`. The letter after it restricts the terms that may be bound:

* `_c`: a number,
* `_e`: a small number,
* `_d`: an integer,
* `_l`: the last dimension,
* `_n`: an integer or a size,
* `_p`: an attribute of self,
* `_lin`: a `nn.Linear` of self; `_conv` and `_bn` likewise,
* a capital, as in `_Conv2d`: a layer of self of that class; `_Conv2dB`: one that has a bias,
* any other letter: any term.

A metavariable that occurs twice is bound to one and the same term.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudal1.teachers.program import Program
from cudal1.teachers.spelling import COMMUTATIVE
from cudal1.teachers.terms import Term

Binding = Mapping[str, Term]

_MAX_EPSILON = 1e-4


def unify(pattern: Term, term: Term, program: Program) -> Iterator[Binding]:
    """Yield every binding with which the pattern covers the term."""
    if _may_fit(pattern, term, 3):
        yield from _unify(((pattern, term),), {}, program)


def _may_fit(pattern: Term, term: Term, depth: int) -> bool:
    """Return False when operations differ so that no binding can exist; cheaper than a search."""
    if pattern.op == "?":
        return True
    if pattern.op != term.op or len(pattern.args) != len(term.args):
        return False
    if depth == 0 or not pattern.args:
        return pattern.op == "const" or pattern.value == term.value
    if all(_may_fit(p, t, depth - 1) for p, t in zip(pattern.args, term.args, strict=True)):
        return True
    return pattern.op in COMMUTATIVE and all(
        _may_fit(p, t, depth - 1) for p, t in zip(pattern.args, reversed(term.args), strict=True)
    )


def _unify(
    todo: tuple[tuple[Term, Term], ...], binding: dict[str, Term], program: Program
) -> Iterator[Binding]:
    if not todo:
        yield binding
        return
    (pattern, term), rest = todo[0], todo[1:]
    if pattern.op == "?":
        name = str(pattern.value)
        bound = binding.get(name)
        if bound is term:
            yield from _unify(rest, binding, program)
        elif bound is None and _allowed(name, term, program):
            yield from _unify(rest, {**binding, name: term}, program)
        return
    if pattern.op != term.op or len(pattern.args) != len(term.args):
        return
    if pattern.op == "const":
        if _same_constant(pattern.value, term.value):
            yield from _unify(rest, binding, program)
        return
    if pattern.value != term.value:
        return
    if not pattern.args:
        yield from _unify(rest, binding, program)
        return
    yield from _unify((*zip(pattern.args, term.args, strict=True), *rest), binding, program)
    if pattern.op in COMMUTATIVE and term.args[0] is not term.args[1]:
        left, right = term.args
        yield from _unify(
            ((pattern.args[0], right), (pattern.args[1], left), *rest), binding, program
        )


def _allowed(name: str, term: Term, program: Program) -> bool:
    kind = name[1:].rstrip("0123456789")
    is_number = (
        term.op == "const"
        and isinstance(term.value, int | float)
        and not isinstance(term.value, bool)
    )
    match kind:
        case "c":
            return is_number
        case "e":
            return is_number and 0 <= float(str(term.value)) <= _MAX_EPSILON
        case "d":
            return is_number and isinstance(term.value, int)
        case "l":
            return is_number and (term.value == -1 or (term.value == 1 and program.is_matrix))
        case "n":
            return term.op in {"const", "size"}
        case "p":
            return term.op == "attr" and bool(term.args) and term.args[0].value == "self"
        case "lin":
            return _is_module(term, "Linear", program)
        case "conv":
            return any(_is_module(term, f"Conv{n}d", program) for n in (1, 2, 3))
        case "bn":
            return any(_is_module(term, f"BatchNorm{n}d", program) for n in (1, 2, 3))
        case _ if kind[:1].isupper():
            layer = kind.removesuffix("B")
            return _is_module(term, layer, program) and (layer == kind or _has_bias(term, program))
        case _:
            return not is_number


def _has_bias(term: Term, program: Program) -> bool:
    """Return whether a layer surely has a bias: its constructor is not told about one."""
    call = program.modules[str(term.value)]
    return all(keyword.arg not in ("bias", None) for keyword in call.keywords)


def _is_module(term: Term, name: str, program: Program) -> bool:
    if term.op != "attr" or not term.args or term.args[0].value != "self":
        return False
    call = program.modules.get(str(term.value))
    return call is not None and getattr(call.func, "attr", getattr(call.func, "id", "")) == name


def _same_constant(pattern: object, value: object) -> bool:
    if isinstance(pattern, bool) or isinstance(value, bool):
        return pattern is value
    if isinstance(pattern, int | float) and isinstance(value, int | float):
        return abs(pattern - value) <= 1e-4 * abs(pattern)
    return pattern == value
