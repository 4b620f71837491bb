"""Tests that a training group gets only needed variables, and leaves no process behind."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from cudal1.train.group import launched
from cudal1.train.group.launched import environment

STUBBORN = """
    import os, signal, sys, time
    from pathlib import Path

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()  # as torch starts its workers
        if os.fork() == 0:
            Path(sys.argv[1], "grandchild").write_text(str(os.getpid()))
        time.sleep(600)
    time.sleep(600 if sys.argv[2] == "waits" else 0)
"""


@pytest.mark.parametrize("ending", ["waits", "leaves"])
def test_all_processes_of_a_group_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The children ignore a polite signal; their parent may be alive or dead."""
    monkeypatch.setattr(launched, "_GRACE_S", 0.5)
    command = [sys.executable, "-c", textwrap.dedent(STUBBORN), str(tmp_path), ending]
    with pytest.raises(KeyboardInterrupt):
        interrupted(command, tmp_path)
    grandchild = int((tmp_path / "grandchild").read_text())
    assert has_ended(grandchild)


def interrupted(command: list[str], folder: Path) -> None:
    """Make a group, and interrupt its stage when there is a grandchild."""
    told = folder / "grandchild"
    with launched.launched(command, [], str(folder)):
        while not told.exists() or not told.read_text():
            time.sleep(0.02)
        raise KeyboardInterrupt


def has_ended(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_finished_group_is_not_disturbed(tmp_path: Path) -> None:
    code = f"import time; time.sleep(0.3); open({str(tmp_path / 'done')!r}, 'w')"
    command = [sys.executable, "-c", code]
    with launched.launched(command, [], str(tmp_path)) as group:
        pass
    assert group.returncode == 0
    assert (tmp_path / "done").exists()


SECRETS = ("OPENAI_API_KEY", "LAB_X", "HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY")
NEEDED = (
    "PATH",
    "NCCL_DEBUG",
    "HF_HUB_OFFLINE",
    "TOKENIZERS_PARALLELISM",
    "LD_LIBRARY_PATH",
    "CUDA_DEVICE_ORDER",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "OMP_WAIT_POLICY",
)


def test_only_variables_that_training_needs_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of any name may be a provider's."""
    for name in (*SECRETS, *NEEDED):
        monkeypatch.setenv(name, "x")
    passed = environment([], "m")
    assert not passed.keys() & set(SECRETS)
    assert passed.keys() >= set(NEEDED)


def test_a_group_sees_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert environment(["1", "2"], "m")["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert environment([], "m")["CUDA_VISIBLE_DEVICES"] == "0,1,2"


def test_no_variable_steers_the_imports_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "LD_PRELOAD", "LC_ALL"):
        monkeypatch.setenv(name, "/somewhere")
    passed = environment([], "m")
    assert [name for name, value in passed.items() if value == "/somewhere"] == []
    assert passed["PYTHONSAFEPATH"] == "1"
