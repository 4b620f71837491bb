"""Find the devices that candidates are judged on, and lock them for one judge at a time."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from cudal1.errors import CudaL1Error, DeviceError, DeviceLostError
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.device.turn_taking import turn
from cudal1.problem import DeviceClass
from cudal1.record import Record, content_id

GPUS = Path("/proc/driver/nvidia/gpus")
"""The folder in which a running NVIDIA driver has a folder for each GPU."""

MAX_LANES = 6
"""Judges that may share one GPU. While one of them times, the others stand still. With so many the
GPU waits for none of them (docs/log/2026-11-28-contracts.md)."""
CORES_OF_A_LANE, CORES_BESIDE = 2, 2
"""Cores of each judge: its own and its workers'. Cores that a machine keeps for each GPU beside
those."""


class Device(Record):
    """One physical device."""

    device_class: DeviceClass
    kind: str
    """`cpu`, `fake`, or the GPU's name; verdicts are compared only within one kind."""
    id: str
    """Identifier that tells two devices of one kind apart."""
    worker_core: int | None
    """Core that reference and candidate share; None on a machine with a single one."""
    reserved_cores: tuple[int, ...] = ()
    """Worker cores of all devices here. A judge runs on no core of another device's workers, if
    there are enough cores."""
    lane_cores: tuple[int, ...] = ()
    """The core of each judge's workers, where several judges take turns on a GPU."""
    index: int = 0
    """Index among the GPUs that this process sees."""
    driver: str | None = None
    """The GPU driver's version."""
    arch: str | None = None
    """Architecture that extensions are compiled for, such as 9.0+PTX; None: for this processor."""
    node: str | None = None
    """The GPU's name in /dev; None where the driver does not tell the GPU's node."""

    @property
    def torch_name(self) -> str:
        """The name of the device in PyTorch: `cpu` or `cuda:0`."""
        is_cuda = self.device_class is DeviceClass.CUDA
        return f"cuda:{self.index}" if is_cuda else "cpu"

    @contextlib.contextmanager
    def locked(self, *, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the device alone: a second judge, of any user, waits or is refused.

        Raises:
            DeviceError: another process is still judging on it; the message has its process id.
        """
        with turn(self.id, f"{self.kind} {self.id}", wait_s=wait_s):
            yield

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Report a lost device in place of any error that the loss causes within the block.

        Raises:
            DeviceLostError: the device computes no more.
        """
        try:
            yield
        except (CudaL1Error, RuntimeError):  # PyTorch raises RuntimeError
            self.require_working()
            raise

    def require_working(self) -> None:
        """Have the device compute one sum.

        Raises:
            DeviceLostError: the device does not compute, for this process at least: it fell off the
                bus, say.
        """
        if self.device_class is not DeviceClass.CUDA:
            return
        import torch

        try:
            is_right = torch.ones(2, device=self.torch_name).sum().item() == 2.0
            said = "it computes wrong sums"
        except RuntimeError as error:
            if lacks_memory(f"{type(error).__name__}: {error}"):
                return  # other processes have all its memory, and the device works
            is_right, said = False, str(error).partition("\n")[0]
        if not is_right:
            raise DeviceLostError(
                f"device {self.kind} {self.id} computes no more ({said}): "
                "look at nvidia-smi and dmesg, and reset it or restart the machine"
            )


def num_lanes_of(device: Device) -> int:
    """Return the number of judges that take turns on a device."""
    return max(1, len(device.lane_cores))


def find_device(device_class: DeviceClass) -> Device:
    """Return the machine's first device of that class.

    Raises:
        DeviceError: there is none.
    """
    return find_devices(device_class)[0]


def find_devices(device_class: DeviceClass) -> list[Device]:
    """Return all devices of that class that this process may use; each GPU has a core of its own.

    Raises:
        DeviceError: there is none.
    """
    cores = sorted(os.sched_getaffinity(0))
    if device_class is not DeviceClass.CUDA:
        core = cores[-1] if len(cores) > 1 else None
        return [
            Device(
                device_class=device_class,
                kind=device_class.value,
                id=content_id(platform.node(), platform.processor(), device_class.value),
                worker_core=core,
                reserved_cores=() if core is None else (core,),
            )
        ]
    import torch

    if not torch.cuda.is_available():
        build = "" if torch.version.cuda else ", and this PyTorch was built without CUDA"
        raise DeviceError(f"device: cuda, but no GPU can be used{build}: set device: cpu")
    count = torch.cuda.device_count()
    lanes = _lane_cores(cores, count)
    reserved = tuple(core for each in lanes for core in each)
    return [
        Device(
            device_class=DeviceClass.CUDA,
            kind=torch.cuda.get_device_name(index),
            id=f"GPU-{torch.cuda.get_device_properties(index).uuid}",
            worker_core=lanes[index][0] if lanes[index] else None,
            reserved_cores=reserved if len(cores) >= 2 * len(reserved) else lanes[index],
            lane_cores=lanes[index],
            index=index,
            driver=_driver(),
            arch=_arch(index),
            node=_node(str(torch.cuda.get_device_properties(index).uuid)),
        )
        for index in range(count)
    ]


def _lane_cores(cores: list[int], num_devices: int) -> list[tuple[int, ...]]:
    """Return cores for the workers of each device's judges, from the last core downwards.

    The first cores serve everything else: one for each judge, and some for compilers.
    """
    wanted = (len(cores) // num_devices - CORES_BESIDE) // CORES_OF_A_LANE
    each = max(1, min(MAX_LANES, wanted))
    if len(cores) <= each * num_devices:
        return [()] * num_devices
    taken = cores[: -1 - each * num_devices : -1]
    return [tuple(taken[first : first + each]) for first in range(0, len(taken), each)]


def _node(uuid: str) -> str | None:
    """Return a GPU's name in /dev, from the driver's information about each GPU."""
    for path in GPUS.glob("*/information"):
        with contextlib.suppress(OSError):
            told = dict(re.findall(r"^(.+?):[ \t]*(.*?)[ \t]*$", path.read_text(), re.MULTILINE))
            if told.get("GPU UUID") == f"GPU-{uuid}" and "Device Minor" in told:
                return f"nvidia{told['Device Minor']}"
    return None


def _arch(index: int) -> str:
    """Return the GPU's architecture, or the newest that PyTorch knows if the GPU's is newer.

    PyTorch chooses the same where none is named.
    """
    import torch

    known = [re.findall(r"sm_(\d+)(\d)", arch) for arch in torch.cuda.get_arch_list()]
    newest = max((int(major), int(minor)) for found in known for major, minor in found)
    return "{}.{}+PTX".format(*min(newest, torch.cuda.get_device_capability(index)))


def _driver() -> str | None:
    """Return the driver's version; it is read from a file, so that no library is needed."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?([0-9]+\.[0-9.]+)", text)
    return found[1] if found else None
