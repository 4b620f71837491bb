"""The doctor's findings as tables that a person reads in a terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from cudal1.services.doctor import Health, KeptFinding


def tables(health: Health) -> list[Table]:
    """Return the layers around a worker, then its devices and versions."""
    layers = Table("", "layer", "keeps out", "missing? then", box=None, pad_edge=False)
    for layer in sorted(health.layers, key=lambda layer: not layer.is_active):
        needed = any(layer.name in group.split(" or ") for group in health.missing)
        sign = "yes" if layer.is_active else "NO" if needed else "no"
        layers.add_row(sign, layer.name, escape(layer.keeps_out), escape(layer.remedy or ""))
    machine = Table("", "", box=None, pad_edge=False, show_header=False)
    for devices in health.devices:
        told = "; ".join(devices.found) or devices.problem or ""
        machine.add_row(devices.device_class.value, escape(told))
    machine.add_row("references", escape(references(health.references)))
    for name, version in health.versions.items():
        machine.add_row(name, escape(version))
    return [layers, machine]


def references(kept: KeptFinding) -> str:
    """Return a sentence about the kept records of references, and their folder."""
    if kept.folder is None:
        return "nothing is kept of them: there is no HOME"
    said = f"{kept.num_records} records, {kept.num_bytes / 1000:.0f} kB, in {kept.folder}"
    return f"{said}; --forget-references removes them" if kept.num_records else said
