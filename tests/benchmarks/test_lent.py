"""Tests that a lent machine gets what it needs, and nothing that it should not get."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tarfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from benchmarks.lent.check import PROGRAMS
from benchmarks.lent.pack import IMPORTED, KERNELBENCH, RELEASE, THERE, archive, needed, pinned
from benchmarks.lent.stacks import read, summarise, utilization
from cudal1.errors import ConfigError
from cudal1.files.text_file import read_text

ROOT = Path(__file__).parents[2]
PACKAGES = ("cudal1", "benchmarks", "tests")
STARTED = (
    "benchmarks.release.check_worker",
    "benchmarks.release.evaluator_worker",
    *(f"cudal1.harness.worker.{file.stem}" for file in ROOT.glob("cudal1/harness/worker/*.py")),
)
"""Modules that the programs start as processes of their own."""
LEFT_OUT = {"ray", "datasets"}
"""Packages that are imported for a cluster, and for problems of a hub."""


class Imports(ast.NodeVisitor):
    """A visitor that collects the names of modules that a source imports, wherever it does."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for each in node.orelse:
                self.visit(each)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.names |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            self.names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}


def file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def imported_by(modules: tuple[str, ...]) -> set[str]:
    """Return the packages that our modules import, directly or through other modules of ours."""
    left, seen, packages = list(modules), set[str](), set[str]()
    while left:
        words = left.pop().split(".")
        for module in (".".join(words[: n + 1]) for n in range(len(words))):
            file = file_of(module)
            if file is None or module in seen:
                continue
            seen.add(module)
            imports = Imports()
            imports.visit(ast.parse(read_text(file)))
            for name in imports.names:
                package = name.partition(".")[0]
                if package in PACKAGES:
                    left.append(name)
                elif package not in sys.stdlib_module_names:
                    packages.add(package)
    return packages


def test_each_benchmark_that_the_script_names_exists() -> None:
    script = read_text(ROOT / "benchmarks" / "lent" / "run.sh")
    named = set(re.findall(r"\bbenchmarks(?:\.\w+)+", script))
    assert {"benchmarks.timing.null_test", "benchmarks.release"} <= named
    for name in named:
        assert importlib.util.find_spec(name), name


@pytest.mark.slow
def test_the_wheels_are_exactly_the_packages_that_the_programs_import() -> None:
    distributions = packages_distributions()
    wanted = {
        canonicalize_name(name)
        for package in imported_by((*PROGRAMS, *STARTED)) - LEFT_OUT
        for name in distributions.get(package, [package])
    }
    assert wanted - THERE <= set(needed(IMPORTED, python_version="3.12"))
    assert set(IMPORTED) <= wanted


def test_dependencies_of_pytorch_are_not_carried() -> None:
    found = needed(["torch", *IMPORTED], python_version="3.12")
    assert found == needed(IMPORTED, python_version="3.12")


def test_a_package_that_is_missing_here_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such-package: not installed here"):
        needed(["no_such.package"], python_version="3.12")


def test_versions_come_from_the_constraints() -> None:
    assert pinned(["a-b", "c"], "a==9\na-b==1.2\nc==3.0.post1\n") == ["a-b==1.2", "c==3.0.post1"]
    with pytest.raises(ConfigError, match="no version of d"):
        pinned(["d"], "a-d==1\n")


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def names_in(file: Path) -> set[str]:
    with tarfile.open(file) as packed:
        return {member.name for member in packed.getmembers() if member.isfile()}


def test_an_archive_of_a_clone_holds_the_named_files_only(tmp_path: Path) -> None:
    for name in (*RELEASE, "optimized_cuda_code/a100.json"):
        file = tmp_path / "clone" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    git(tmp_path / "clone", "init", "--quiet")
    git(tmp_path / "clone", "add", ".")
    git(tmp_path / "clone", "commit", "--quiet", "-m", "all")
    git(tmp_path, "clone", "--quiet", "--bare", "clone", "bare")
    for clone in ("clone", "bare"):
        archive(tmp_path / clone, RELEASE, tmp_path / "out.tgz", prefix="release")
        assert names_in(tmp_path / "out.tgz") == {f"release/{name}" for name in RELEASE}
    with pytest.raises(ConfigError, match="KernelBench"):
        archive(tmp_path / "clone", KERNELBENCH, tmp_path / "out.tgz", prefix="kernelbench")


def run_sh(
    tmp_path: Path, *words: str, at: Path = ROOT / "benchmarks" / "lent"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(at / "run.sh"), *words],
        env={"PATH": "/usr/bin:/bin", "OUT": str(tmp_path / "out"), "ROOT": str(tmp_path / "root")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_unknown_benchmark_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    done = run_sh(tmp_path, "nonsense")
    assert done.returncode == 2
    assert "'nonsense': check, release" in done.stderr
    assert not (tmp_path / "root").exists()


def test_results_come_back_when_preparation_fails(tmp_path: Path) -> None:
    (tmp_path / "root" / "state" / "release").mkdir(parents=True)
    (tmp_path / "root" / "state" / "release" / "checks.jsonl").write_text("{}\n")
    done = run_sh(tmp_path, "release", "8")  # no wheels lie beside the script
    assert done.returncode != 0
    assert names_in(tmp_path / "out" / "results.tgz") == {"state/release/checks.jsonl"}


def test_a_machine_keeps_its_own_state_and_takes_the_rest_from_the_archive(tmp_path: Path) -> None:
    def state_of(folder: Path, **texts: str) -> None:
        for name, text in texts.items():
            (folder / "state" / name).mkdir(parents=True)
            (folder / "state" / name / "runs.jsonl").write_text(text)

    state_of(tmp_path / "root", release="own")
    state_of(tmp_path / "before", release="carried", corpus="carried")
    with tarfile.open(tmp_path / "results.tgz", "w:gz") as packed:
        packed.add(tmp_path / "before" / "state", "state")
    payload = tmp_path / "payload"
    for part in ("wheels/none.whl", "parts/tree.tgz"):
        (payload / part).parent.mkdir(parents=True)
        (payload / part).write_text("")
    (payload / "run.sh").write_text(read_text(ROOT / "benchmarks" / "lent" / "run.sh"))
    (tmp_path / "root" / "tree").mkdir()
    stamp = subprocess.run(["sha256sum"], input=b"", capture_output=True, check=True).stdout
    (tmp_path / "root" / "prepared").write_bytes(stamp)
    done = run_sh(tmp_path, "--state", str(tmp_path / "results.tgz"), "release", "8", at=payload)
    assert "release: goes on from this machine's own state" in done.stdout
    kept = {
        name: tmp_path / "root" / "state" / name / "runs.jsonl" for name in ("release", "corpus")
    }
    assert {name: read_text(file) for name, file in kept.items()} == {
        "release": "own",
        "corpus": "carried",
    }


JUDGE = 'process 1:"python -I start.py cudal1.cli judge --suite x;y";'
MAIN = "<module> (cudal1/start.py:68);main (cudal1/start.py:51);"


def test_seconds_go_to_the_innermost_function_of_our_code() -> None:
    lines = [
        f"{JUDGE}{MAIN}go (cudal1/cli/judge.py:7);wait (threading.py:3) 100\n",
        f"{JUDGE}{MAIN}go (cudal1/cli/judge.py:7) 50\n",
        f"{JUDGE}{MAIN}exec (site.py:1) 10\n",
        "no stack at all\n",
    ]
    found = summarise(read(lines), rate=50.0)
    assert list(found) == ["cudal1.cli judge"]
    assert found["cudal1.cli judge"]["places"] == {
        "go (cudal1/cli/judge.py:7)": 3.0,
        "none of ours": 0.2,
    }


def test_each_forked_process_is_its_own_kind() -> None:
    zygote = f'{JUDGE}process 2:"python start.py cudal1.harness.worker.zygote cpu null";{MAIN}'
    forked = f"{zygote}serve (cudal1/harness/worker/zygote.py:5);_never_returning (cudal1/a.py:1);"
    lines = [
        f"{zygote}serve (cudal1/harness/worker/zygote.py:4) 10\n",
        f"{forked}_keep (cudal1/b.py:1) 20\n",
        f"{forked.replace('process 2', 'process 3')}_keep (cudal1/b.py:1) 20\n",
    ]
    found = summarise(read(lines), rate=10.0)
    of_zygote = "cudal1.harness.worker.zygote cpu"
    assert {kind: (row["num_processes"], row["seconds"]) for kind, row in found.items()} == {
        f"{of_zygote}, forked for _keep": (2, 4.0),
        of_zygote: (1, 1.0),
    }


def test_utilization_is_the_mean_per_gpu() -> None:
    assert utilization("0, 50, 7\n1, 0, 7\n0, 100, 7\n0, [N/A], 7\n") == {"0": 0.75, "1": 0.0}
