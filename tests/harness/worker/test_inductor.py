"""A process that compiles inherits imports and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys
import torch
from cudal1.harness.worker import inductor

torch.set_num_threads(1)
threads, environment = len(os.listdir("/proc/self/task")), dict(os.environ)
inductor.warm_up()
told = {
    "new_threads": len(os.listdir("/proc/self/task")) > threads,
    "environment": dict(os.environ) == environment, "files": os.listdir("."),
    "asks": torch.cuda.is_available(), "children": os.path.exists("/proc/self/task") and
    bool(open(f"/proc/self/task/{os.getpid()}/children").read()),
    "compiled": "torch._dynamo.convert_frame" in sys.modules
    and bool(torch._dynamo.convert_frame.FRAME_COUNTER),
}
before = set(sys.modules)
torch.compile(lambda x: x @ x)(torch.ones(64, 64))
told["imported_later"] = [name for name in sys.modules if name not in before]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("warm")
    (cache := folder / "cache").mkdir()
    (here := folder / "here").mkdir()
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": root, "TMPDIR": str(cache), "HOME": str(here)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_compilation_finds_its_modules_imported(told: dict[str, list[str]]) -> None:
    assert len(told["imported_later"]) < 30, told["imported_later"]  # of more than 1,500


def test_warming_up_compiles_nothing(told: dict[str, object]) -> None:
    assert not told["compiled"]


@pytest.mark.parametrize("what", ["new_threads", "children", "files", "asks"])
def test_warming_up_leaves_nothing_behind(told: dict[str, object], what: str) -> None:
    assert not told[what]


def test_warming_up_does_not_change_the_environment(told: dict[str, object]) -> None:
    assert told["environment"]
