"""Two nodes of a Ray cluster on one machine, told apart by the ids of their devices."""

from __future__ import annotations

from typing import Any

from cudal1.harness.device.device import Device, find_device
from cudal1.harness.schedule.device_processes import DeviceProcess
from cudal1.problem import DeviceClass


def find_on_node(device_class: DeviceClass) -> list[Device]:
    """Return this machine's device with the id of the Ray node in its own id.

    On one machine both nodes have the same device.
    """
    import ray

    cpu = find_device(device_class)
    node = ray.get_runtime_context().get_node_id()
    return [cpu.model_copy(update={"id": f"{cpu.id}-{node}"})]


def node_of(cluster: Any, device_process: DeviceProcess) -> Any:
    """Return the node that a device process is on."""
    (node,) = [n for n in cluster.list_all_nodes() if device_process.device.id.endswith(n.node_id)]
    return node
