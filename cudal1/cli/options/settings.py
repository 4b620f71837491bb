"""The device and protocol to judge with: from options, a params.yaml, or shipped protocols.

A params.yaml is read only where an option names it.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from cudal1.cli.terminal.ending import say
from cudal1.errors import ConfigError
from cudal1.files.text_file import mode_of
from cudal1.harness.admission.admission import TIME_LIMIT_S
from cudal1.problem import DeviceClass
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass
from cudal1.settings import protocols
from cudal1.settings.params import Params

HERE = Path("params.yaml")
"""The params.yaml of the current folder. Anyone may have written it, so it is read only where it is
named."""
MAX_REFERENCE_MS = 1000.0
"""Milliseconds that a reference may take without a params.yaml: a verdict on a slower one takes
minutes."""

ParamsOption = Annotated[
    Path | None, typer.Option("--params", help="A params.yaml whose protocol and device to use")
]
DeviceOption = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option("--device", help="Default: a GPU where there is one"),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME|FILE",
        help=f"{', '.join(protocols.names())}, or a YAML file. Default: the device's",
    ),
]
PrecisionOption = Annotated[
    PrecisionClass | None, typer.Option("--precision", help="What counts as correct")
]
ContractOption = Annotated[
    Contract | None,
    typer.Option(
        "--contract",
        help="What a candidate owes: KernelBench's terms, or those of a drop-in replacement",
    ),
]
ModeOption = Annotated[
    Literal["train", "eval"] | None,
    typer.Option("--mode", help="Run modules in this mode. Default: as they are constructed"),
]
WaitOption = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a busy device"),
]


@dataclass(frozen=True)
class Settings:
    """The device, the protocol and the limits that a command judges with."""

    device_class: DeviceClass
    protocol: EvalProtocol
    name: str
    """Name of the protocol at its source."""
    max_reference_ms: float
    trial_limit_s: float = TIME_LIMIT_S
    """Seconds that the trial of one reference may take."""


def choose(
    params: Path | None,
    device: Literal["cpu", "cuda"] | None,
    protocol: str | None,
    precision: PrecisionClass | None,
    contract: Contract | None = None,
    mode: Literal["train", "eval"] | None = None,
) -> Settings:
    """Return the settings that options ask for.

    Raises:
        ConfigError: options contradict each other, or a file says what it cannot say.
    """
    _refuse_both(params, protocol)
    if params is None and device is None and protocol is None:
        note_unread()
    if params is not None:
        read = Params.load(params)
        chosen = Settings(
            DeviceClass(device or read.device),
            read.protocol,
            str(params),
            read.problems.max_reference_ms,
        )
    else:
        device_class = device_class_of(device)
        name = protocol or device_class.value
        chosen = Settings(device_class, protocols.load(name), name, MAX_REFERENCE_MS)
    asked = {
        "precision": precision,
        "contract": contract,
        "mode": None if mode is None else Mode(mode),
    }
    changes = {
        name: value
        for name, value in asked.items()
        if value not in (None, getattr(chosen.protocol, name))
    }
    if not changes:
        return chosen
    said = ", ".join(f"{value}" for value in changes.values())
    changed = chosen.protocol.model_copy(update=changes)
    return replace(chosen, protocol=changed, name=f"{chosen.name} ({said})")


def named_protocol(params: Path | None, protocol: str | None) -> EvalProtocol | None:
    """Return the protocol that options name, or None where they name none.

    Raises:
        ConfigError: options contradict each other, or a file says what it cannot say.
    """
    _refuse_both(params, protocol)
    if protocol is not None:
        return protocols.load(protocol)
    return None if params is None else Params.load(params).protocol


def note_unread() -> None:
    """Say that the params.yaml of the current folder is not read, if there is one."""
    if stat.S_ISREG(mode_of(HERE)):
        say(f"note: the {HERE} of this folder is not read; to use it, give --params {HERE}")


def _refuse_both(params: Path | None, protocol: str | None) -> None:
    if params is not None and protocol is not None:
        raise ConfigError("--params brings its own protocol: give either --params or --protocol")


def device_class_of(device: Literal["cpu", "cuda"] | None) -> DeviceClass:
    """Return the class of device that an option names; by default a GPU where there is one."""
    if device is not None:
        return DeviceClass(device)
    import torch

    return DeviceClass.CUDA if torch.cuda.is_available() else DeviceClass.CPU
