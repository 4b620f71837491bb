"""A worker finds its own GPU in /dev, and few other nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

import cudal1
from cudal1.harness.shared import places

EVERYWHERE = {"null", "urandom"}
DRIVER = {"nvidiactl", "nvidia-uvm"}


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make a /dev with a disk and two GPUs."""
    monkeypatch.setattr(places, "DEV", tmp_path)
    for name in (*EVERYWHERE, *DRIVER, "nvidia0", "nvidia1", "nvidia-modeset", "sda"):
        (tmp_path / name).touch()


def test_a_worker_finds_its_own_gpu_alone() -> None:
    assert set(places.devices("cuda", "nvidia1")) == {*EVERYWHERE, *DRIVER, "nvidia1"}


@pytest.mark.parametrize("node", [None, "nvidia7"])
def test_a_worker_finds_all_gpus_if_its_own_is_not_known(node: str | None) -> None:
    wanted = {*EVERYWHERE, *DRIVER, "nvidia0", "nvidia1"}
    assert set(places.devices("cuda", node)) == wanted


def test_a_worker_for_the_cpu_finds_no_gpu() -> None:
    assert set(places.devices("cpu", None)) == EVERYWHERE


def test_a_worker_reads_the_shared_room_and_its_own_and_nothing_else_of_ours() -> None:
    package = Path(cudal1.__file__).parent
    ours = {
        path.relative_to(package).as_posix()
        for path in places.readable()
        if package in path.parents
    }
    assert ours == {"__init__.py", "harness/__init__.py", "harness/shared", "harness/worker"}
