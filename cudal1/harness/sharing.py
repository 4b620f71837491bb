"""Which devices judge while a policy trains, and whether they do so beside it or in turn.

A device that measures does nothing else at that moment. So GPUs that the policy does not use judge
beside it, and where there are none the two take turns. On a CPU the device is one core: it judges
beside a policy that has enough of the others, which then keeps off that core and the judge's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cudal1.harness.device import Device, find_devices
from cudal1.problem import DeviceClass

LEAST_CORES = 2
"""A policy on a CPU does not give up cores for less."""


@dataclass(frozen=True)
class Sharing:
    """Who works where."""

    devices: tuple[Device, ...]
    """Those that judge."""
    num_policies: int
    """Devices that the policy works on."""
    is_beside: bool
    """Verdicts come while the policy works; else they wait until it is done."""
    policy_cores: frozenset[int]
    """Those that the policy's process may use meanwhile."""
    judge_cores: frozenset[int]
    """Those that the judges' processes may use."""

    @property
    def num_devices(self) -> int:
        """All that are in use."""
        judging = len(self.devices)
        return judging + self.num_policies if self.is_beside else max(judging, self.num_policies)


def sharing(device_class: DeviceClass, *, num_policies: int) -> Sharing:
    """How this machine is shared with a policy that so many processes work on.

    They take the last GPUs, one each (`cudal1.train.group`, `cudal1.train.policy`). Judges are of
    one kind: rewards of one group come from equal devices.

    Raises:
        DeviceError: there is no such device.
    """
    devices, cores = find_devices(device_class), frozenset(os.sched_getaffinity(0))
    reserved = frozenset(core for device in devices for core in device.reserved_cores)
    if device_class is DeviceClass.CUDA:
        free = devices[: max(0, len(devices) - num_policies)]
        judges = tuple(each for each in free or devices if each.kind == devices[0].kind)
        policy_cores = (cores - reserved) if free else cores
        return Sharing(judges, num_policies, bool(free), policy_cores, cores)
    judge_cores = reserved | frozenset(sorted(cores - reserved)[-1:])
    # processes of their own would not keep off the judges' cores
    if num_policies == 1 and len(cores - judge_cores) >= LEAST_CORES:
        return Sharing(tuple(devices), 1, True, cores - judge_cores, judge_cores)
    return Sharing(tuple(devices), 1, False, cores, cores)


@contextmanager
def keeping_to(cores: frozenset[int]) -> Iterator[None]:
    """Have all threads of this process, and those that they start, stay on some cores."""
    import torch

    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    _move(cores)
    torch.set_num_threads(min(threads, len(cores)))
    try:
        yield
    finally:
        _move(before)
        torch.set_num_threads(threads)


def _move(cores: frozenset[int] | set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:
            continue  # it has just ended
