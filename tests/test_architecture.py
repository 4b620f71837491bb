"""Tests that folders explain themselves, and that the worker imports only what it may.

import-linter checks layers and cycles of imports (`pyproject.toml`).
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = [
    path
    for package in ("cudal1", "tasks", "flows", "benchmarks")
    for path in sorted((ROOT / package).rglob("*.py"))
    if "suite/problems" not in path.as_posix()
]
MAX_MODULES, MAX_AT_THE_ROOT = 20, 18
"""Number of modules in a folder, and in one at the root: as many as a reader can survey."""
MAX_PUBLIC, MAX_PARAMETERS = 24, 12
ANYTHING = {"Exception", "BaseException"}
BROAD = {
    "cudal1/applying/dispatcher.py": "runs a version, which may raise anything",
    "cudal1/applying/loading.py": "runs a version's file",
    "cudal1/applying/proven.py": "runs a problem's and a version's code",
    "cudal1/capturing/literals.py": "makes a module of the user's own again",
    "cudal1/capturing/problem_file.py": "runs the user's own module",
    "cudal1/capturing/program.py": "runs the user's own program",
    "cudal1/capturing/trying.py": "runs the user's own module",
    "cudal1/api/judging.py": "interrupts the command that it waits for, and raises again",
    "cudal1/errors.py": "asks an exception of somebody else's class for its text",
    "cudal1/harness/admission/reasons.py": "runs a problem's code",
    "cudal1/harness/admission/trial.py": "runs a problem's code",
    "cudal1/harness/cluster/cluster.py": "calls Ray, which raises just that",
    "cudal1/harness/device/shortage.py": "asks an exception of somebody else's class for its text",
    "cudal1/harness/reference/forked.py": "runs a problem's code, and reads what that wrote",
    "cudal1/harness/schedule/assignment.py": "hands on what a thread raised",
    "cudal1/harness/schedule/isolated.py": "hands on what another process raised",
    "cudal1/harness/schedule/pools.py": "hands on what a problem's process raised",
    "cudal1/harness/schedule/device_processes.py": "ends processes, and raises again",
    "cudal1/harness/worker": "runs candidates",
    "cudal1/ledger/ledger.py": "closes the database, and raises again",
    "cudal1/ledger/store.py": "ends a transaction, and raises again",
    "cudal1/train/group/launched.py": "ends a group, and raises again",
    "cudal1/train/pretraining.py": "raises again where somebody waits for the result",
    "tasks/reproduce.py": "ends a child, and raises again",
    "benchmarks/judging/contexts.py": "ends a fork",
    "benchmarks/release/check_worker.py": "runs somebody else's kernels",
    "benchmarks/training": "reports that one of several ways failed",
}
"""Files that may catch everything, each with the reason."""
COMMANDS = ("cudal1/cli/",)
"""Folders in which each parameter of a function is an option of a command."""


def folders() -> Counter[str]:
    """Return the modules by folder, `__init__` aside."""
    paths = [path for path in MODULES if path.name not in ("__init__.py", "__main__.py")]
    return Counter(path.parent.relative_to(ROOT).as_posix() for path in paths)


def test_no_folder_has_more_modules_than_a_reader_can_survey() -> None:
    assert {name: n for name, n in folders().items() if n > MAX_MODULES} == {}
    assert folders()["cudal1"] <= MAX_AT_THE_ROOT


def test_every_package_has_a_docstring() -> None:
    inits = [path for path in MODULES if path.name == "__init__.py"]
    silent = [path for path in inits if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []
    missing = [path.parent for path in MODULES if not (path.parent / "__init__.py").exists()]
    assert missing == []


@pytest.mark.slow
def test_a_module_has_few_public_names() -> None:
    public = {
        path.relative_to(ROOT).as_posix(): sum(
            isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            for node in ast.parse(path.read_text()).body
        )
        for path in MODULES
    }
    assert {name: n for name, n in public.items() if n > MAX_PUBLIC} == {}


@pytest.mark.slow
def test_a_function_has_few_parameters() -> None:
    many = [
        f"{path.relative_to(ROOT).as_posix()}:{node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) > MAX_PARAMETERS
    ]
    assert [name for name in many if not name.startswith(COMMANDS)] == []


def test_no_directive_stops_the_formatter() -> None:
    assert [path for path in MODULES if "# fmt:" in path.read_text()] == []


def catches_anything(node: ast.AST) -> bool:
    """Return whether a handler, or a `suppress`, is for exceptions of every kind, in any form."""
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or bool(ANYTHING & names_in(node.type))
    if isinstance(node, ast.Call) and "suppress" in names_in(node.func):
        return any(ANYTHING & names_in(each) for each in node.args)
    return False


def names_in(node: ast.AST) -> set[str]:
    """Return the names in an expression, attributes too."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


@pytest.mark.slow
def test_only_listed_files_catch_everything() -> None:
    """A listed file calls code that is not ours, or ends its own work and raises again."""
    broad = {
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if catches_anything(node)
    }
    assert {name for name in broad if not name.startswith(tuple(BROAD))} == set()


def test_records_load_without_heavy_packages() -> None:
    heavy = "torch transformers trl duckdb polars mlflow prefect".split()
    code = (
        "import sys, cudal1.settings.params, cudal1.prompts.prompt\n"
        "import cudal1.selection.reward, cudal1.cli\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_that_judge_import_no_pytorch() -> None:
    """Only the processes that they start need it, and each of them imports it for seconds."""
    code = (
        "import sys, cudal1.cli.judge, cudal1.cli.judging.many, cudal1.cli.null_test\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_the_worker_imports_no_store_and_no_parameters() -> None:
    forbidden = (
        "cudal1.ledger cudal1.llm cudal1.settings.params duckdb mlflow prefect polars".split()
    )
    code = (
        "import sys, importlib\nimportlib.import_module('cudal1.harness.worker.shim')\n"
        f"print([name for name in {forbidden!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_worker_imports_the_shared_room_and_nothing_else_of_ours() -> None:
    allowed = ("cudal1.harness.shared", "cudal1.harness.worker")
    names = {
        name
        for path in (ROOT / "cudal1" / "harness").glob("worker/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imported_names(node)
        if name.split(".")[0] in ("cudal1", "tasks", "flows", "benchmarks")
    }
    assert names
    assert [name for name in names if not name.startswith(allowed)] == []


def imported_names(node: ast.AST) -> list[str]:
    """Modules that a statement imports; a package's name where one is imported from it."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["relative" if node.level else f"{node.module}.{alias.name}" for alias in node.names]
    return []
