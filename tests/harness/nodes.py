"""Two nodes of a Ray cluster on one machine, told apart."""

from __future__ import annotations

from typing import Any

from cudal1.harness import Device, find_device
from cudal1.harness.seats import Seat
from cudal1.problem import DeviceClass


def find_on_node(device_class: DeviceClass) -> list[Device]:
    """On one machine both nodes have the same device; the name of the node tells them apart."""
    import ray

    cpu = find_device(device_class)
    node = ray.get_runtime_context().get_node_id()
    return [cpu.model_copy(update={"id": f"{cpu.id}-{node}"})]


def node_of(cluster: Any, seat: Seat) -> Any:
    """The node that a seat is on."""
    (node,) = [n for n in cluster.list_all_nodes() if seat.device.id.endswith(n.node_id)]
    return node
