"""The screen labels what a source does, not what it says, and no source is too much for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cudal1.harness.screen import MAX_EVIDENCE, Severity, screen, severity, syntax_error
from cudal1.harness.signs import ATTRIBUTES, NAMES, SEVERITIES, TEXTS
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
        "persisting_cache", "code = 'cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, n)'"
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
}  # fmt: skip
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
}


@pytest.mark.parametrize("what", SIGNS)
def test_a_sign_is_labelled_with_its_line(what: str) -> None:
    kind, source = SIGNS[what]
    assert kind in {flag.kind for flag in screen(source)}
    assert all(flag.evidence.startswith("line ") for flag in screen(source))


@pytest.mark.parametrize("what", INNOCENT)
def test_what_is_only_said_or_harmless_is_no_sign(what: str) -> None:
    assert screen(INNOCENT[what]) == ()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_source_is_read_in_seconds_and_raises_nothing(what: str) -> None:
    started = time.thread_time()  # not what others on the machine take
    flags = screen(HOSTILE[what])
    assert time.thread_time() - started < 5
    assert all(len(flag.evidence) < MAX_EVIDENCE + 20 for flag in flags)
    assert all(flag.evidence.isprintable() for flag in flags)


def test_a_source_that_does_not_parse_is_searched_for_words_outside_strings() -> None:
    source = "import os\nsay = 'socket.socket'  # gc.get_objects\nos.fork()\ndef broken(:\n"
    assert [flag.kind for flag in screen(source)] == ["subprocess", "unparsed"]


def test_the_worst_comes_first() -> None:
    flags = screen(
        "import os, time\nstart = time.time()\ntry:\n    os.fork()\nexcept OSError: pass"
    )
    assert [severity(flag) for flag in flags] == sorted(map(severity, flags), reverse=True)
    assert severity(flags[0]) is Severity.ALARM


def test_reading_runs_nothing(tmp_path: Path) -> None:
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
def test_a_source_that_is_no_python_is_known_without_running_it(source: str) -> None:
    said = syntax_error(source)
    assert said is not None
    assert "Error: " in said
    assert "\n" not in said
    with pytest.raises(SyntaxError):
        compile(source, "candidate.py", "exec")


@pytest.mark.parametrize(
    "source", ["x = 1", "# coding: punycode\n(", "# -*- coding: " + "a" * 9000 + "\n("]
)
def test_what_a_worker_might_read_otherwise_is_left_to_it(source: str) -> None:
    assert syntax_error(source) is None
