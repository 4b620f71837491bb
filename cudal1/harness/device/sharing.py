"""Decide which devices judge while a policy trains, and whether beside it or in turn with it.

A device that measures does nothing else at that moment. So GPUs that the policy does not use judge
beside it. Where there are none, judge and policy take turns. On a CPU the device is one core: it
judges beside a policy that has enough of the other cores. The policy then keeps off that core and
the judge's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cudal1.harness.device.device import Device, find_devices
from cudal1.problem import DeviceClass

LEAST_CORES = 2
"""Fewest cores that a policy on a CPU must keep; with fewer left, judge and policy take turns."""


@dataclass(frozen=True)
class Sharing:
    """A division of the machine's devices and cores between judges and policy."""

    devices: tuple[Device, ...]
    """The devices that judge."""
    num_policies: int
    """Number of devices that the policy works on."""
    is_beside: bool
    """True if verdicts come while the policy works; otherwise they wait until it is done."""
    policy_cores: frozenset[int]
    """Cores that the policy's process may use meanwhile."""
    judge_cores: frozenset[int]
    """Cores that the judges' processes may use."""

    @property
    def num_devices(self) -> int:
        """The number of devices in use."""
        judging = len(self.devices)
        return judging + self.num_policies if self.is_beside else max(judging, self.num_policies)


def sharing(device_class: DeviceClass, *, num_policies: int) -> Sharing:
    """Return how this machine is shared with a policy that so many processes work on.

    The policy's processes take the last GPUs, one each (`cudal1.train.group.group`,
    `cudal1.train.policy`). Devices that judge are of one kind: rewards of one group come from equal
    devices.

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
    # several policy processes would not keep off the judges' cores
    if num_policies == 1 and len(cores - judge_cores) >= LEAST_CORES:
        return Sharing(tuple(devices), 1, True, cores - judge_cores, judge_cores)
    return Sharing(tuple(devices), 1, False, cores, cores)


@contextmanager
def keeping_to(cores: frozenset[int]) -> Iterator[None]:
    """Keep all threads of this process, and those that they start, on some cores."""
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
            continue  # the thread has just ended
