"""The screen labels what a source does, not what it says, and can read any source."""

from __future__ import annotations

import ast
import io
import time
import tokenize
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1.files.python_file import MAX_PARSED, as_read, misread
from cudal1.harness.screen.screen import MAX_EVIDENCE, Severity, screen, severity, syntax_error
from cudal1.harness.screen.signs import ATTRIBUTES, NAMES, SEVERITIES, TEXTS
from cudal1.problem import DeviceClass
from cudal1.suite.loader import load_suite
from tests.harness.corpus import HONEST

SIGNS: dict[str, tuple[str, str]] = {
    "a patched clock": ("patched_runtime", "import time\ntime.perf_counter = lambda: 0"),
    "a patched clock, renamed": ("patched_runtime", "import time as t\nt.time = None"),
    "a patched operator": ("patched_runtime", "import torch\ntorch.Tensor.copy_ = None"),
    "setattr": ("patched_runtime", "import torch\nsetattr(torch.cuda, 'synchronize', None)"),
    "a builtin": ("patched_runtime", "import builtins\nbuiltins.max = min"),
    "a frame": ("introspection", "import sys\nf = sys._getframe(1)"),
    "a frame, renamed": ("introspection", "from sys import _getframe as g\ng(1)"),
    "a frame by its attributes": ("introspection", "def f(g):\n    return g.gi_frame.f_back"),
    "all modules": ("introspection", "import sys\nsys.modules['x']"),
    "the harness": ("harness_access", "from cudal1.harness.worker import shim"),
    "a fork": ("subprocess", "import os\nos.fork()"),
    "an install": ("subprocess", "run = 'pip install numba'"),
    "a socket": ("network", "import socket\nsocket.socket()"),
    "a thread": ("background_thread", "from threading import Thread\nThread()"),
    "a thread in C++": ("background_thread", "code = '''std::thread t(f);'''"),
    "a stream": ("extra_stream", "import torch\ns = torch.cuda.Stream()"),
    "a stream in C++": ("extra_stream", "code = '''\ncudaStreamCreate(&s);\n'''"),
    "pasted tokens": ("token_pasting", "code = '''\n#define X(a, b) a ## b\n'''"),
    "a persisting cache": (
        "persisting_cache",
        "code = 'cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, n)'",
    ),
    "an address": ("pointer_cache", "def f(x):\n    return x.data_ptr()"),
    "an identity": ("pointer_cache", "def f(x):\n    return id(x)"),
    "a lazy tensor": ("tensor_subclass", "import torch\nclass L(torch.Tensor): pass"),
    "other processes": ("process_memory", "p = '/proc/1/environ'"),
    "a built-up path": ("process_memory", "p = f'/proc/{1}/environ'"),
    "hidden code": ("dynamic_code", "exec(bytes.fromhex('00'))"),
    "a counter": ("call_counter", "class M:\n    def forward(self, x):\n        self.n += 1"),
    "bare memory": (
        "uninitialised_output",
        "import torch\ndef forward(self, x):\n    return torch.empty_like(x)",
    ),
    "half": ("lower_precision", "def f(x):\n    return x.half()"),
    "an annotation in quotes": ("dynamic_code", "def f(x: '__import__(name)'): pass"),
    "a returned annotation in quotes": ("dynamic_code", "def f() -> 'exec(x)': pass"),
    "an annotated variable": ("subprocess", "import os\nx: 'os.fork()' = 1"),
    "a name in wide letters": ("dynamic_code", "\uff45\uff56\uff41\uff4c('1')"),
    "code in what is decoded otherwise": (
        "other_text",
        "# coding: raw_unicode_escape\n# a \\u000aevil()",
    ),
    "an encoding on the second line": ("other_text", "#!python\n# vim: fileencoding=utf-7\n+AGE-"),
    "an encoding behind a lone return": ("other_text", "#\r#\r# coding: latin-1\nx = '\xe9'"),
    "a line in another order": ("reordered_text", "x = 1  # \u2066 \u202e evil()"),
    "a name without width": ("hidden_text", "x = {'a\u200bb': 1}"),
    "a name of fillers": ("hidden_text", "\u3164 = 1"),
    "a control of the terminal": ("hidden_text", "x = 'a\x1b[2Kb'"),
    "code behind blanks": ("hidden_text", "x = 1;" + " " * 300 + "evil()"),
    "code behind an indentation": ("hidden_text", "f(\n" + " " * 300 + "evil())"),
    "an indentation that is undone": ("hidden_text", "if x:\n    y\n    \fevil()"),
    "a line that ends with a return alone": ("hidden_text", "# a\revil()"),
    "a comment that looks like two lines": ("hidden_text", "# a\u2028b = relu(x)"),
    "a name in Cyrillic letters": ("misleading_name", "def f\u043erward(): pass"),
    "a name in bold letters": ("misleading_name", "x.\U0001d41e\U0001d431\U0001d41e\U0001d41c"),
}
INNOCENT = {
    "words in a comment": "# threading.Thread, os.fork(), exec('x'), time.time = None, pass\n",
    "words in a docstring": '"""Uses no torch.cuda.Stream, no subprocess, no /proc/self."""\n',
    "words in a function's docstring": 'def f():\n    """Not sys._getframe; not /dev/shm."""\n',
    "words in a C++ comment": "code = '''\n// std::thread, a ## b\n/* mprotect */\nint x;'''",
    "try and finally": "def f(x):\n    try:\n        return x\n    finally:\n        del x\n",
    "a switch": "import torch\ntorch.backends.cudnn.benchmark = True\n",
    "an attribute of its own": "class M:\n    def __init__(self):\n        self.time = 0\n",
    "the fake device": "from cudal1.harness.worker import fake\n",
    "a method that is called eval": "def f(model):\n    return model.eval()\n",
    "an annotation in quotes": "def f(x: 'torch.Tensor') -> 'Model': pass\n",
    "pictures": "x = '\u26a0\ufe0f \U0001f468\u200d\U0001f469 1\ufe0f\u20e3'  # \u2714\ufe0f\n",
    "Greek": "\u03c3 = 1\n\u0394x = \u03bc = \u03bb1 = \u00b5 = 2\n",
    "accents": "gr\u00f6\u00dfe = 1\n",
    "a comment in Persian": "# \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\n",
    "Chinese names": "\u503c = 1\n",
    "pages": "x = 1\n\f\ndef f():\n    pass\n",
    "line ends of Windows": "x = 1\r\ny = 2\r\n",
    "a comment behind blanks": "x = 1" + " " * 300 + "# a\n",
    "a mark at its beginning": "\ufeffx = 1\n",
    "the encoding that it has": "# -*- coding: utf-8 -*-\nx = '\xe9'\n",
    "an encoding that changes nothing": "# -*- coding: latin-1 -*-\nx = 'e'\n",
    "blanks that do not break": "x = 'a\xa0b'  # \xa0\n",
}
HOSTILE = {
    "nested brackets": "x = " + "(" * 50_000,
    "nested brackets, closed": "x = " + "[" * 150 + "]" * 150,
    "a long sum": "x = 1" + "+1" * 45_000,
    "a long chain": "x" + ".a" * 49_000,
    "many calls": "f" + "()" * 49_000,
    "negations": "x = " + "-" * 99_000 + "1",
    "nots": "not " * 24_000 + "1",
    "lambdas": "lambda:" * 14_000 + "1",
    "powers": "1" + "**1" * 30_000,
    "branches": "if 1: pass\n" + "elif 1: pass\n" * 7_000,
    "conditionals": "1 if 1 else " * 8_000 + "1",
    "format strings": "f'{" * 30_000,
    "a large number": "x = " + "9" * 90_000,
    "a null": "x = 1\0",
    "a lone surrogate": "x = '\ud800'",
    "another encoding": "# coding: utf-7\nx = '+AGEAYg-'",
    "an unknown encoding": "# coding: no-such\nx = 1",
    "bad escapes": "x = '\\d'\n" * 9_000,
    "quotes without end": "'''" + '"' * 99_999,
    "single quotes": "'" * (1 << 20),
    "backslashes": "'" + "\\" * (1 << 20),
    "stars in C": "x = '''\n/" + "*" * 90_000 + "'''",
    "longer than is read": "x = 1\n" * (1 << 20),
    "one long line": "x = 1;" * (1 << 18),
    "nothing": "",
    "names that are slow to decode": "# coding: punycode\n" + "a-" * (1 << 17) + "z" * (1 << 17),
    "names of hosts": "# coding: idna\n" + "a." * (1 << 18),
    "letters": "é" * (1 << 18),
    "blanks": (" " * 200 + "x;") * 4_000,
    "marks": "\ufe0f" * (1 << 18),
    "form feeds": "\f" * (1 << 18),
    "returns": "\r" * (1 << 18),
}


@pytest.mark.parametrize("what", SIGNS)
def test_a_sign_is_labelled_with_its_line(what: str) -> None:
    kind, source = SIGNS[what]
    assert kind in {flag.kind for flag in screen(source)}
    assert all(flag.evidence.startswith("line ") for flag in screen(source))


@pytest.mark.parametrize("what", INNOCENT)
def test_words_and_harmless_code_are_no_sign(what: str) -> None:
    assert screen(INNOCENT[what]) == ()


@pytest.mark.slow
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_source_is_read_in_seconds_and_raises_nothing(what: str) -> None:
    started = time.thread_time()  # not the time of other programs
    flags = screen(HOSTILE[what])
    assert time.thread_time() - started < 5
    assert all(len(flag.evidence) < MAX_EVIDENCE + 20 for flag in flags)
    assert all(flag.evidence.isprintable() for flag in flags)


def test_a_source_that_does_not_parse_is_searched_for_words_outside_strings() -> None:
    source = "import os\nsay = 'socket.socket'  # gc.get_objects\nos.fork()\ndef broken(:\n"
    assert [flag.kind for flag in screen(source)] == ["subprocess", "unparsed"]


def test_the_worst_flag_comes_first() -> None:
    flags = screen(
        "import os, time\nstart = time.time()\ntry:\n    os.fork()\nexcept OSError: pass"
    )
    assert [severity(flag) for flag in flags] == sorted(map(severity, flags), reverse=True)
    assert severity(flags[0]) is Severity.ALARM


def test_reading_a_source_runs_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    screen(f"import pathlib\npathlib.Path({str(witness)!r}).touch()\nraise SystemExit")
    assert not witness.exists()


def test_every_kind_has_a_severity() -> None:
    assert {*NAMES, *ATTRIBUTES, *TEXTS} <= set(SEVERITIES)


def test_neither_shipped_references_nor_honest_twins_raise_an_alarm() -> None:
    sources = [p.null_source for p in load_suite(DeviceClass.CUDA)] + [c.source for c in HONEST]
    alarms = [f for source in sources for f in screen(source) if severity(f) is Severity.ALARM]
    assert alarms == []


# --- what is no Python ---------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["def f(:", "  x = 1", "x = (" + "(" * 300, "if True:\n1"])
def test_a_syntax_error_is_found_without_running_the_source(source: str) -> None:
    said = syntax_error(source)
    assert said is not None
    assert "Error: " in said
    assert "\n" not in said
    with pytest.raises(SyntaxError):
        compile(source, "candidate.py", "exec")


LEGAL = (
    "x = 1",
    "\ufeffx = 1",
    "# coding: utf-8\nx = '\xe9'",
    "# coding: latin-1\nx = 1",
    "\ufeff# coding: utf_8\nx = 1",
    "x = 1\n# coding: utf-7\ny = '\xe9'",
    "# a\rx = 1\r\ny = 2\r",
    "'''\n# coding: utf-7\n'''",
    "# coding: utf-8-anything\nx = '\xe9'",
    "# coding: ascii\nx = 1",
    "# no coding at all\nx = 1",
    "x = 'coding: utf-7'",
    "# coding: big5\nx = 1",
    "# coding: raw_unicode_escape\nx = 1",
)
"""Sources that Python runs as they stand."""
MISREAD = (
    "# coding: raw_unicode_escape\n# a \\u000ax = 1",
    "# coding: unicode_escape\n# a \\nx = 1",
    "# coding: utf-7\n# +AAo-x = 1",
    "#\n# coding=utf_7\n# +AAo-x = 1",
    "\f # vim: set fileencoding=UTF-7 :\n# +AAo-x = 1",
    "#\r# coding: utf-7\n# +AAo-x = 1",
    "# coding: latin-1\nx = '\xe9'",
    "# coding: cp1252\n# \u20ac",
    "# coding: hz\n# ~{<:Ky~}",
    '# coding: iso2022_jp\n# \x1b$B%"\x1b(B',
    "# coding: shift_jis\n# \xe9",
    "# coding: ascii\n# \xe9",
    "#\r#\r# coding: latin-1\nx = '\xe9'",
)
"""Sources that Python runs, if at all, as another text."""
NOT_READ = (
    "# coding: punycode\n\xe9",
    "# coding: idna\n\xe9",
    "# coding: rot13\nx = 1",
    "# coding: hex\nx = 1",
    "# coding: no-such\nx = 1",
    "# coding: utf-16\nx = 1",
    "# coding: " + "a" * 9000,
    "\ufeff# coding: latin-1\nx = 1",
    "x = 1\0",
    "# \0\nx = 1",
    "\ufeff# coding: utf8\nx = 1",
    "\ufeff\ufeffx = 1",
    "# coding: ../x\n",
    "# coding: cp037\nx = 1",
)
"""Sources that Python does not run."""


@pytest.mark.parametrize("source", LEGAL)
def test_a_source_that_runs_as_it_stands_is_built(source: str) -> None:
    assert syntax_error(source) is None
    assert ast.dump(ast.parse(source.encode())) == ast.dump(ast.parse(as_read(source)))


@pytest.mark.parametrize("source", MISREAD)
def test_a_source_that_runs_as_another_text_is_not_built(source: str) -> None:
    assert "save it as UTF-8" in (syntax_error(source) or "")
    assert "other_text" in {flag.kind for flag in screen(source)}


@pytest.mark.parametrize("source", NOT_READ)
def test_a_source_that_python_cannot_read_is_not_built(source: str) -> None:
    said = syntax_error(source)
    assert said is not None
    assert said.isprintable()
    assert len(said) < 200
    with pytest.raises((SyntaxError, ValueError)):
        compile(source.encode(), "candidate.py", "exec")


def test_a_source_with_a_lone_surrogate_is_not_built() -> None:
    assert "surrogate" in (syntax_error("x = '\ud800'") or "")


def test_a_long_source_is_not_parsed_but_its_encoding_is_read() -> None:
    filler = "x = 1\n" * MAX_PARSED
    assert syntax_error(f"{filler}(") is None
    assert syntax_error(f"# coding: utf-7\n# +AAo-\n{filler}") is not None


LINES = (
    "# coding: utf-7",
    "# coding=latin-1",
    "#",
    "",
    "\ufeff",
    "x = 1",
    "# vim: fileencoding=hz :",
    "# coding: utf-8",
    "'''",
    "# coding: raw_unicode_escape",
    "\f# coding: ascii",
    "y = '\\N{BELL}'",
    "# \\u000aevil = 1",
    "# +AAo-evil = 1",
    "# \xe9",
)
ENDS = ("\n", "\r", "\r\n")


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS)), max_size=6))
def test_a_source_that_is_built_runs_as_it_is_shown(lines: list[tuple[str, str]]) -> None:
    source = "".join(f"{line}{end}" for line, end in lines)
    if misread(source) is not None:
        return
    shown = as_read(source)
    # as inspect reads a file, and with it torch.jit and Triton
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
    with io.TextIOWrapper(io.BytesIO(source.encode()), encoding) as file:
        assert file.read() == shown
    try:
        tree = ast.dump(ast.parse(source.encode()))
    except SyntaxError:
        assert syntax_error(source) is not None
    else:
        assert tree == ast.dump(ast.parse(shown))


def test_evidence_shows_code_far_to_the_right_of_its_line() -> None:
    (flag,) = screen("import os; x = [" + "1, " * 900 + "]; os.fork()")
    assert "os.fork()" in flag.evidence
    flags = {flag.kind: flag.evidence for flag in screen("x = 1;" + " " * 900 + "exec(x)")}
    assert flags["dynamic_code"] == "line 1: x = 1; exec(x)"


def test_evidence_shows_invisible_characters() -> None:
    (flag,) = screen("x = 1  # \u202e\u2800")
    assert flag.evidence == "line 1: x = 1 # <U+202E><U+2800>"


@pytest.mark.parametrize("end", ENDS)
def test_lines_are_counted_as_python_counts_them(end: str) -> None:
    source = end.join(["# a", "'''\f\v\x85\u2028'''", "import os", "os.fork()"])
    found = {flag.kind: flag.evidence for flag in screen(source)}
    assert found["subprocess"] == "line 4: os.fork()"
