"""Collect the facts that prompts state of the device on which candidates are judged."""

from __future__ import annotations

import platform
from importlib.metadata import version

from cudal1.harness.device.device import Device
from cudal1.problem import DeviceClass
from cudal1.prompts.prompt import DeviceFacts


def facts_of(device: Device) -> DeviceFacts:
    """Return facts that a minor update of the machine leaves alone.

    A changed prompt is a new prompt, and a provider that charges for answers charges again.
    """
    torch_version = ".".join(version("torch").split("+")[0].split(".")[:2])
    if device.device_class is not DeviceClass.CUDA:
        return DeviceFacts(
            device=device.kind,
            architecture=platform.machine(),
            memory="no memory of its own",
            cuda_version="none",
            torch_version=torch_version,
        )
    import torch

    properties = torch.cuda.get_device_properties(device.index)
    return DeviceFacts(
        device=device.kind,
        architecture=f"sm_{properties.major}{properties.minor}",
        memory=f"{properties.total_memory / 2**30:.0f} GiB",
        cuda_version=torch.version.cuda or "none",
        torch_version=torch_version,
    )
