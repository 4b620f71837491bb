"""The kernels in a candidate's reachable code: texts that it has compiled, and Triton functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudal1.program.c_text import CText, read_c
from cudal1.program.live import Function, Live
from cudal1.program.names import last_name

_SOURCES = {
    "torch.utils.cpp_extension.load_inline": ("cpp_sources", "cuda_sources"),
    "cupy.RawKernel": ("code",),
    "cupy.RawModule": ("code",),
    "torch.cuda._compile_kernel": ("kernel_source",),
    "pycuda.compiler.SourceModule": ("source",),
}
"""Parameters that take a source, by the function that compiles it."""
_PLACES = {
    "torch.utils.cpp_extension.load_inline": {1: "cpp_sources", 2: "cuda_sources"},
    "cupy.RawKernel": {0: "code"},
    "cupy.RawModule": {0: "code"},
    "torch.cuda._compile_kernel": {0: "kernel_source"},
    "pycuda.compiler.SourceModule": {0: "source"},
}
_FILES = "torch.utils.cpp_extension.load"
"""The function that compiles files, which the source writes itself."""
_FLAGS = ("extra_cuda_cflags", "extra_cflags", "options", "nvcc_options", "compile_options")
_SAME = ("format", "replace", "strip", "dedent", "join", "lstrip", "rstrip", "substitute")
"""Methods that return nearly the text that they are called on, or are given."""
MAX_FOLLOWED = 200
"""Number of expressions that are followed to find the texts that one stands for."""
_MAX_STEPS = 8
"""Number of functions between a call and the kernel that it launches."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of a source."""

    texts: tuple[CText, ...]
    """The C++ and CUDA C++ that is compiled and called."""
    flags: str
    """The compiler's flags."""
    triton: tuple[Function, ...]
    """Triton functions: what is launched, and what that calls."""
    launches: tuple[ast.Call, ...]
    """Calls that launch a Triton function."""
    has_other: bool
    """True if a kernel in another language is reachable."""
    launchers: frozenset[str]
    """Names of variables, attributes, functions and classes by which a kernel is called."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its CUDA kernels and of the Triton functions that it launches."""
        cuda = [name for text in self.texts for name in text.kernels]
        launched = {_called_name(each) for each in self.launches}
        return tuple(dict.fromkeys([*cuda, *sorted(launched)]))

    @property
    def has_any(self) -> bool:
        """True if there is a kernel, or C++, at all."""
        return bool(self.texts or self.launches or self.has_other)


def kernels_of(live: Live) -> Kernels:
    """Return the kernels in reachable code."""
    triton = {name: node for name, node in live.functions.items() if live.is_triton(node)}
    launches = tuple(
        node
        for node in live.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and _called_name(node) in triton
    )
    calls = [node for node in live.nodes if isinstance(node, ast.Call)]
    compiled = [node for node in calls if live.dotted(node.func) in (*_SOURCES, _FILES)]
    used = _used(live, compiled)
    texts: list[str] = []
    flags: list[str] = []
    for call in dict.fromkeys(used):
        found = list(_sources(live, call))
        if not any("{" in each for each in found):
            found = list(_written(live))
        texts += found
        flags += [
            text
            for each in call.keywords
            if each.arg in _FLAGS
            for text in _texts(live, each.value)
        ]
    called = live.mentioned | {
        node.value
        for node in live.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 100
    }
    return Kernels(
        texts=tuple(read_c(text, called) for text in dict.fromkeys(texts) if "{" in text),
        flags=" ".join(flags),
        triton=tuple(triton.values()) if launches else (),
        launches=launches,
        has_other=any(map(live.is_other_kernel, live.functions.values())),
        launchers=_launchers(live, used, launches),
    )


def _called_name(call: ast.Call) -> str:
    """Return the last name of what is called, before a subscript."""
    return last_name(call.func.value if isinstance(call.func, ast.Subscript) else call.func)


def _used(live: Live, compiled: list[ast.Call]) -> list[ast.Call]:
    """Return the calls of a compiler with a result that something may call."""
    thrown_away = {
        id(node.value)
        for node in live.nodes
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and not any(each.arg == "is_python_module" for each in node.value.keywords)
    }
    unread = {
        id(each)
        for name, values in live.kept.items()
        if name not in live.read
        for value in values
        for each in ast.walk(value)
    }
    return [call for call in compiled if id(call) not in thrown_away | unread]


def _sources(live: Live, call: ast.Call) -> Iterator[str]:
    """Yield the texts that a call has compiled."""
    name = live.dotted(call.func)
    if name not in _SOURCES:
        return
    places = _PLACES[name]
    given = [each for place, each in enumerate(call.args) if place in places]
    given += [each.value for each in call.keywords if each.arg in _SOURCES[name]]
    for each in given:
        yield from _texts(live, each)


def _written(live: Live) -> Iterator[str]:
    """Yield texts that look like C++, of those that reachable code passes on, returns or names."""
    for node in live.nodes:
        values: list[ast.expr] = []
        match node:
            case ast.Call(args=arguments, keywords=keywords):
                values = [*arguments, *(each.value for each in keywords)]
            case ast.Return(value=ast.expr() as value):
                values = [value]
            case _:
                pass
        for value in values:
            yield from (text for text in _texts(live, value) if _looks_like_c(text))


def _looks_like_c(text: str) -> bool:
    return "{" in text and ("__global__" in text or "#include" in text or "torch::" in text)


def _texts(live: Live, value: ast.expr, seen: set[int] | None = None) -> Iterator[str]:
    """Yield the texts that an expression may stand for; each expression is followed once."""
    seen = set() if seen is None else seen
    if id(value) in seen or len(seen) > MAX_FOLLOWED:
        return
    seen.add(id(value))
    followed: Sequence[ast.expr] = ()
    match value:
        case ast.Constant(value=str() as text):
            yield text
        case ast.JoinedStr(values=values):
            parts = [str(each.value) if isinstance(each, ast.Constant) else "0" for each in values]
            yield "".join(parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = [next(_texts(live, side, seen), "") for side in (left, right)]
            yield "".join(sides)
        case ast.BinOp(left=left, op=ast.Mod()):
            followed = [left]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            followed = elements
        case ast.Name(id=name):
            followed = live.named.get(name, ())
        case ast.Attribute(attr=name):  # of an object, or of a class
            followed = [*live.kept.get(name, ()), *live.named.get(name, ())]
        case ast.Call(func=ast.Attribute(value=base, attr=name), args=given) if name in _SAME:
            followed = [base, *given[:1]]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in live.functions:
            returned = (n for n in ast.walk(live.functions[name]) if isinstance(n, ast.Return))
            followed = [each.value for each in returned if each.value is not None]
        case _:
            pass
    for each in followed:
        yield from _texts(live, each, seen)


def _launchers(
    live: Live, compiled: list[ast.Call], launches: tuple[ast.Call, ...]
) -> frozenset[str]:
    """Return the names by which reachable code calls a kernel, directly or through functions.

    They are variables and attributes that hold what was compiled, and functions and classes that
    use one of them. A variable that holds what a kernel has computed is none.
    """
    if not compiled and not launches:
        return frozenset()
    sources = {id(call) for call in compiled}
    loaders = {name for name, node in live.functions.items() if _holds(node, sources)}
    names = {_called_name(each) for each in launches}
    aliases: list[tuple[str, str]] = []
    for name, values in (*live.named.items(), *live.kept.items()):
        for value in values:
            if _holds(value, sources) or _makes(value) in loaders:
                names.add(name)
            elif isinstance(value, ast.Name | ast.Attribute):
                aliases += [(name, each) for each in _names_in(value)]
    users = [(name, _names_in(node)) for name, node in live.functions.items()]
    users += [(name, _names_in(node)) for name, node in live.classes.items()]
    for _ in range(_MAX_STEPS):
        more = {name for name, needed in users if needed & names}
        more |= {name for name, other in aliases if other in names}
        if more <= names:
            break
        names |= more
    return frozenset(names - {"forward", "__init__", "__call__", "apply", "self", ""})


def _makes(value: ast.expr) -> str:
    """Return the name of the function that returns a value, or what the value is a part of."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return _called_name(value) if isinstance(value, ast.Call) else ""


def _holds(node: ast.AST, sources: set[int]) -> bool:
    return any(id(each) in sources for each in ast.walk(node))


def _names_in(node: ast.AST) -> frozenset[str]:
    """Return the names and attributes that code reads."""
    return frozenset(
        each.id if isinstance(each, ast.Name) else each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Load)
    )
