"""C++ and CUDA C++ as techniques are read from it: without comments, texts and unused functions.

Threat: the text may be anything. It is read once from the front, in time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_LEFT_OUT = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)            # a comment
    |\#\s*if\s+0\b.*?(?:\n[ \t]*\#[ \t]*(?:endif|else)\b|\Z)  # what the preprocessor removes
    |\#\s*include[^\n]*
    |(?P<asm>\basm\s*(?:volatile\s*)?\()
    |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""",
    re.DOTALL | re.VERBOSE,
)
_TOKEN = re.compile(r"[A-Za-z_]\w*|[(){};]")
_NO_NAMES = frozenset(("__launch_bounds__", "__attribute__", "alignas", "decltype", "noexcept"))
"""Words before a parenthesis that are no function's name."""
_BLOCKS = frozenset(("namespace", "extern"))
"""Words that begin a block that holds functions."""


@dataclass(frozen=True)
class _Function:
    name: str
    start: int
    end: int
    is_kernel: bool


@dataclass(frozen=True)
class CText:
    """A C++ text without unused parts, and the kernels in it."""

    code: str
    kernels: tuple[str, ...]
    """Names of the functions that are declared `__global__`, each once."""
    assembly: str
    """The texts of its assembly statements."""


def read_c(text: str, called: Collection[str]) -> CText:
    """Return the code of a text, without what nothing calls.

    Args:
        text: the text.
        called: names that the code around the text mentions.
    """
    code, assembly = _without_texts(text)
    functions = list(_functions(code))
    words = _TOKEN.findall(code)
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    defined: dict[str, int] = {}
    for function in functions:
        defined[function.name] = defined.get(function.name, 0) + 1
    dead = [
        function
        for function in functions
        if function.name not in called
        and counts[function.name] <= defined[function.name]
        and ("__device__" in code[function.start : function.end] or function.is_kernel)
    ]
    kept: list[str] = []
    at = 0
    for function in dead:
        kept.append(code[at : function.start])
        at = function.end
    kept.append(code[at:])
    gone = {function.name for function in dead}
    kernels = dict.fromkeys(f.name for f in functions if f.is_kernel and f.name not in gone)
    return CText("".join(kept), tuple(kernels), assembly)


def _without_texts(text: str) -> tuple[str, str]:
    """Return the code without comments and texts, and the texts of assembly statements."""
    code: list[str] = []
    assembly: list[str] = []
    at = 0
    for found in _LEFT_OUT.finditer(text):
        code.append(text[at : found.start()])
        if found.group("asm"):
            code.append("asm(")
        elif found.group().startswith('"'):
            before = "".join(code[-2:])[-40:].rstrip()
            if before.endswith(("asm(", '""')):
                assembly.append(found.group())
            code.append('""')
        else:
            code.append(" ")
        at = found.end()
    code.append(text[at:])
    return "".join(code), " ".join(assembly)


def _functions(code: str) -> Iterator[_Function]:
    """Yield the functions that are defined at the outermost level, or in namespaces."""
    start, depth, name, is_named = 0, 0, "", False
    parentheses = 0
    header: list[str] = []
    for found in _TOKEN.finditer(code):
        token = found.group()
        if depth:
            depth += (token == "{") - (token == "}")
            if not depth:
                if is_named:
                    yield _Function(name, start, found.end(), "__global__" in header)
                start, header, name, is_named = found.end(), [], "", False
            continue
        match token:
            case "(":
                if not parentheses and not is_named and header and header[-1] not in _NO_NAMES:
                    name, is_named = header[-1], True
                parentheses += 1
            case ")":
                parentheses = max(0, parentheses - 1)
            case ";" if not parentheses:
                start, header, name, is_named = found.end(), [], "", False
            case "}":
                start, header, name, is_named = found.end(), [], "", False
            case "{" if not parentheses:
                if not is_named and _BLOCKS & set(header):
                    start, header, name = found.end(), [], ""
                else:
                    depth = 1
            case "{" | ";":
                pass
            case word:
                header.append(word)
