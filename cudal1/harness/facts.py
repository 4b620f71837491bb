"""What prompts may say of the device that candidates are judged on."""

from __future__ import annotations

import platform
from importlib.metadata import version

from cudal1.harness.device import Device
from cudal1.problem import DeviceClass
from cudal1.prompt import DeviceFacts


def facts_of(device: Device) -> DeviceFacts:
    """Facts that a minor update of the machine leaves alone.

    A prompt that changes is a new one, and whoever charges for answers charges again.
    """
    torch_version = ".".join(version("torch").split("+")[0].split(".")[:2])
    if device.device_class is not DeviceClass.CUDA:
        return DeviceFacts(
            device=device.kind, architecture=platform.machine(), memory="no memory of its own",
            cuda_version="none", torch_version=torch_version,
        )  # fmt: skip
    import torch

    properties = torch.cuda.get_device_properties(device.index)
    return DeviceFacts(
        device=device.kind, architecture=f"sm_{properties.major}{properties.minor}",
        memory=f"{properties.total_memory / 2**30:.0f} GiB",
        cuda_version=torch.version.cuda or "none", torch_version=torch_version,
    )  # fmt: skip
