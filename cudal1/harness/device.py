"""Devices: what candidates are judged on, one judge at a time."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from cudal1.errors import CudaL1Error, DeviceError, DeviceLostError
from cudal1.harness.shortage import lacks_memory
from cudal1.harness.turn_taking import turn
from cudal1.problem import DeviceClass
from cudal1.record import Record, content_id

GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder for each GPU, where its driver runs."""

MAX_LANES = 6
"""Judges of one GPU. While one of them times, the others stand still; with so many the GPU waits
for none of them (docs/LOG.md, 2026-11-28)."""
CORES_OF_A_LANE, CORES_BESIDE = 2, 2
"""A judge's own core and its workers'; and what a machine keeps for each GPU beside those."""


class Device(Record):
    """One physical device."""

    device_class: DeviceClass
    kind: str
    """`cpu`, `fake`, or the GPU's name: verdicts are compared only within one kind."""
    id: str
    """Tells two devices of one kind apart."""
    worker_core: int | None
    """Core that reference and candidate share; None on a machine with a single one."""
    reserved_cores: tuple[int, ...] = ()
    """Such cores of all devices here: no judge runs on the one of another, if there are enough."""
    lane_cores: tuple[int, ...] = ()
    """Of a GPU on which several judges take turns: the core of each one's workers."""
    index: int = 0
    """Which of the GPUs that this process sees."""
    driver: str | None = None
    """The GPU driver's version."""
    arch: str | None = None
    """What extensions are compiled for, such as 9.0+PTX; None: for this processor."""
    node: str | None = None
    """Its name in /dev; None where the driver does not tell which GPU's it is."""

    @property
    def torch_name(self) -> str:
        """`cpu` or `cuda:0`."""
        is_cuda = self.device_class is DeviceClass.CUDA
        return f"cuda:{self.index}" if is_cuda else "cpu"

    @contextlib.contextmanager
    def locked(self, *, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the device alone: a second judge, of any user, waits or is refused, not mixed in.

        Raises:
            DeviceError: another process is still judging on it; the message has its process id.
        """
        with turn(self.id, f"{self.kind} {self.id}", wait_s=wait_s):
            yield

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """If something fails within because the device is lost, that is what is said.

        Raises:
            DeviceLostError: it computes no more.
        """
        try:
            yield
        except (CudaL1Error, RuntimeError):  # PyTorch's are of the second kind
            self.require_working()
            raise

    def require_working(self) -> None:
        """Have it compute one sum.

        Raises:
            DeviceLostError: it does not, for this process at least: it fell off the bus, say.
        """
        if self.device_class is not DeviceClass.CUDA:
            return
        import torch

        try:
            is_right = torch.ones(2, device=self.torch_name).sum().item() == 2.0
            said = "it computes wrong sums"
        except RuntimeError as error:
            if lacks_memory(f"{type(error).__name__}: {error}"):
                return  # somebody has it all, and it works
            is_right, said = False, str(error).partition("\n")[0]
        if not is_right:
            raise DeviceLostError(
                f"device {self.kind} {self.id} computes no more ({said}): "
                "look at nvidia-smi and dmesg, and reset it or restart the machine"
            )


def num_lanes_of(device: Device) -> int:
    """How many judges take turns on a device."""
    return max(1, len(device.lane_cores))


def find_device(device_class: DeviceClass) -> Device:
    """The machine's first device of that class.

    Raises:
        DeviceError: there is none.
    """
    return find_devices(device_class)[0]


def find_devices(device_class: DeviceClass) -> list[Device]:
    """All devices of that class that this process may use; each GPU has a core of its own.

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
    """Cores for the workers of each device's judges, from the last one downwards.

    The first cores serve everything else: a judge for each of them, and what compiles.
    """
    wanted = (len(cores) // num_devices - CORES_BESIDE) // CORES_OF_A_LANE
    each = max(1, min(MAX_LANES, wanted))
    if len(cores) <= each * num_devices:
        return [()] * num_devices
    taken = cores[: -1 - each * num_devices : -1]
    return [tuple(taken[first : first + each]) for first in range(0, len(taken), each)]


def _node(uuid: str) -> str | None:
    """The name in /dev of a GPU, by what the driver says of each."""
    for path in GPUS.glob("*/information"):
        with contextlib.suppress(OSError):
            told = dict(re.findall(r"^(.+?):[ \t]*(.*?)[ \t]*$", path.read_text(), re.MULTILINE))
            if told.get("GPU UUID") == f"GPU-{uuid}" and "Device Minor" in told:
                return f"nvidia{told['Device Minor']}"
    return None


def _arch(index: int) -> str:
    """As PyTorch chooses it where nothing is said: the GPU's, but none that it does not know."""
    import torch

    known = [re.findall(r"sm_(\d+)(\d)", arch) for arch in torch.cuda.get_arch_list()]
    newest = max((int(major), int(minor)) for found in known for major, minor in found)
    return "{}.{}+PTX".format(*min(newest, torch.cuda.get_device_capability(index)))


def _driver() -> str | None:
    """Its version; asked of a file, so that no library is needed."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?([0-9]+\.[0-9.]+)", text)
    return found[1] if found else None
