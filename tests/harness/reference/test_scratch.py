"""A scratch folder is removed with the process that made it, however the process ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudal1.harness.reference.scratch import Scratch

KILLED = """
import os, signal
from cudal1.harness.reference.scratch import Scratch

folder = Scratch("left-").path
open(f"{folder}/file", "w").close()
print(folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
LIMIT_S = 60.0


def test_a_folder_is_removed_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch = Scratch("mine-")
    deep = Path(scratch.path, "deep", "er")
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    scratch.close()
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_removed_when_its_process_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=False
    )
    folder, deadline = Path(done.stdout.strip()), time.monotonic() + LIMIT_S
    assert folder.name.startswith("left-")
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
