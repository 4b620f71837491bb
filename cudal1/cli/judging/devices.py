"""Open the devices that a command judges on, here or on a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cudal1.problem import DeviceClass

if TYPE_CHECKING:
    from cudal1.harness.schedule.device_processes import DeviceProcess


@contextmanager
def devices_of_one_kind(
    cluster: str | None, device_class: DeviceClass
) -> Iterator[tuple[list[DeviceProcess], list[str]]]:
    """Yield devices of the most common kind, and a line on each that is left out.

    The devices are of one kind, since verdicts are compared within one.
    """
    from cudal1.harness.cluster.cluster import processes_on_cluster
    from cudal1.harness.device.device import find_devices
    from cudal1.harness.schedule import assignment
    from cudal1.harness.schedule.device_processes import processes_found_here

    with ExitStack() as opening:
        if cluster is None:
            find = partial(find_devices, device_class)
            device_processes, left_out = opening.enter_context(processes_found_here(find)), []
        else:
            device_processes, left_out = opening.enter_context(
                processes_on_cluster(cluster, device_class)
            )
        kinds = Counter(sorted(device_process.device.kind for device_process in device_processes))
        kind = kinds.most_common(1)[0][0]
        others = [
            f"{device_process}: not of kind {kind}"
            for device_process in device_processes
            if device_process.device.kind != kind
        ]
        chosen = [
            device_process
            for device_process in device_processes
            if device_process.device.kind == kind
        ]
        for device_process in chosen if cluster is None else ():  # while problems are read
            device_process.process.submit(assignment.begin_zygote, device_process.device)
        yield chosen, left_out + others
