"""Extensions are compiled with few headers and both halves of nvcc at once, or else unchanged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cudal1.harness.shared.places import EXTENSIONS
from cudal1.harness.worker.extensions import compile as compiling
from cudal1.harness.worker.extensions import undeclared
from cudal1.harness.worker.extensions.compile import Source
from cudal1.harness.worker.extensions.headers import (
    FACTORIES,
    FACTORY,
    NEEDS_MORE,
    VARIABLES,
    bare,
    fewer_headers,
)
from cudal1.harness.worker.extensions.siblings import GIVEN_UP, Siblings
from cudal1.harness.worker.extensions.steps import HALVES, Steps

HEADERS = Path(torch.__file__).parent / "include"
ADD = """
#include <torch/extension.h>
torch::Tensor add(torch::Tensor x) { return at::add(x, torch::ones_like(x)); }
"""
UNUSUAL = "#include <torch/library.h>\nvoid ours(torch::Library& library) {}\n"
"""A source that needs a header of rare use; `torch/extension.h` would cost four times as much."""
LIGHT = "#include <torch/version.h>\n"
"""An include that makes a source one of an extension's, and costs a compiler nothing."""
MISTAKEN = LIGHT + "int ours = no_such_thing;\n"
AMBIGUOUS = """
#include <torch/types.h>
using namespace torch;
at::Tensor f(at::Tensor x) { return empty_like(x); }
"""
"""A source that PyTorch refuses."""
BOUND = (
    ADD
    + """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
m.def("add", torch::wrap_pybind_function(add), "add");
}
"""
)
"""A source with a module, as `load_inline` writes it."""
UNBOUND = BOUND.replace("(add)", "(add_by_kernel)")
"""The same, but for a function that nothing declares, as `load_inline` writes it without
`cpp_sources`."""
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
    """Return a function that compiles a file in an empty folder with PyTorch's command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDAL1_PYTHON", sys.executable)

    def compiled(
        content: str, *options: str, compiler: str = "g++"
    ) -> subprocess.CompletedProcess[str]:
        name = "ours.cu" if compiler == "nvcc" else "ours.cpp"
        Path(name).write_text(content)
        return subprocess.run(
            [EXTENSIONS / compiler, *command(name, compiler), *options],
            capture_output=True,
            text=True,
            check=False,
        )

    return compiled


def command(source: str, compiler: str = "g++") -> list[str]:
    """Return the arguments that PyTorch gives a compiler for a file of an extension."""
    given = ["-MD", "-MF", "ours.o.d"] if compiler == "nvcc" else ["-MMD", "-MF", "ours.o.d"]
    given += ["-DTORCH_EXTENSION_NAME=ours", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    folders = [
        str(HEADERS),
        str(HEADERS / "torch/csrc/api/include"),
        sysconfig.get_paths()["include"],
    ]
    for folder in folders:
        given += ["-isystem", folder]
    flags = ["-fPIC"]
    if compiler == "nvcc":
        flags = ["-gencode=arch=compute_90,code=sm_90", "--compiler-options", "'-fPIC'"]
    return [*given, *flags, "-std=c++20", "-c", source, "-o", "ours.o"]


def _included(text: str, folder: Path) -> set[str]:
    """Return the names of all PyTorch headers that a text brings."""
    for name, content in fewer_headers(text, HEADERS).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "ours.cpp").write_text(text)
    given = command(str(folder / "ours.cpp"))
    folders = given[given.index("-isystem") : given.index("-fPIC")]
    told = subprocess.run(
        [
            "c++",
            "-DAT_PER_OPERATOR_HEADERS",
            "-isystem",
            folder,
            *folders,
            "-std=c++20",
            "-M",
            folder / "ours.cpp",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition("/include/")[2] for name in told.stdout.split()}


# --- which headers --------------------------------------------------------------------------------


def test_a_source_brings_the_operators_that_it_has_a_word_for() -> None:
    lines = fewer_headers(ADD, HEADERS)["ATen/ATen.h"].splitlines()
    assert {"#include <ATen/ops/add.h>", "#include <ATen/ops/ones_like.h>"} <= set(lines)
    assert sum("ATen/ops/" in line for line in lines) == 2


def test_no_header_brings_all_operators() -> None:
    assert "Functions.h" in (HEADERS / "ATen/ATen.h").read_text()
    headers = fewer_headers(ADD, HEADERS)
    assert "#ifndef AT_PER_OPERATOR_HEADERS\n#include <ATen/Functions.h>" in headers.pop(FACTORIES)
    assert not any("Functions.h" in text for text in headers.values())


def test_pybind_comes_for_a_module_alone() -> None:
    assert "pybind" in fewer_headers(BOUND, HEADERS)["torch/extension.h"]
    assert "pybind" not in fewer_headers(ADD, HEADERS)["torch/extension.h"]


def test_a_source_that_registers_operators_has_the_registry() -> None:
    assert "torch/library.h" in fewer_headers(ADD, HEADERS)
    assert "torch/library.h" not in fewer_headers("TORCH_LIBRARY(ours, m) {}", HEADERS)


@needs_compiler
def test_a_kernel_s_tensors_bring_no_values_of_torchscript(tmp_path: Path) -> None:
    included = _included(BOUND, tmp_path)
    assert "ATen/core/TensorBody.h" in included
    assert not included & {"ATen/core/ivalue.h", "ATen/core/jit_type.h", "ATen/core/List.h"}


@pytest.mark.parametrize(
    "text",
    [
        "torch::TensorOptions().requires_grad(true)",
        "x.requires_\\\ngrad_()",
        "torch::autograd::Function<F>",
        "x.index({torch::indexing::Slice()})",
        "at::cat /* both */ ({x, x})",
        "c10::List<at::Tensor> list;",
        "x.index_put_({i}, 1)",
        "sum_to(x, x.sizes())",
    ],
)
def test_a_source_that_needs_gradients_or_lists_has_their_headers(text: str) -> None:
    headers = fewer_headers(f"{ADD}\n{text}", HEADERS)
    assert VARIABLES not in headers
    assert "IListRef" not in headers.get("ATen/DeviceGuard.h", "")
    assert "#include <ATen/TensorIndexing.h>" in headers["ATen/ATen.h"]


@pytest.mark.parametrize(
    "text", ["int index = 0;", "// requires_grad", "/* at::cat({x, x}) */", "float grad_x;"]
)
def test_words_that_kernels_use_bring_nothing(text: str) -> None:
    headers = fewer_headers(f"{ADD}\n{text}", HEADERS)
    assert VARIABLES in headers
    assert "ATen/ops/index.h" not in headers["ATen/ATen.h"]


def test_a_comment_mark_in_a_string_begins_no_comment() -> None:
    assert bare('f("/*"); x /* y */ ("//"); // z') == 'f("/*"); x   ("//");  '
    assert bare("'\\'' // \\\nmore\nnext") == "'\\''  \nnext"


def test_a_source_brings_the_factories_that_it_has_a_word_for() -> None:
    text = fewer_headers(ADD, HEADERS)[FACTORIES]
    assert FACTORY.findall(text) == ["ones_like"]
    assert FACTORY.findall(fewer_headers("tensor", HEADERS)[FACTORIES]) == ["tensor"]


def test_a_factory_makes_a_variable_of_what_aten_made() -> None:
    """Without gradients, the call that makes the variable is all that is replaced."""
    text = (HEADERS / FACTORIES).read_text()
    functions = FACTORY.findall(text)
    assert len(functions) > 100
    assert text.count("autograd::") == text.count("autograd::make_variable(") == len(functions)


@pytest.mark.parametrize("header", ["ATen/ExpandUtils.h", "ATen/MemoryOverlap.h"])
def test_functions_that_come_with_indexing_are_known_by_name(header: str) -> None:
    text = re.sub(r"^[ }#/].*", "", (HEADERS / header).read_text(), flags=re.MULTILINE)
    names = set(re.findall(r"\b([a-z]\w+)\(", text))
    assert len(names) > 3
    assert [name for name in names if not NEEDS_MORE.search(name)] == []


@pytest.fixture
def of_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Source | None]:
    """Return a function that makes a `Source` of a command, for a file of given content."""
    monkeypatch.chdir(tmp_path)

    def made(content: str, *arguments: str) -> Source | None:
        Path("ours.cpp").write_text(content)
        return Source.of(list(arguments or command("ours.cpp")))

    return made


def test_a_usual_source_is_recognised(of_command: Callable[..., Source | None]) -> None:
    assert of_command(BOUND) is not None


@pytest.mark.parametrize(
    "content",
    [
        "#include <vector>\nint torch = 1;\n",
        ADD + '#include "ours.cpp"\n',
        ADD + "#define HEADER <vector>\n#include HEADER\n",
        ADD + "#if AT_PARALLEL_OPENMP\nint tag;\n#endif\n",
        ADD + "#ifdef SOMETHING\nint tag;\n#endif\n",
        ADD + "#if 0 || \\\n defined(AT_PER_OPERATOR_HEADERS)\nint tag;\n#endif\n",
        ADD + "/* now */ #/**/ifdef SOMETHING\nint tag;\n#endif\n",
        ADD + "%:ifdef SOMETHING\nint tag;\n#endif\n",
        ADD + "#ifndef CHECK\n#define CHECK(x) x\n#endif\n",
        ADD + "#define BOTH(a, b) a##b\n",
        ADD + "int x = C10_CONCATENATE(requires_, grad);\n",
        ADD + "const char* when = __TIME__;\n",
        ADD + 'asm(".incbin \\"data\\"");\n',
    ],
    ids=[
        "no PyTorch",
        "own header",
        "computed",
        "asks more",
        "asks unknown",
        "splits",
        "hides",
        "spells",
        "defines",
        "pastes",
        "joins",
        "time",
        "incbin",
    ],
)
def test_a_source_that_may_mean_something_else_is_left_alone(
    of_command: Callable[..., Source | None], content: str
) -> None:
    assert of_command(content) is None


@pytest.mark.parametrize(
    "asked", ["TORCH_VERSION_MAJOR >= 2", "defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900"]
)
def test_a_source_may_ask_for_macros_that_are_the_same_either_way(
    of_command: Callable[..., Source | None], asked: str
) -> None:
    assert of_command(ADD + f"#if {asked}\nint tag;\n#endif\n") is not None


@pytest.mark.parametrize(
    "option",
    ["-Iown", "-iquote own", "--compiler-options=-Iown", "-include own.h", "@more", "-isystem own"],
)
def test_a_command_with_headers_of_its_own_is_left_alone(
    of_command: Callable[..., Source | None], tmp_path: Path, option: str
) -> None:
    (tmp_path / "own").mkdir()
    assert of_command(ADD, *command("ours.cpp"), *option.split()) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["ours.o", "-shared", "-o", "ours.so"],
        ["-c", "ours.cpp", "others.cpp", "-isystem", str(HEADERS), "-o", "ours.o"],
        ["-c", "ours.cpp", "-isystem", str(HEADERS)],
        ["-c", "ours.cpp", "-o", "ours.o"],
    ],
    ids=["linked", "several files", "no output", "without PyTorch's headers"],
)
def test_a_command_that_compiles_no_file_of_an_extension_is_left_alone(
    of_command: Callable[..., Source | None], arguments: list[str]
) -> None:
    assert of_command(ADD, *arguments) is None


# --- compiled for real ----------------------------------------------------------------------------


@pytest.mark.slow
@needs_compiler
def test_a_usual_extension_compiles_with_few_headers(compile_here: Compile, tmp_path: Path) -> None:
    done = compile_here(BOUND)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ours.o.headers/ATen/ATen.h").is_file(), "all of them had to come"


@pytest.mark.slow
@needs_compiler
def test_an_ambiguous_source_remains_ambiguous(of_command: Callable[..., Source | None]) -> None:
    """It stops with few headers: with all of them PyTorch decides."""
    source = of_command(AMBIGUOUS, *command("ours.cpp"), "-fsyntax-only")
    assert source is not None
    done = source.compiled("c++")
    assert b"ambiguous" in done.stdout
    assert done.returncode != 0


@pytest.mark.slow
@needs_compiler
def test_functions_of_a_float_return_a_float(compile_here: Compile) -> None:
    done = compile_here(
        "#include <torch/extension.h>\n#include <cmath>\n"
        "static_assert(sizeof(exp(1.0f)) == 4 && sizeof(abs(1.5)) == 8);\n",
        "-fsyntax-only",
    )
    assert done.returncode == 0, done.stderr
    assert Path("ours.o.headers").exists(), "all of them had to come"


@pytest.mark.slow
@needs_compiler
def test_a_source_that_needs_more_gets_all_headers(compile_here: Compile, tmp_path: Path) -> None:
    done = compile_here(UNUSUAL, "-fsyntax-only")
    assert done.returncode == 0, done.stderr
    assert "ours.o.headers" not in (tmp_path / "ours.o.d").read_text()
    assert not (tmp_path / "ours.o.headers").exists()


@pytest.mark.slow
@needs_compiler
def test_an_error_is_the_compiler_s_own(compile_here: Compile) -> None:
    done = compile_here(MISTAKEN)
    plain = subprocess.run(
        ["c++", *command("ours.cpp")], capture_output=True, text=True, check=False
    )
    assert "no_such_thing" in done.stderr
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.slow
@needs_compiler
def test_a_module_that_binds_what_nothing_declares_is_compiled_with_few_headers_alone(
    compile_here: Compile, of_command: Callable[..., Source | None]
) -> None:
    source = of_command(UNBOUND)
    assert source is not None
    done = source.compiled("c++")
    assert source.fails_anyway(done, "c++")
    plain = subprocess.run(
        ["c++", *command("ours.cpp")], capture_output=True, text=True, check=False
    )
    assert plain.returncode == done.returncode == 1
    assert errors_of(plain.stderr) == errors_of(done.stdout.decode())
    assert errors_of(compile_here(UNBOUND).stderr) == errors_of(plain.stderr)


def errors_of(said: str) -> list[str]:
    """Return a compiler's messages about lines."""
    return compiling.LOCATED.findall(said)


@needs_compiler
def test_a_source_that_few_headers_fail_otherwise_is_compiled_with_all(
    of_command: Callable[..., Source | None],
) -> None:
    source = of_command(LIGHT + "int ours = no_such_thing;\nno_such_type other;\n")
    assert source is not None
    done = source.compiled("c++")
    assert done.returncode != 0
    assert not source.fails_anyway(done, "c++")


@needs_compiler
@pytest.mark.parametrize(
    ("header", "text", "is_sure"),
    [
        ("int other;", "int ours = name;", True),
        ("int name;", "int ours = name;", False),
        ("#define MAKE(x) int x##me;\nMAKE(na)", "int ours = name;", False),
        ("#define MAKE int name;", "MAKE\nint ours = name;", False),
        ("#define MAKE(x) x, x", "int ours = MAKE(name);", False),
        ('#include "missing.h"', "int ours = name;", False),
    ],
)
def test_a_name_is_undeclared_if_no_header_has_it_and_no_macro_writes_it(
    tmp_path: Path, header: str, text: str, *, is_sure: bool
) -> None:
    (tmp_path / "header.h").write_text(header + "\n")
    path = tmp_path / "ours.cpp"
    path.write_text(f"#include <header.h>\n{text}\n")
    arguments = ["-isystem", str(tmp_path), "-MMD", "-MF", "d", "-c", str(path), "-o", "ours.o"]
    found = undeclared.are_undeclared({"name"}, "c++", arguments, str(path), text)
    assert found is is_sure
    assert sorted(each.name for each in tmp_path.iterdir()) == ["header.h", "ours.cpp"]


@pytest.mark.parametrize(
    ("errors", "names"),
    [
        (["a.cpp:5:54: error: 'f' was not declared in this scope"], {"f"}),
        (["a.cpp:5:54: error: \u2018f\u2019 was not declared in this scope"], {"f"}),
        (["a.cpp:5:54: error: use of undeclared identifier 'f'"], {"f"}),
        (["b.cpp:5:54: error: 'f' was not declared in this scope"], set()),
        (
            [
                "a.cpp:5:54: error: 'f' was not declared in this scope, and no declarations were "
                "found by argument-dependent lookup at the point of instantiation"
            ],
            set(),
        ),
        (
            [
                "a.cpp:5:54: error: 'f' was not declared in this scope",
                "a.cpp:6:1: error: 'g' does not name a type",
            ],
            set(),
        ),
        ([], set()),
    ],
)
def test_names_are_undeclared_only_if_all_errors_say_so(errors: list[str], names: set[str]) -> None:
    assert undeclared.names(errors, "a.cpp") == names


@needs_compiler
def test_a_command_without_an_extension_goes_to_the_compiler(
    compile_here: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDAL1_PYTHON", "/bin/false")
    done = subprocess.run(
        [EXTENSIONS / "g++", "-dumpversion"], capture_output=True, text=True, check=False
    )
    plain = subprocess.run(["c++", "-dumpversion"], capture_output=True, text=True, check=False)
    assert done.stdout == plain.stdout != ""


@pytest.mark.slow
@needs_compiler
def test_macros_have_the_same_names_with_few_headers(tmp_path: Path) -> None:
    """It covers macros that people ask for by name; others leave a source unchanged."""
    names = re.compile(r"#define ((?:TORCH|AT|C10|PY|PYBIND11)_\w*(?:VERSION|ENABLED|OPENMP)\w*)")
    for name, content in fewer_headers(BOUND, HEADERS).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "asks.cpp").write_text("#include <torch/extension.h>\n")

    def defined(*options: str) -> set[str]:
        given = command(str(tmp_path / "asks.cpp"))
        folders = given[given.index("-isystem") : given.index("-fPIC")]
        told = subprocess.run(
            ["c++", *options, *folders, "-std=c++20", "-dM", "-E", tmp_path / "asks.cpp"],
            capture_output=True,
            text=True,
            check=True,
        )
        return set(names.findall(told.stdout))

    few = defined("-DAT_PER_OPERATOR_HEADERS", "-isystem", str(tmp_path))
    assert "TORCH_VERSION_MAJOR" in few
    assert defined() - few == set()


@pytest.mark.slow
@needs_nvcc
def test_both_halves_compile_a_kernel(compile_here: Compile, tmp_path: Path) -> None:
    done = compile_here(KERNEL, compiler="nvcc")
    assert done.returncode == 0, done.stderr
    code = (tmp_path / "ours.o").read_bytes()
    assert b"__cudaRegisterFunction" in code
    assert b".nv.info" in code, "no code for the device"
    assert "ours.o.headers/torch/extension.h" in (tmp_path / "ours.o.d").read_text()


# --- once is enough -------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that compiles a file and returns how often the compiler has run."""
    monkeypatch.chdir(tmp_path)
    compiler = tmp_path / "cc"
    compiler.write_text(
        "#!/bin/sh\necho run >>runs\necho object >ours.o\necho 'ours.o: ours.cpp' >ours.o.d\n"
    )
    compiler.chmod(0o700)

    def compiled(content: str = ADD, *options: str) -> int:
        Path("ours.cpp").write_text(content)
        assert compiling.main(str(compiler), [*command("ours.cpp"), *options]) == 0
        Path("ours.o.d").unlink()  # as ninja does
        return len(Path("runs").read_text().splitlines())

    return compiled


def test_the_same_text_is_compiled_once_and_the_object_is_the_newest(
    runs: Callable[..., int], tmp_path: Path
) -> None:
    assert runs() == 1
    os.utime("ours.o", (1, 1))
    assert runs() == 1
    assert (tmp_path / "ours.o").stat().st_mtime >= (tmp_path / "ours.cpp").stat().st_mtime


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return PyTorch's folder of extensions, into which nothing is compiled here."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    return tmp_path / "built"


def test_an_object_in_another_folder_is_there_for_a_process_that_is_given_pytorch_s_folder(
    runs: Callable[..., int], folder: Path
) -> None:
    assert runs() == 1
    Path("ours.o").unlink()
    assert runs() == 1
    assert Path("ours.o").read_text() == "object\n"
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {"ours.o", "ours.o.made"}
    assert runs(ADD + "int tag;\n") == 2


def test_a_failure_in_another_folder_is_not_met_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho run >>runs\necho 'ours.cpp:1:2: error: no' >&2\nexit 3\n")
    compiler.chmod(0o700)
    Path("ours.cpp").write_text(ADD)
    told: list[tuple[int, str]] = []
    for _ in range(2):
        told.append((compiling.main(str(compiler), command("ours.cpp")), capfd.readouterr().err))
    assert told == [(3, "ours.cpp:1:2: error: no\n")] * 2
    assert len(Path("runs").read_text().splitlines()) == 2  # with few headers, with all
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["ours.o.made"]


def test_another_text_or_command_is_compiled_again(runs: Callable[..., int]) -> None:
    assert runs() == 1
    assert runs(ADD + "int tag;\n") == 2
    assert runs(ADD) == 3
    assert runs(ADD, "-O3") == 4


def test_a_missing_object_is_made_again(runs: Callable[..., int], tmp_path: Path) -> None:
    assert runs() == 1
    (tmp_path / "ours.o").unlink()
    assert runs() == 2


def test_an_environment_variable_of_compilers_counts(
    runs: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs() == 1
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/elsewhere")
    assert runs() == 2


def test_a_note_does_not_outlive_a_newer_object(runs: Callable[..., int], tmp_path: Path) -> None:
    assert runs() == 1
    (tmp_path / "ours.o.made").chmod(0o400)
    assert runs(ADD + "int tag;\n") == 2
    assert runs(ADD) == 3


def test_a_damaged_note_only_costs_a_compilation(runs: Callable[..., int], tmp_path: Path) -> None:
    assert runs() == 1
    (tmp_path / "ours.o.made").write_text("[]")
    assert runs() == 2


def test_a_source_with_headers_of_its_own_is_compiled_each_time(
    runs: Callable[..., int], tmp_path: Path
) -> None:
    (tmp_path / "own.h").write_text("int own;\n")
    content = ADD + '#include "own.h"\n'
    assert [runs(content), runs(content)] == [1, 2]


MODULE = (
    LIGHT
    + """
#include <Python.h>
static PyModuleDef ours = {PyModuleDef_HEAD_INIT, "ours", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_ours() { return PyModule_Create(&ours); }
"""
)
"""A module of which the functions do not matter."""
WRITES = """
import os
import sys
from pathlib import Path
from torch.utils.cpp_extension import load


def run(content):
    # each is a new process for `load`; PyTorch is imported once for all
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        return
    Path("ours.cpp").write_text(content)
    load("ours", ["ours.cpp"], build_directory=".")
    os._exit(0)


content, mark = sys.argv[1], b"as the first process left it"
run(content)
made = Path("ours.o")
made.write_bytes(made.read_bytes() + mark)
for each in (content, content + "int tag;"):
    run(each)
    print(made.read_bytes().endswith(mark), flush=True)  # before the next one is forked
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja here")
@needs_compiler
def test_a_file_that_each_process_writes_is_compiled_in_the_first_alone(tmp_path: Path) -> None:
    """Bytes appended to an object are still there if it was not compiled again."""
    environment = os.environ | {"CXX": str(EXTENSIONS / "g++"), "CUDAL1_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", WRITES, MODULE],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["True", "False"]


# --- nvcc's commands in another order -------------------------------------------------------------


@pytest.fixture
def stages(tmp_path: Path) -> Callable[..., str]:
    """Return a function that makes an nvcc; each program that it runs notes that it ran."""

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
    """Return the numbers of the commands that ran, in their order."""
    return [int(line.split()[1]) for line in (folder / "log").read_text().splitlines()]


def test_each_half_runs_in_order_and_the_step_that_needs_both_runs_last(
    stages: Callable[..., str], tmp_path: Path
) -> None:
    steps = Steps.of(stages(), ["-c", "ours.cu", "-o", "ours.o"], tmp_path, module="_ours_")
    assert steps is not None
    assert steps.run().returncode == 0
    ran = logged(tmp_path)
    assert [n for n in ran if n < 2] == [0, 1]
    assert [n for n in ran if 2 <= n < 7] == [2, 3, 4, 5]
    assert ran[-1] == 7


def test_both_halves_use_the_module_name_that_was_given(
    stages: Callable[..., str], tmp_path: Path
) -> None:
    steps = Steps.of(stages(), ["-o", "ours.o"], tmp_path, module="_ours_")
    assert steps is not None
    assert (tmp_path / "module").read_text() == "_ours_"
    assert "--gen_module_id_file" not in steps.commands[1]


@pytest.mark.parametrize("failing", ["cudafe++", "cicc", "ptxas"])
def test_the_step_that_needs_both_halves_does_not_run_after_a_failure(
    stages: Callable[..., str], tmp_path: Path, failing: str
) -> None:
    steps = Steps.of(stages(failing=failing), ["-o", "ours.o"], tmp_path, module="_ours_")
    assert steps is not None
    assert steps.run().returncode == 1
    assert 7 not in logged(tmp_path)


def test_ninja_is_told_the_files_that_an_object_depends_on(
    stages: Callable[..., str], tmp_path: Path
) -> None:
    steps = Steps.of(stages(), ["-MD", "-MF", "ours.d", "-o", "ours.o"], tmp_path, module="_ours_")
    assert steps is not None
    assert steps.commands[0].endswith("-MD -MF ours.d -MT ours.o")


@pytest.mark.parametrize(
    "programs",
    [(*HALVES[:5], "cicc", "ptxas", *HALVES[5:]), HALVES[:1], (*HALVES, "nvlink")],
    ids=["two architectures", "preprocessed", "linked"],
)
def test_a_command_for_more_than_one_file_and_architecture_is_left_to_nvcc(
    stages: Callable[..., str], tmp_path: Path, programs: tuple[str, ...]
) -> None:
    assert Steps.of(stages(programs), ["-o", "ours.o"], tmp_path, module="_ours_") is None


def test_the_package_s_compilers_can_be_run() -> None:
    assert all(os.access(EXTENSIONS / name, os.X_OK) for name in ("g++", "nvcc"))


# --- a file that does not compile costs the others nothing ----------------------------------------

needs_ninja = pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja here")


@pytest.fixture
def ninja(tmp_path: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Return a function that has ninja compile two files at once, as PyTorch does.

    The compiler of `first.cpp` fails if that says so; the compiler of `second.cpp` ends once there
    is a file `go`.
    """
    (tmp_path / "cc").write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "  *first.cpp*) grep -q good first.cpp && touch first.o ;;\n"
        "  *) echo $$ >second.pid; until [ -e go ]; do sleep 0.05; done; touch second.o ;;\n"
        "esac\n"
    )
    (tmp_path / "cc").chmod(0o700)
    (tmp_path / "build.ninja").write_text(
        "rule compile\n"
        f"  command = {sys.executable} -I -S {EXTENSIONS} ./cc -c $in -o $out\n"
        "build first.o: compile first.cpp\n"
        "build second.o: compile second.cpp\n"
    )
    (tmp_path / "second.cpp").write_text("")
    return lambda: subprocess.run(
        ["ninja", "-j", "2"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )


@needs_ninja
def test_other_files_are_given_up_once_one_does_not_compile(
    ninja: Callable[[], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "first.cpp").write_text("bad")
    done = ninja()
    assert done.returncode != 0
    assert done.stdout.count(GIVEN_UP) == 1
    assert not (tmp_path / "second.o").exists()
    if (tmp_path / "second.pid").exists():  # its compiler had begun
        told = Path(f"/proc/{(tmp_path / 'second.pid').read_text().strip()}/cmdline")
        assert not told.exists() or not told.read_bytes()  # it has ended, unreaped maybe


@needs_ninja
def test_a_file_that_did_not_compile_before_costs_no_later_build(
    ninja: Callable[[], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "first.cpp").write_text("bad")
    assert ninja().returncode != 0
    (tmp_path / "first.cpp").write_text("good")
    (tmp_path / "go").touch()
    assert ninja().returncode == 0
    assert (tmp_path / "second.o").exists()


@needs_ninja
def test_a_compiler_that_is_just_being_started_is_given_up_too(
    ninja: Callable[[], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    plan, late = tmp_path / "build.ninja", "until ls .failed-*; do sleep 0.01; done; "
    rules = plan.read_text().replace("second.o: compile", "second.o: late")
    rule = rules.splitlines()[1].replace("command = ", "command = " + late)
    plan.write_text(f"rule late\n{rule}\n{rules}")
    (tmp_path / "first.cpp").write_text("bad")
    for _ in range(5):
        assert ninja().returncode != 0
        assert not (tmp_path / "second.o").exists()


def test_a_command_that_no_ninja_began_has_no_siblings() -> None:
    assert Siblings.of(["-c", "ours.cpp", "-o", "ours.o"]) is None
