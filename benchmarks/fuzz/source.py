"""Make the source of a problem from its parts, and change a whole text."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import indent

from benchmarks.fuzz.pieces import Odd, Parts

BIND = "class Model(Net):\n    pass"
FILE = """{head}
import os, sys
import torch
import torch.nn as nn

N = 8
_calls = 0
_draws = 0
{top}

class Net({base}):
{body}
    def __init__(self, *args):
        super().__init__()
{init}

    def forward(self, *given):
        global _calls
        _calls += 1
{enter}
        x = {mix}
        y = torch.tanh(x.float()) * 1.5 if not x.is_floating_point() else torch.tanh(x) * 1.5
{change}
        return {result}

{methods}

{bind}


def get_inputs():
    global _draws
    _draws += 1
{draw}
    return {inputs}


def get_init_inputs():
{give}
    return {init_inputs}

{bottom}
"""


def problem_text(parts: Parts) -> str:
    """Return the text of a problem, before it is encoded."""
    deep = {"init": 2, "enter": 2, "change": 2, "body": 1, "methods": 1, "draw": 1, "give": 1}
    content = {
        name: indent(value or "pass", "    " * deep[name]) if name in deep else value
        for name, value in vars(parts).items()
        if name != "text"
    }
    if not parts.bind:
        content["bind"] = BIND
    return FILE.format(**content).lstrip("\n")


def problem_bytes(odd: Odd) -> bytes:
    """Return the file of a problem."""
    parts = odd.parts()
    content = problem_text(parts).encode("utf-8", "surrogatepass")
    for name in parts.text:
        content = TEXTS[name](content)
    return content


def copied(source: str) -> str:
    """Return a problem's source as a candidate for itself."""
    return re.sub(r"\bModel\b", "ModelNew", source)


def _tabs(content: bytes) -> bytes:
    lines = content.split(b"\n")
    return b"\n".join(
        b"\t" * ((len(line) - len(line.lstrip(b" "))) // 4) + line.lstrip(b" ") for line in lines
    )


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "CRLF": lambda text: text.replace(b"\n", b"\r\n"),
    "CR": lambda text: text.replace(b"\n", b"\r"),
    "mixed line ends": lambda text: text.replace(b"\n", b"\r\n", 9),
    "UTF-8 cookie": lambda text: b"# -*- coding: utf-8 -*-\n" + text,
    "latin-1 cookie": lambda text: b"# -*- coding: latin-1 -*-\n" + text,
    "latin-1 bytes": lambda text: b"# coding: latin-1\nNAME = '\xe9'\n" + text,
    "unknown cookie": lambda text: b"# -*- coding: klingon -*-\n" + text,
    "tabs": _tabs,
    "form feeds": lambda text: text.replace(b"\n\n\n", b"\n\x0c\n\n"),
    "null byte": lambda text: text + b"# \0\n",
    "no final newline": lambda text: text.rstrip(),
    "blank lines at the end": lambda text: text + b"\n" * 1000,
    "long line": lambda text: text + b"# " + b"x" * 100_000 + b"\n",
    "many lines": lambda text: text + b"# x\n" * 20_000,
    "nested 50 deep": lambda text: text + b"D = " + b"(" * 50 + b"1" + b")" * 50 + b"\n",
    "nested 1000 deep": lambda text: text + b"D = " + b"(" * 1000 + b"1" + b")" * 1000 + b"\n",
    "a long sum": lambda text: text + b"D = 0" + b" + 1" * 2000 + b"\n",
    "a very long sum": lambda text: text + b"D = 0" + b" + 1" * 100_000 + b"\n",
    "empty": lambda _: b"",
    "a comment alone": lambda _: b"# Model get_inputs get_init_inputs ModelNew\n",
    "blank": lambda _: b"\n \n\t\n",
    "not UTF-8": lambda text: text + b"# \xff\xfe\n",
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "cut off": lambda text: text[: text.rindex(b"return")] + b"return (",
    "an open string": lambda text: text + b'"""\n',
    "escapes a terminal": lambda text: text + b"# \x1b[2J\x1b]0;title\x07 \x08\x08\n",
    "bidirectional marks": lambda text: text + "# \u202e\u2066 reversed\n".encode(),
    "a header of a file": lambda text: text + b"# cudal1: file helpers.py\nX = 1\n",
    "a header of a module": lambda text: text + b"# cudal1: file json.py\nraise SystemExit\n",
    "escapes in a comment": lambda text: text + b"# \\u000araise ValueError\n",
    "other line separators": lambda text: text + "S = 'a\u2028b\u2029c\x85d'\n".encode(),
    "astral names": lambda text: (
        text + "\U0001d40d\U0001d41a\U0001d426\U0001d41e = 1\nassert Name == 1\n".encode()
    ),
}
