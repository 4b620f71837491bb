"""Each device has cores and a node in /dev of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cudal1.errors import DeviceError, DeviceLostError, SuiteError
from cudal1.harness.device import device as module
from cudal1.harness.device.device import Device, find_devices
from cudal1.problem import DeviceClass


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[int, int]:
    """Fake a machine with given numbers of cores and GPUs."""
    num_cores, num_gpus = request.param
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(num_cores)))
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: num_gpus,
        "get_device_name": lambda index: "a GPU",
        "get_device_properties": lambda index: SimpleNamespace(uuid=f"{index}"),
        "get_arch_list": lambda: ["sm_80", "sm_90a", "sm_100", "compute_100"],
        "get_device_capability": lambda index: (9, 0),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return num_cores, num_gpus


@pytest.mark.parametrize("gpus", [(16, 1), (16, 4), (8, 4)], indirect=True)
def test_each_gpu_has_a_core_that_all_judges_know(gpus: tuple[int, int]) -> None:
    devices = find_devices(DeviceClass.CUDA)
    own = [device.worker_core for device in devices]
    assert len(set(own)) == len(own) == gpus[1]
    lanes = {core for device in devices for core in device.lane_cores}
    assert all(set(device.reserved_cores) == lanes >= set(own) for device in devices)
    assert len(lanes) == sum(len(device.lane_cores) for device in devices)
    assert set(own) < set(range(gpus[0]))


@pytest.mark.parametrize("gpus", [(5, 4)], indirect=True)
def test_a_judge_with_few_cores_keeps_off_its_own_worker_s_core_alone(
    gpus: tuple[int, int],
) -> None:
    for device in find_devices(DeviceClass.CUDA):
        assert device.reserved_cores == (device.worker_core,)


@pytest.mark.parametrize("gpus", [(4, 4), (1, 1)], indirect=True)
def test_no_core_is_reserved_if_there_are_too_few(gpus: tuple[int, int]) -> None:
    for device in find_devices(DeviceClass.CUDA):
        assert (device.worker_core, device.reserved_cores) == (None, ())


@pytest.mark.parametrize("gpus", [(8, 1)], indirect=True)
@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "9.0+PTX"), ((8, 6), "8.6+PTX"), ((12, 1), "10.0+PTX")]
)
def test_extensions_are_compiled_for_the_gpu_or_the_newest_one_that_pytorch_knows(
    gpus: tuple[int, int], monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], arch: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
    (found,) = find_devices(DeviceClass.CUDA)
    assert found.arch == arch


INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 64
GPU UUID: \t GPU-{uuid}
Bus Type: \t PCIe
{minor}GPU Excluded:\t No
"""


@pytest.mark.parametrize("gpus", [(8, 2)], indirect=True)
@pytest.mark.parametrize(
    ("told", "nodes"),
    [
        ({"1": "Device Minor: \t 0\n", "0": "Device Minor: \t 3\n"}, ["nvidia3", "nvidia0"]),
        ({"7": "Device Minor: \t 0\n", "1": "Device Minor: \t 2\n"}, [None, "nvidia2"]),
        ({"0": "", "1": "Device Minor: \t 0\n"}, [None, "nvidia0"]),
        ({}, [None, None]),
    ],
)
def test_a_gpu_has_the_node_that_its_driver_names_if_any(
    gpus: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    told: dict[str, str],
    nodes: list[str | None],
) -> None:
    for uuid, minor in told.items():
        (tmp_path / uuid).mkdir()
        information = INFORMATION.format(uuid=uuid, minor=minor)
        (tmp_path / uuid / "information").write_text(information)
    monkeypatch.setattr(module, "GPUS", tmp_path)
    assert [found.node for found in find_devices(DeviceClass.CUDA)] == nodes


def test_a_cpu_keeps_one_core_for_its_workers() -> None:
    (device,) = find_devices(DeviceClass.CPU)
    assert device.reserved_cores == (() if device.worker_core is None else (device.worker_core,))


def _raising(error: Exception) -> Callable[..., torch.Tensor]:
    def ones(*_: object, **__: object) -> torch.Tensor:
        raise error

    return ones


@pytest.mark.parametrize(
    ("ones", "said"),
    [
        (
            _raising(
                torch.AcceleratorError("CUDA error: unspecified launch failure\nCompile with")
            ),
            r"computes no more \(CUDA error: unspecified launch failure\): look at nvidia-smi",
        ),
        (lambda *_, **__: torch.zeros(2), r"computes no more \(it computes wrong sums\)"),
    ],
)
def test_a_broken_gpu_is_named_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, ones: Callable[..., torch.Tensor], said: str
) -> None:
    gpu = Device(device_class=DeviceClass.CUDA, kind="a GPU", id="GPU-1", worker_core=None)
    monkeypatch.setattr(torch, "ones", ones)
    with pytest.raises(DeviceLostError, match=said):
        gpu.require_working()


def test_a_gpu_with_full_memory_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Device(device_class=DeviceClass.CUDA, kind="a GPU", id="GPU-1", worker_core=None)
    monkeypatch.setattr(torch, "ones", _raising(torch.OutOfMemoryError("CUDA out of memory")))
    gpu.require_working()


@pytest.mark.parametrize(
    ("ones", "wanted"),
    [
        (
            _raising(torch.AcceleratorError("CUDA error: unspecified launch failure")),
            DeviceLostError,
        ),
        (lambda *_, **__: torch.full((2,), 1.0), SuiteError),
    ],
)
def test_an_error_caused_by_a_lost_gpu_is_raised_as_its_loss(
    monkeypatch: pytest.MonkeyPatch, ones: Callable[..., torch.Tensor], wanted: type[Exception]
) -> None:
    gpu = Device(device_class=DeviceClass.CUDA, kind="a GPU", id="GPU-1", worker_core=None)
    monkeypatch.setattr(torch, "ones", ones)
    with pytest.raises(wanted), gpu.watched():
        raise SuiteError("the reference cannot be run")


def test_the_device_in_use_is_named_among_devices_of_one_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gpu = Device(device_class=DeviceClass.CUDA, kind="a GPU", id="GPU-1", worker_core=None)
    refused = pytest.raises(DeviceError, match=r"^device a GPU GPU-1 is in use by process \d+: ")
    with gpu.locked(), refused, gpu.locked():
        pass
