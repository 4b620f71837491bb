"""Extensions are compiled with few headers and nvcc's halves at once, or else as they stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cudal1.harness.places import EXTENSIONS
from cudal1.harness.worker.extensions import compile as compiling
from cudal1.harness.worker.extensions.compile import (
    HALVES,
    Steps,
    fewer_headers,
    with_fewer_headers,
)

HEADERS = Path(torch.__file__).parent / "include"
ADD = """
#include <torch/extension.h>
torch::Tensor add(torch::Tensor x) { return at::add(x, torch::ones_like(x)); }
"""
PASTED = """
#include <torch/types.h>
#define JOINED(a, b) a##b
torch::Tensor ours(torch::Tensor x) { return at::JOINED(re, lu)(x); }
"""
"""Needs an operator that it has no word for."""
MISTAKEN = "#include <ATen/core/Tensor.h>\nat::Tensor ours = no_such_thing;\n"
BOUND = (
    ADD
    + """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
m.def("add", torch::wrap_pybind_function(add), "add");
}
"""
)
"""As `load_inline` writes it."""
KERNEL = """
#include <torch/extension.h>
__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    add<<<x.numel() / 256 + 1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
needs_compiler = pytest.mark.skipif(not shutil.which("c++"), reason="no compiler here")
needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc here")
Compile = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def compile_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """Compile a file of that content in an empty folder, as PyTorch would have it done."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDAL1_PYTHON", sys.executable)

    def compiled(
        content: str, *options: str, compiler: str = "g++"
    ) -> subprocess.CompletedProcess[str]:
        name = "ours.cu" if compiler == "nvcc" else "ours.cpp"
        Path(name).write_text(content)
        return subprocess.run(
            [EXTENSIONS / compiler, *command(name, compiler), *options],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return compiled


def command(source: str, compiler: str = "g++") -> list[str]:
    """What PyTorch gives a compiler for a file of an extension."""
    given = ["-MD", "-MF", "ours.o.d"] if compiler == "nvcc" else ["-MMD", "-MF", "ours.o.d"]
    given += ["-DTORCH_EXTENSION_NAME=ours", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    folders = [
        str(HEADERS), str(HEADERS / "torch/csrc/api/include"), sysconfig.get_paths()["include"],
    ]  # fmt: skip
    for folder in folders:
        given += ["-isystem", folder]
    flags = ["-fPIC"]
    if compiler == "nvcc":
        flags = ["-gencode=arch=compute_90,code=sm_90", "--compiler-options", "'-fPIC'"]
    return [*given, *flags, "-std=c++20", "-c", source, "-o", "ours.o"]


# --- which headers --------------------------------------------------------------------------------


def test_operators_come_that_a_source_has_a_word_for() -> None:
    lines = fewer_headers(ADD, HEADERS)["ATen/ATen.h"].splitlines()
    assert {"#include <ATen/ops/add.h>", "#include <ATen/ops/ones_like.h>"} <= set(lines)
    assert sum("ATen/ops/" in line for line in lines) == 2


def test_no_header_brings_all_operators() -> None:
    assert "Functions.h" in (HEADERS / "ATen/ATen.h").read_text()
    assert not any("Functions.h" in text for text in fewer_headers(ADD, HEADERS).values())


def test_pybind_comes_for_a_module_only() -> None:
    assert "pybind" in fewer_headers(BOUND, HEADERS)["torch/extension.h"]
    assert "pybind" not in fewer_headers(ADD, HEADERS)["torch/extension.h"]


def test_who_registers_operators_has_the_registry() -> None:
    assert "torch/library.h" in fewer_headers(ADD, HEADERS)
    assert "torch/library.h" not in fewer_headers("TORCH_LIBRARY(ours, m) {}", HEADERS)


def test_a_source_without_pytorch_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ours.cpp").write_text("#include <vector>\nint torch = 1;\n")
    assert not with_fewer_headers(command("ours.cpp"))
    assert not list(tmp_path.glob("*.headers"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["ours.o", "-shared", "-o", "ours.so"],
        ["-c", "ours.cpp", "others.cpp", "-isystem", str(HEADERS), "-o", "ours.o"],
        ["-c", "ours.cpp", "-isystem", str(HEADERS)],
        ["-c", "missing.cpp", "-isystem", str(HEADERS), "-o", "ours.o"],
        ["-c", "ours.cpp", "-o", "ours.o"],
    ],
    ids=["linked", "several files", "no output", "no such file", "without PyTorch's headers"],
)
def test_what_is_no_file_of_an_extension_is_left_alone(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ours.cpp").write_text(ADD)
    assert not with_fewer_headers(arguments)


# --- compiled for real ----------------------------------------------------------------------------


@needs_compiler
def test_a_usual_extension_needs_no_more(compile_here: Compile, tmp_path: Path) -> None:
    done = compile_here(BOUND)
    assert done.returncode == 0, done.stderr
    noted = (tmp_path / "ours.o.d").read_text()
    assert "ours.o.headers/torch/extension.h" in noted
    assert (tmp_path / "ours.o.headers/ATen/ATen.h").is_file()


@pytest.mark.slow
@needs_compiler
def test_a_source_that_needs_more_gets_all(compile_here: Compile, tmp_path: Path) -> None:
    done = compile_here(PASTED)
    assert done.returncode == 0, done.stderr
    assert "ours.o.headers" not in (tmp_path / "ours.o.d").read_text()
    assert not (tmp_path / "ours.o.headers").exists()


@needs_compiler
def test_an_error_is_the_compiler_s_own(compile_here: Compile) -> None:
    done = compile_here(MISTAKEN)
    plain = subprocess.run(
        ["c++", *command("ours.cpp")], capture_output=True, text=True, check=False
    )
    assert "no_such_thing" in done.stderr
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)


@needs_compiler
def test_what_is_no_extension_goes_to_the_compiler(compile_here: Compile) -> None:
    done = subprocess.run(
        [EXTENSIONS / "g++", "-dumpversion"], capture_output=True, text=True, check=False
    )
    plain = subprocess.run(["c++", "-dumpversion"], capture_output=True, text=True, check=False)
    assert done.stdout == plain.stdout


@pytest.mark.slow
@needs_nvcc
def test_a_kernel_is_compiled_by_both_halves(compile_here: Compile, tmp_path: Path) -> None:
    done = compile_here(KERNEL, compiler="nvcc")
    assert done.returncode == 0, done.stderr
    code = (tmp_path / "ours.o").read_bytes()
    assert b"__cudaRegisterFunction" in code
    assert b".nv.info" in code, "no code for the device"
    assert "ours.o.headers/torch/extension.h" in (tmp_path / "ours.o.d").read_text()


# --- once is enough -------------------------------------------------------------------------------


COUNTING = """#!/bin/sh
echo run >> runs
echo object > x.o
echo 'x.o: x.cpp mine.h /usr/include/stdio.h' > x.o.d
"""
MADE_BY = ["-DTORCH_EXTENSION_NAME=x", "-MMD", "-MF", "x.o.d", "-c", "x.cpp", "-o", "x.o"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, content in (("x.cpp", "int x;"), ("mine.h", "int y;"), ("cc", COUNTING)):
        Path(name).write_text(content)
    Path("cc").chmod(0o700)
    return tmp_path


def runs(home: Path, *more: str) -> int:
    """How often the compiler has run, after one more time; ninja takes the dependencies away."""
    assert compiling.main(str(home / "cc"), [*MADE_BY, *more]) == 0
    Path("x.o.d").unlink()
    return len(Path("runs").read_text().splitlines())


def test_the_same_files_are_compiled_once_and_the_object_is_the_newest(home: Path) -> None:
    assert runs(home) == 1
    os.utime("x.o", (1, 1))
    Path("x.cpp").write_text("int x;")
    assert runs(home) == 1
    assert Path("x.o").stat().st_mtime >= Path("x.cpp").stat().st_mtime


@pytest.mark.parametrize("name", ["x.cpp", "mine.h"])
def test_a_file_that_says_something_else_is_compiled_again(home: Path, name: str) -> None:
    assert runs(home) == 1
    Path(name).write_text("int z;")
    assert runs(home) == 2
    Path(name).unlink()
    assert runs(home) == 3


def test_other_flags_and_a_missing_object_are_compiled_again(home: Path) -> None:
    assert runs(home) == 1
    assert runs(home, "-O3") == 2
    Path("x.o").unlink()
    assert runs(home, "-O3") == 3


# --- nvcc's commands in another order -------------------------------------------------------------


@pytest.fixture
def stages(tmp_path: Path) -> Callable[..., str]:
    """An nvcc that would run these programs; each of them notes that it ran."""

    def made(programs: tuple[str, ...] = HALVES, failing: str = "") -> str:
        for name in {*programs, "nvcc"}:
            end = "exit 1" if name == failing else "exit 0"
            (tmp_path / name).write_text(f'#!/bin/sh\necho "$0 $*" >>{tmp_path}/log\n{end}\n')
        module = f'--gen_module_id_file --module_id_file_name "{tmp_path}/module"'
        lines = "".join(
            f"#$ {tmp_path}/{name} {number} {module if name in ('cudafe++', 'cicc') else ''}\n"
            for number, name in enumerate(programs)
        )
        (tmp_path / "plan").write_text(f"#$ TOP=there\n{lines}")
        (tmp_path / "nvcc").write_text(f"#!/bin/sh\ncat {tmp_path}/plan >&2\n")
        for name in {*programs, "nvcc"}:
            (tmp_path / name).chmod(0o700)
        return str(tmp_path / "nvcc")

    return made


def logged(folder: Path) -> list[int]:
    """Numbers of the commands that ran, in their order."""
    return [int(line.split()[1]) for line in (folder / "log").read_text().splitlines()]


def test_each_half_runs_in_order_and_what_needs_both_runs_last(
    stages: Callable[..., str], tmp_path: Path
) -> None:
    steps = Steps.of(stages(), ["-c", "ours.cu", "-o", "ours.o"], tmp_path)
    assert steps is not None
    assert steps.run().returncode == 0
    ran = logged(tmp_path)
    assert [n for n in ran if n < 2] == [0, 1]
    assert [n for n in ran if 2 <= n < 7] == [2, 3, 4, 5]
    assert ran[-1] == 7


def test_both_halves_name_the_module_that_was_named_before(
    stages: Callable[..., str], tmp_path: Path
) -> None:
    steps = Steps.of(stages(), ["-o", "ours.o"], tmp_path)
    assert steps is not None
    assert (tmp_path / "module").read_text().isidentifier()
    assert "--gen_module_id_file" not in steps.commands[1]


@pytest.mark.parametrize("failing", ["cudafe++", "cicc", "ptxas"])
def test_what_needs_both_does_not_run_after_a_failure(
    stages: Callable[..., str], tmp_path: Path, failing: str
) -> None:
    steps = Steps.of(stages(failing=failing), ["-o", "ours.o"], tmp_path)
    assert steps is not None
    assert steps.run().returncode == 1
    assert 7 not in logged(tmp_path)


def test_ninja_is_told_what_the_file_was_made_from(
    stages: Callable[..., str], tmp_path: Path
) -> None:
    steps = Steps.of(stages(), ["-MD", "-MF", "ours.d", "-o", "ours.o"], tmp_path)
    assert steps is not None
    assert steps.commands[0].endswith('-MD -MF "ours.d" -MT "ours.o"')


@pytest.mark.parametrize(
    "programs",
    [(*HALVES[:5], "cicc", "ptxas", *HALVES[5:]), HALVES[:1], (*HALVES, "nvlink")],
    ids=["two architectures", "preprocessed", "linked"],
)
def test_what_is_not_one_file_for_one_architecture_is_left_to_nvcc(
    stages: Callable[..., str], tmp_path: Path, programs: tuple[str, ...]
) -> None:
    assert Steps.of(stages(programs), ["-o", "ours.o"], tmp_path) is None


def test_programs_can_be_run_where_the_package_lies() -> None:
    assert all(os.access(EXTENSIONS / name, os.X_OK) for name in ("g++", "nvcc"))
