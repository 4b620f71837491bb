"""What a worker finds in /dev."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.harness import places

EVERYWHERE = {"null", "urandom"}
DRIVER = {"nvidiactl", "nvidia-uvm"}


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A /dev with a disk and two GPUs."""
    monkeypatch.setattr(places, "DEV", tmp_path)
    for name in (*EVERYWHERE, *DRIVER, "nvidia0", "nvidia1", "nvidia-modeset", "sda"):
        (tmp_path / name).touch()


def test_a_worker_finds_its_own_gpu_alone() -> None:
    assert set(places.devices("cuda", "nvidia1")) == {*EVERYWHERE, *DRIVER, "nvidia1"}


@pytest.mark.parametrize("node", [None, "nvidia7"])
def test_it_finds_all_where_nobody_knows_which_is_its_own(node: str | None) -> None:
    wanted = {*EVERYWHERE, *DRIVER, "nvidia0", "nvidia1"}
    assert set(places.devices("cuda", node)) == wanted


def test_a_worker_of_the_cpu_finds_no_gpu() -> None:
    assert set(places.devices("cpu", None)) == EVERYWHERE
