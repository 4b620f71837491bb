"""Tests of verdicts that a Python program asks for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import cudal1
from cudal1 import processes
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.settings import protocols
from cudal1.verdict import Status, Verdict
from tests.cli.conftest import FASTER, PROBLEM

WRONG = FASTER.replace("torch.nn.functional.silu(x)", "x")
UNFIT = PROBLEM.replace("torch.sigmoid", "torch.no_such_function")
WAIT_S = 600.0


def run(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_script_s_classes_are_judged_from_their_sources(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        f"import cudal1\n{PROBLEM}\n{FASTER}\n"
        "if __name__ == '__main__':\n"
        f"    verdict = cudal1.judge(Model, ModelNew, get_inputs, timing=False, wait_s={WAIT_S})\n"
        "    print(verdict.is_successful, 'cudal1.judge' in str(verdict))\n"
    )
    (tmp_path / "statistics.py").write_text("raise SystemError('imported from the folder')\n")
    started = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (started.returncode, started.stdout) == (0, "True False\n"), started.stderr


@pytest.mark.slow
def test_many_pairs_have_verdicts_or_errors_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "faster.py"
    path.write_text(FASTER)
    out = tmp_path / "verdicts.jsonl"
    pairs = [(PROBLEM, WRONG), (UNFIT, path), (PROBLEM, path), (PROBLEM, WRONG)]
    options = {"timing": False, "wait_s": WAIT_S, "out": out}
    found = cudal1.judge_many(pairs, **options)
    statuses = [each.status if isinstance(each, Verdict) else str(each) for each in found]
    assert statuses[::2] + statuses[3:] == [Status.INCORRECT, Status.CORRECT, Status.INCORRECT]
    assert "no_such_function" in str(statuses[1])
    assert found[0] == found[3]
    again = cudal1.judge_many(pairs[:1], **options)
    assert again == found[:1], "the verdict in the file is not made again"
    assert len(out.read_text().splitlines()) == 2


@pytest.mark.slow
def test_an_error_is_the_command_s_line(tmp_path: Path) -> None:
    with pytest.raises(CudaL1Error) as raised:
        cudal1.judge(PROBLEM, "class Something:\n    pass\n")
    assert str(raised.value) == "candidate.py: has no ModelNew; name the faster class ModelNew"
    with pytest.raises(CudaL1Error, match="no protocol quickest: give one of"):
        cudal1.judge(PROBLEM, FASTER, protocol="quickest")


@pytest.mark.slow
def test_a_protocol_may_be_given_as_a_record() -> None:
    protocol = protocols.load("cpu").model_copy(update={"seed": 7})
    verdict = cudal1.judge(
        PROBLEM, FASTER, protocol=protocol, device="cpu", timing=False, wait_s=WAIT_S
    )
    assert verdict.protocol_id in (protocol.id, protocol.checks_only().id)


def test_no_pairs_start_no_process() -> None:
    assert cudal1.judge_many([]) == []


def test_a_text_that_utf_8_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"candidate\.py: is no text that UTF-8 can hold"):
        cudal1.judge(PROBLEM, "class ModelNew:\n    x = '\udcff'\n")


def test_a_module_that_is_judged_cannot_ask_for_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__file__ = processes.START
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(CudaL1Error, match="by a module that is being judged"):
        cudal1.judge(PROBLEM, FASTER)


@pytest.mark.slow
def test_a_problem_s_own_call_ends_at_once(tmp_path: Path) -> None:
    problem = f"import cudal1\n{PROBLEM}\ncudal1.judge(__file__, __file__)\n"
    with pytest.raises(CudaL1Error, match="by a module that is being judged"):
        cudal1.judge(problem, FASTER, timing=False, wait_s=WAIT_S)


def test_importing_cudal1_imports_nothing_heavy_and_writes_nothing(tmp_path: Path) -> None:
    done = run(
        """
        import os, sys
        before, environment = set(sys.modules), dict(os.environ)
        import cudal1
        loaded = set(sys.modules) - before
        assert all(name.partition(".")[0] in ("cudal1", "__future__") for name in loaded), loaded
        assert environment == dict(os.environ)
        assert set(cudal1.EXPORTS) == set(cudal1.__all__) <= set(dir(cudal1))
        for name, module in cudal1.EXPORTS.items():
            if not module.startswith("cudal1.applying"):  # runs in a program that has PyTorch
                getattr(cudal1, name)
        assert "torch" not in sys.modules and "duckdb" not in sys.modules
        print(hasattr(cudal1, "no_such_name"))
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert list(tmp_path.iterdir()) == []
