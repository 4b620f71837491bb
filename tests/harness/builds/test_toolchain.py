"""A build depends on its toolchain; the user is told if this machine cannot build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cudal1.cli import app
from cudal1.harness.builds import toolchain
from cudal1.harness.shared import places
from cudal1.problem import DeviceClass
from cudal1.suite.loader import load_suite

CPP = "from torch.utils.cpp_extension import load_inline\nload_inline('x', cpp_sources='')"
CUDA = CPP.replace("cpp_sources", "cuda_sources")
CUPY = "import torch\nimport cupy as cp\nkernel = cp.RawKernel('', 'x')"
FILE = CPP.replace("cpp_sources=''", "['mine.cu']")


@pytest.fixture
def with_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with c++, the only folder that is searched for programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    add(folder, "c++")
    monkeypatch.setattr(places, "PATH", str(folder))
    monkeypatch.setattr(toolchain, "NVCC", str(tmp_path / "cuda/bin/nvcc"))
    return folder


def add(folder: Path, name: str) -> None:
    (folder / name).touch(mode=0o700)


@pytest.mark.parametrize("what", ["HOME", "prefix"])
def test_the_folders_that_compilers_use_are_part_of_the_toolchain(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = toolchain.fingerprint(None)
    assert toolchain.fingerprint(None) == before
    monkeypatch.setattr(places if what == "HOME" else toolchain.sys, what, "/elsewhere")
    assert toolchain.fingerprint(None) != before


@pytest.mark.parametrize(
    ("source", "by_any", "by_itself", "ahead"),
    [
        ("import torch\nimport re\nre.compile('x')", False, False, ""),
        (CPP, True, False, "cpu cuda"),
        ("import subprocess\nsubprocess.run(['nvcc', 'x.cu'])", True, False, ""),
        ("f = torch.compile(g)", True, True, "cpu"),
        ("@torch . compile\ndef f(x): pass", True, True, "cpu"),
        ("self.compile(mode='max-autotune')", True, True, "cpu"),
        ("from torch import nn, compile\nf = compile(g)", True, True, "cpu"),
        ("from numba import njit", True, True, "cpu"),
        ("import triton\n@triton.autotune(configs=[])\n@triton.jit\ndef f(): pass", True, True, ""),
        (CUPY, True, True, ""),
        ("@torch.jit.script\ndef f(x): return x", True, True, ""),
    ],
    ids=range(11),
)
def test_the_names_in_a_source_tell_if_it_may_compile(
    source: str, by_any: bool, by_itself: bool, ahead: str
) -> None:
    assert toolchain.compiles(source) is by_any
    assert toolchain.compiles_itself(source) is by_itself
    builds_for = [c.value for c in DeviceClass if toolchain.compiles_without(source, c)]
    assert [each for each in builds_for if each != "fake"] == ahead.split()


def test_a_program_that_an_extension_lacks_is_named(with_programs: Path) -> None:
    assert toolchain.missing_for(CPP, DeviceClass.CPU) == ("ninja",)
    add(with_programs, "ninja")
    assert toolchain.missing_for(CPP, DeviceClass.CPU) == ()


@pytest.mark.parametrize("source", [CUDA, FILE], ids=["inline", "file"])
def test_nvcc_is_needed_for_cuda_on_a_gpu(with_programs: Path, source: str) -> None:
    add(with_programs, "ninja")
    assert toolchain.missing_for(source, DeviceClass.CUDA) == ("nvcc",)
    assert toolchain.missing_for(source, DeviceClass.CPU) == ()


def test_nvcc_is_found_where_pytorch_looks(with_programs: Path) -> None:
    add(with_programs, "ninja")
    Path(toolchain.NVCC).parent.mkdir(parents=True)
    add(Path(toolchain.NVCC).parent, "nvcc")
    assert toolchain.missing_for(CUDA, DeviceClass.CUDA) == ()


def test_a_source_that_compiles_nothing_needs_no_program(with_programs: Path) -> None:
    assert toolchain.missing_for("class ModelNew: pass", DeviceClass.CUDA) == ()


def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "where_cupy", lambda: None)


@pytest.mark.parametrize(
    "source",
    [
        CUPY,
        "    import cupy",
        "import torch, cupy",
        "from cupy import RawKernel",
        "from cupy.cuda import Device",
        "import cupyx.scipy",
    ],
)
def test_cupy_is_named_on_a_gpu_if_it_is_not_installed(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cupy(monkeypatch)
    assert toolchain.missing_for(source, DeviceClass.CUDA) == ("cupy",)
    assert toolchain.missing_for(source, DeviceClass.CPU) == ()
    monkeypatch.setattr(toolchain, "where_cupy", lambda: "cupy/__init__.py")
    assert toolchain.missing_for(source, DeviceClass.CUDA) == ()


@pytest.mark.parametrize(
    "source", ["# import cupy", "import mycupy", "x = 'cupy'", "import a # cupy"]
)
def test_a_source_that_does_not_import_cupy_does_not_need_it(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cupy(monkeypatch)
    assert toolchain.missing_for(source, DeviceClass.CUDA) == ()


def test_cupy_is_found_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert toolchain.where_cupy() == str(tmp_path / "cupy" / "__init__.py")


def test_the_remedy_for_cupy_is_the_wheel_for_pytorch_s_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.version.cuda", "13.0")
    assert toolchain.remedy(("cupy",)) == (
        "imports CuPy, which is not installed here; pip install cupy-cuda13x"
    )


def test_a_source_that_lacks_both_is_told_both_remedies_in_one_line() -> None:
    said = toolchain.remedy(("nvcc", "cupy"))
    assert "workers find no nvcc in" in said
    assert "; imports CuPy" in said
    assert "\n" not in said


def test_a_candidate_in_cupy_is_refused_if_cupy_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cupy(monkeypatch)
    (tmp_path / "model.py").write_text(load_suite(DeviceClass.CUDA)[0].source)
    (tmp_path / "faster.py").write_text(f"{CUPY}\nclass ModelNew: pass\n")
    names = [str(tmp_path / name) for name in ("model.py", "faster.py")]
    done = CliRunner().invoke(app, ["judge", *names, "--device", "cuda"])
    assert done.exit_code == 2
    assert "faster.py: imports CuPy, which is not installed here; " in done.stderr


def test_a_candidate_that_cannot_be_compiled_here_is_refused_and_not_judged(
    with_programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(load_suite(DeviceClass.CPU)[0].source)
    (tmp_path / "faster.py").write_text(f"{CPP}\nclass ModelNew: pass\n")
    names = [str(tmp_path / name) for name in ("model.py", "faster.py")]
    done = CliRunner().invoke(app, ["judge", *names, "--device", "cpu"])
    assert done.exit_code == 2
    assert "faster.py: compiles an extension, and workers find no ninja in" in done.stderr


@pytest.mark.slow
def test_candidates_of_a_file_that_cannot_be_compiled_here_have_no_verdict(
    with_programs: Path, tmp_path: Path
) -> None:
    problem = load_suite(DeviceClass.CPU)[0]
    rows = tmp_path / "answers.jsonl"
    row = {"level": problem.level, "problem_id": problem.number}
    rows.write_text("".join(json.dumps(row | {"source": f"{CPP}  # {i}"}) + "\n" for i in (1, 2)))
    done = CliRunner().invoke(
        app, ["judge", "--candidates", str(rows), "--device", "cpu", "--checks-only"]
    )
    assert done.exit_code == 1
    assert "2 candidates: each compiles an extension, and workers find no ninja" in done.stderr
    assert not (tmp_path / "answers.verdicts.jsonl").read_text().strip()
