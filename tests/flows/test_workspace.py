"""Tests that one flow at a time runs in a checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudal1.errors import ConfigError
from tasks.server import workspace as module
from tasks.server.workspace import is_busy, workspace

pytestmark = pytest.mark.slow

HOLD = (
    "import sys\nfrom pathlib import Path\nfrom tasks.server import workspace\n"
    "workspace.LOCK = Path(sys.argv[1])\n"
    "with workspace.workspace('pipeline'):\n    print('held', flush=True)\n    sys.stdin.read()\n"
)


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "LOCK", tmp_path / ".flow")
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    return tmp_path / ".flow"


@pytest.fixture
def holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Start another process that holds the lock of a running flow."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_flow_at_a_terminal_is_refused_and_the_first_is_named(
    holder: subprocess.Popen[str],
) -> None:
    assert is_busy()
    with pytest.raises(ConfigError, match=rf"pipeline \(process {holder.pid}\)"), workspace("rest"):
        pass


def test_a_deployment_waits_for_its_turn(
    holder: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "is_attended", lambda: False)
    real_sleep = module.time.sleep

    def the_first_ends(seconds: float) -> None:
        holder.kill()
        real_sleep(seconds)

    monkeypatch.setattr(module.time, "sleep", the_first_ends)
    with workspace("nightly"):
        assert "waiting for flow pipeline" in capsys.readouterr().out


def test_a_killed_flow_leaves_no_lock(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert not is_busy()
    with workspace("nightly"):
        assert is_busy()
    assert not is_busy()
