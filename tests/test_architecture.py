"""Small modules, and what the worker may know. Import layers are import-linter's business."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
MODULES = [
    path
    for package in ("cudal1", "tasks", "flows")
    for path in sorted((ROOT / package).rglob("*.py"))
    if "suite/problems" not in path.as_posix()
]


def num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_modules_are_small() -> None:
    assert median(num_lines(path) for path in MODULES) < 150
    assert [path.name for path in MODULES if num_lines(path) > 400] == []


def test_a_long_module_says_why_it_is_long() -> None:
    long = [path for path in MODULES if num_lines(path) > 300]
    described = {path.name: ast.get_docstring(ast.parse(path.read_text())) or "" for path in long}
    assert [name for name, words in described.items() if "Long" not in words] == []


def test_functions_are_short() -> None:
    long = [
        f"{path.name}:{node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno > 60
    ]
    assert long == []


def test_one_place_catches_everything() -> None:
    """What surrounds somebody else's code may; what hands on what another process raised, too.

    And what calls Ray, which raises just that.
    """
    broad = [
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
    ]
    assert set(broad) <= {
        "cudal1/harness/worker/shim.py", "cudal1/services/trial.py", "cudal1/harness/cluster.py",
        "cudal1/harness/reference_code.py", "cudal1/harness/forked.py",
        "cudal1/harness/isolated.py", "cudal1/harness/pools.py", "cudal1/errors.py",
    }  # fmt: skip


def test_records_load_without_heavy_packages() -> None:
    heavy = "torch transformers trl duckdb polars mlflow prefect".split()
    code = (
        "import sys, cudal1.params, cudal1.prompt, cudal1.reward, cudal1.cli\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_worker_has_no_store_and_no_parameters() -> None:
    forbidden = "cudal1.ledger cudal1.llm cudal1.params duckdb mlflow prefect polars".split()
    code = (
        "import sys, importlib\nimportlib.import_module('cudal1.harness.worker.shim')\n"
        f"print([name for name in {forbidden!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
