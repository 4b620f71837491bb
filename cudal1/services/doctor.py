"""Find the layers around a worker on this machine by starting one.

Threat: a layer that is believed to hold. Nothing here is concluded from versions: a worker that
runs our own code reports, before it would run a third party's code, what it could take.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

from cudal1 import processes
from cudal1.errors import DeviceError
from cudal1.harness.admission import known_references
from cudal1.harness.builds import toolchain
from cudal1.harness.device.device import Device, find_devices
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.sandbox.layers import LAYERS, MINIMUM, missing
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.shared import places
from cudal1.harness.shared.wire import Job, Layout
from cudal1.problem import DeviceClass
from cudal1.protocol import HARNESS_VERSION
from cudal1.record import Record

MEMORY_BYTES = 1 << 30


class LayerFinding(Record):
    """A layer on this machine."""

    name: str
    is_active: bool
    keeps_out: str
    remedy: str | None
    """The remedy; None when the layer is active."""


class DeviceFinding(Record):
    """The devices of one class."""

    device_class: DeviceClass
    found: tuple[str, ...]
    """Kind and id of each device."""
    problem: str | None
    """The reason for having no device, in one line."""


class KeptFinding(Record):
    """The state of references that are kept for later runs of this user."""

    folder: str | None
    """None if there is no HOME, so that nothing is kept."""
    num_records: int
    num_bytes: int


class Health(Record):
    """The facts that a person needs before trusting verdicts of this machine."""

    layers: tuple[LayerFinding, ...]
    missing: tuple[str, ...]
    """Groups of the minimum without an active layer; judging is refused while there are any."""
    devices: tuple[DeviceFinding, ...]
    references: KeptFinding
    versions: dict[str, str]

    @property
    def is_fit(self) -> bool:
        """Return whether the minimum holds."""
        return not self.missing


def examine(device: Device) -> Health:
    """Start one worker for the device that runs nothing, and report what stands around it.

    Raises:
        WorkerError: none can be started.
    """
    active = _layers_on(device)
    return Health(
        layers=tuple(
            LayerFinding(
                name=name,
                is_active=name in active,
                keeps_out=layer.keeps_out,
                remedy=None if name in active else layer.remedy,
            )
            for name, layer in LAYERS.items()
        ),
        missing=tuple(missing(active, MINIMUM)),
        devices=tuple(_devices_of(device_class) for device_class in DeviceClass),
        references=kept_references(),
        versions=_versions(),
    )


def kept_references() -> KeptFinding:
    """Report the references that are kept."""
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
        ring = BurstRunner(layout, torch.device(device.torch_name)).make_ring([])
        job = Job(
            entry="",
            init_inputs="[]",
            weight_names=(),
            layout=layout,
            seed=0,
            memory_bytes=MEMORY_BYTES,
            cpu_s=None,
            core=device.worker_core,
            folder="",
            device=device.device_class.value,
            ring_bytes=ring.num_bytes,
            allow_tf32=False,
        )
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
