"""What stands around a worker on this machine, found out by starting one.

Threat: a layer that is believed to hold. Nothing here is concluded from versions: a worker that
runs our own code says, before it would run anybody's, what it could take.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

from cudal1 import processes
from cudal1.errors import DeviceError
from cudal1.harness import known_references, places, toolchain
from cudal1.harness.burst import Desk
from cudal1.harness.device import Device, find_devices
from cudal1.harness.layers import LAYERS, MINIMUM, missing
from cudal1.harness.wire import Job, Layout
from cudal1.harness.zygote import Zygote
from cudal1.problem import DeviceClass
from cudal1.protocol import HARNESS_VERSION
from cudal1.record import Record

MEMORY_BYTES = 1 << 30


class LayerFinding(Record):
    """One layer on this machine."""

    name: str
    is_active: bool
    keeps_out: str
    remedy: str | None
    """What to do about it; None when it is active."""


class DeviceFinding(Record):
    """The devices of one class."""

    device_class: DeviceClass
    found: tuple[str, ...]
    """Kind and id of each."""
    problem: str | None
    """Why there is none, in one line."""


class KeptFinding(Record):
    """What was found of references, kept for later runs of this user."""

    folder: str | None
    """None: there is no HOME, so nothing is kept."""
    num_records: int
    num_bytes: int


class Health(Record):
    """What a person needs to know before trusting verdicts of this machine."""

    layers: tuple[LayerFinding, ...]
    missing: tuple[str, ...]
    """Groups of the minimum of which no layer is active: judging is refused while there are any."""
    devices: tuple[DeviceFinding, ...]
    references: KeptFinding
    versions: dict[str, str]

    @property
    def is_fit(self) -> bool:
        """Whether the minimum holds."""
        return not self.missing


def examine(device: Device) -> Health:
    """Start one worker for the device that runs nothing, and look at what stands around it.

    Raises:
        WorkerError: none can be started.
    """
    active = _layers_on(device)
    return Health(
        layers=tuple(
            LayerFinding(
                name=name, is_active=name in active, keeps_out=layer.keeps_out,
                remedy=None if name in active else layer.remedy,
            )
            for name, layer in LAYERS.items()
        ),
        missing=tuple(missing(active, MINIMUM)),
        devices=tuple(_devices_of(device_class) for device_class in DeviceClass),
        references=kept_references(),
        versions=_versions(),
    )  # fmt: skip


def kept_references() -> KeptFinding:
    """Look at what is kept of references."""
    known = known_references.of_this_user()
    if known is None:
        return KeptFinding(folder=None, num_records=0, num_bytes=0)
    size = known.size()
    return KeptFinding(
        folder=str(known.folder), num_records=size.num_records, num_bytes=size.num_bytes
    )


def _layers_on(device: Device) -> tuple[str, ...]:
    import torch

    layout = Layout((), (), (), 1)
    zygote = Zygote(device, minimum=())
    try:
        ring = Desk(layout, torch.device(device.torch_name)).make_ring([])
        job = Job(
            entry="", init_inputs="[]", weight_names=(), layout=layout, seed=0,
            memory_bytes=MEMORY_BYTES, cpu_s=None, core=device.worker_core, folder="",
            device=device.device_class.value, ring_bytes=ring.num_bytes, allow_tf32=False,
        )  # fmt: skip
        with zygote.start(job, ring, "") as worker:
            return worker.layers
    finally:
        zygote.close()


def _devices_of(device_class: DeviceClass) -> DeviceFinding:
    try:
        devices = find_devices(device_class)
    except DeviceError as error:
        return DeviceFinding(device_class=device_class, found=(), problem=str(error))
    found = tuple(f"{device.kind} ({device.id})" for device in devices)
    return DeviceFinding(device_class=device_class, found=found, problem=None)


def _versions() -> dict[str, str]:
    import torch

    bwrap = shutil.which("bwrap", path=places.PATH)
    said = (
        subprocess.run(
            [bwrap, "--version"],
            env=processes.sparse(),
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        if bwrap
        else ""
    )
    return {
        "harness": HARNESS_VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "kernel": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "bubblewrap": said.removeprefix("bubblewrap").strip() or "none",
        "interpreter": sys.executable,
        **{name: toolchain.where(name) or "none" for name in toolchain.PROGRAMS},
        toolchain.CUPY: toolchain.where_cupy() or "none; only candidates that import it need it",
    }
