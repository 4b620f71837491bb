"""Candidates that compile have minutes for it; candidates that hang have seconds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.harness.builds.builder import Builder
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.worker.extensions.siblings import GIVEN_UP
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status, Verdict
from tests.harness.conftest import OpenPool

pytestmark = pytest.mark.slow

NamedProblem = Callable[[str], Problem]
Judged = Callable[..., Verdict]
"""A function that returns the verdict on a source, maybe under unusual limits."""
SHORT = {"start_timeout_s": 6.0, "build_timeout_s": 14.0, "call_timeout_s": 1.0}
"""Limits in seconds. A busy machine needs up to two to start a process. What compiles when it is
called has the seconds for compiling that loading left; they must be more than those for a call."""
LONG_S = 300.0
SOURCE = """
import subprocess, time
import torch
import torch.nn as nn

# {words}
burn = ["/bin/sh", "-c", "ulimit -t {cpu_s}; while :; do :; done"]
work = ["/bin/sh", "-c", "while :; do sleep 0.05; done"]
done = []


def compiles():
    if not done:
        done.append(0)
        {does}


if {at_import}:
    compiles()


class ModelNew(nn.Module):
    def forward(self, x):
        compiles()
        return x * torch.sigmoid(x)
"""
EXTENSION = "torch.utils.cpp_extension"
LIBRARY = "torch.compile"
SLEEPS, BURNS = "time.sleep(600)", "subprocess.run(burn)"
WORKS, COMPUTES = "subprocess.run(work)", "while True: sum(range(300_000)); time.sleep(0.05)"
"""Work of another process, and of the candidate's own, that never ends and leaves others a core."""
LOADING, CALL = "did not finish loading in 6 s", "a call did not return in time"
COMPILING = "did not finish compiling in 14 s"
needs_compiler = pytest.mark.skipif(
    not (shutil.which("c++") and shutil.which("ninja")), reason="no compiler here"
)


@pytest.fixture(scope="module")
def judged(
    open_pool: OpenPool, quick: EvalProtocol, named_problem: NamedProblem
) -> Iterator[Judged]:
    """One pool for each limit: opening one imports PyTorch."""
    opened = ExitStack()

    @cache
    def pool_with(build_timeout_s: float) -> Pool:
        limits = {**SHORT, "build_timeout_s": build_timeout_s}
        limited = EvalProtocol.model_validate({**quick.model_dump(), **limits})
        return opened.enter_context(open_pool(limited))

    def of(source: str, build_timeout_s: float = SHORT["build_timeout_s"]) -> Verdict:
        silu = named_problem("silu")
        candidate = Candidate(problem_id=silu.id, source=source)
        return pool_with(build_timeout_s).judge(silu, candidate, timing=False).verdict

    with opened:
        yield of


@pytest.mark.parametrize("at_import", [True, False])
def test_a_candidate_may_compile_for_longer_than_loading_may_take(
    judged: Judged, at_import: bool
) -> None:
    source = SOURCE.format(words=EXTENSION, cpu_s=7, does=BURNS, at_import=at_import)
    verdict = judged(source, build_timeout_s=LONG_S)
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.phases is not None
    assert verdict.phases.compiling_s > SHORT["start_timeout_s"]
    assert verdict.phases.compiling_s > verdict.phases.starting_s + verdict.phases.checking_s


@pytest.mark.parametrize(
    ("words", "does", "at_import", "reason"),
    [
        (LIBRARY, COMPUTES, True, COMPILING),
        (EXTENSION, WORKS, False, COMPILING),
        (EXTENSION, COMPUTES, True, LOADING),  # compilers of extensions are other processes
        (LIBRARY, SLEEPS, False, CALL),
        ("nothing", WORKS, True, LOADING),
        ("nothing", WORKS, False, CALL),
    ],
)
def test_a_candidate_that_does_not_end_times_out_in_the_phase_that_it_is_in(
    judged: Judged, words: str, does: str, at_import: bool, reason: str
) -> None:
    source = SOURCE.format(words=words, cpu_s=1, does=does, at_import=at_import)
    verdict = judged(source)
    assert verdict.status is Status.TIMED_OUT
    assert verdict.reason == reason


def test_a_candidate_that_hangs_after_compiling_is_told_its_compiling_time(judged: Judged) -> None:
    does = "subprocess.run(burn); time.sleep(600)"
    source = SOURCE.format(words=EXTENSION, cpu_s=2, does=does, at_import=True)
    verdict = judged(source, build_timeout_s=LONG_S)
    assert verdict.status is Status.TIMED_OUT
    assert (verdict.reason or "").startswith(f"{LOADING}, compiling aside (")


IN_THE_CONSTRUCTOR = """
import os
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CODE = r'''
#include <Python.h>
#include <cmath>
#include <torch/version.h>

static PyObject* silu(PyObject*, PyObject* args) {{
    unsigned long long x, y, n;
    if (!PyArg_ParseTuple(args, "KKK", &x, &y, &n)) return nullptr;
    for (unsigned long long i = 0; i < n; i++) {{
        float value = ((float*)x)[i];
        ((float*)y)[i] = value / (1 + std::{function}(-value));
    }}
    Py_RETURN_NONE;
}}
static PyMethodDef methods[] = {{{{"silu", silu, METH_VARARGS, nullptr}}, {{}}}};
static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "ours", nullptr, -1, methods}};
PyMODINIT_FUNC PyInit_ours() {{ return PyModule_Create(&module); }}
'''
is_judged = "MAX_JOBS" not in os.environ


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        note = Path(os.environ["TORCH_EXTENSIONS_DIR"], "ours", "main.o.made")
        if is_judged and not note.exists():
            raise RuntimeError("it was not compiled ahead")
        {build}

    def forward(self, x):
        if self.ours is None:
            return x * torch.sigmoid(x)
        y = torch.empty_like(x)
        self.ours.silu(x.data_ptr(), y.data_ptr(), x.numel())
        return y
"""
"""A source with headers that cost little; `test_builder` and the honest twins include all."""
BUILDS = 'self.ours = load_inline("ours", cpp_sources=CODE, no_implicit_headers=True)'
BUILDS_ELSEWHERE = f"""os.makedirs("mine", exist_ok=True)
        copies = Path(os.environ["TORCH_EXTENSIONS_DIR"], "elsewhere")
        before = sorted(copies.rglob("*.o"))
        {BUILDS.replace("CODE,", 'CODE, build_directory="mine",')}
        if is_judged and sorted(copies.rglob("*.o")) != before:
            raise RuntimeError("it was compiled again")
"""
"""Compiles into a folder that is not handed over; copies of objects are."""
FALLS_BACK = f"""try:
            {BUILDS}
        except Exception:
            self.ours = None
"""


ONE_OF_TWO_FILES = f"""
import os
import torch
import torch.nn as nn
from pathlib import Path
from torch.utils.cpp_extension import load

Path("wrong.cpp").write_text("int ours = no_such_thing;")
Path("slow.cpp").write_text(
    "constexpr long most = 4000000000;"
    "constexpr long sum() {{ long s = 0; for (long i = 0; i < most; ++i) s += i; return s; }}"
    "static_assert(sum() > 0);"
)
LIMITS = ["-fconstexpr-ops-limit=999999999999", "-fconstexpr-loop-limit=2147483647"]
try:
    load("ours", ["wrong.cpp", "slow.cpp"], extra_cflags=LIMITS)
except RuntimeError as error:
    if {GIVEN_UP.strip()!r} not in str(error):
        raise


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
"""
"""A source that goes on without its extension; the second file takes a compiler minutes."""


@pytest.fixture
def built_and_judged(
    pool: Pool, quick: EvalProtocol, named_problem: NamedProblem, tmp_path: Path
) -> Judged:
    def of(source: str) -> Verdict:
        silu = named_problem("silu")
        candidate = Candidate(problem_id=silu.id, source=source)
        with Builder([pool.device], quick, tmp_path, num_workers=1) as builder:
            failure = builder.begin(silu, candidate).result()
            built = builder.content(candidate)
        return pool.judge(silu, candidate, timing=False, built=built, not_built=failure).verdict

    return of


@needs_compiler
def test_a_constructor_s_extension_is_only_loaded_by_the_judge(built_and_judged: Judged) -> None:
    verdict = built_and_judged(IN_THE_CONSTRUCTOR.format(function="exp", build=BUILDS))
    assert verdict.status is Status.CORRECT, verdict.reason


@needs_compiler
def test_an_extension_in_a_folder_of_its_source_s_own_is_not_compiled_by_the_judge(
    built_and_judged: Judged,
) -> None:
    source = IN_THE_CONSTRUCTOR.format(function="exp", build=BUILDS_ELSEWHERE)
    source = source.replace('"ours", "main.o.made")', '"elsewhere")')
    verdict = built_and_judged(source)
    assert verdict.status is Status.CORRECT, verdict.reason


@needs_compiler
def test_a_constructor_that_falls_back_after_a_compiler_error_is_correct(
    built_and_judged: Judged,
) -> None:
    source = IN_THE_CONSTRUCTOR.format(function="no_such_thing", build=FALLS_BACK)
    verdict = built_and_judged(source)
    assert verdict.status is Status.CORRECT, verdict.reason


@needs_compiler
def test_files_of_an_extension_are_given_up_once_one_does_not_compile(
    built_and_judged: Judged,
) -> None:
    verdict = built_and_judged(ONE_OF_TWO_FILES)
    assert verdict.status is Status.CORRECT, verdict.reason


@needs_compiler
def test_an_extension_that_a_constructor_cannot_compile_is_not_built_and_the_line_is_named(
    built_and_judged: Judged,
) -> None:
    source = IN_THE_CONSTRUCTOR.format(function="no_such_thing", build=BUILDS)
    verdict = built_and_judged(source)
    assert verdict.status is Status.NO_BUILD
    before, found, _ = (verdict.reason or "").partition("no_such_thing")
    assert found
    assert ": error: " in before


COMPILED = """
import torch
import torch.nn as nn
from torch._dynamo.utils import counters


# without tests of what the processor can, and headers made ahead, each of which is compiled, too
@torch.compile(
    options={
        "cpp.vec_isa_ok": False, "cpp.simdlen": 1, "cpp_cache_precompile_headers": False
    }
)
def silu(x):
    return x * torch.sigmoid(x)


class ModelNew(nn.Module):
    def forward(self, x):
        y = silu(x)
        if counters["inductor"]["fxgraph_cache_hit"]:
            raise RuntimeError("it was compiled before")
        return y
"""


@needs_compiler
def test_the_next_process_finds_the_code_of_torch_compile(
    pool: Pool, named_problem: NamedProblem
) -> None:
    silu = named_problem("silu")
    candidate = Candidate(problem_id=silu.id, source=COMPILED)
    first = pool.judge(silu, candidate, timing=False).verdict
    assert first.status is Status.CORRECT, first.reason
    assert first.phases is not None
    assert first.phases.compiling_s > first.phases.checking_s
    again = pool.judge(silu, candidate, timing=False).verdict
    assert (again.reason or "").startswith("RuntimeError: it was compiled before")


@needs_compiler
def test_the_code_of_torch_compile_for_a_processor_is_made_ahead(built_and_judged: Judged) -> None:
    verdict = built_and_judged(COMPILED)
    assert (verdict.reason or "").startswith("RuntimeError: it was compiled before")
