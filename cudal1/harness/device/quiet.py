"""Keep the judge's own process undisturbed while it judges, and unreadable for others.

The process that judges may also train. So its core, its threads and its random numbers are borrowed
for one verdict at a time and given back as they were.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from cudal1.harness.device.device import Device
from cudal1.harness.shared.seeding import kept_others
from cudal1.problem import DeviceClass

PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4

libc = ctypes.CDLL(None)


@contextmanager
def undisturbed(device: Device) -> Iterator[None]:
    """Run one thread in full precision, off the cores of bursts; restore all settings afterwards.

    If random states were not restored, a seed of the judge would steer the training of a policy.
    Answers are never computed in TF32, which PyTorch's convolutions use unless told otherwise.
    """
    # imported for its effect: PyTorch swallows a Ctrl-C in its own import of NumPy, and goes on
    # without it
    import numpy  # noqa: F401
    import torch

    threads, generator = torch.get_num_threads(), torch.get_rng_state()
    on_gpu = device.device_class is DeviceClass.CUDA
    gpu_generator = torch.cuda.get_rng_state(device.index) if on_gpu else None
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    cores = os.sched_getaffinity(0)
    torch.set_num_threads(1)
    if others := judging_cores(device, cores):
        os.sched_setaffinity(0, others)
    try:
        with kept_others(), torch.cuda.device(device.index) if on_gpu else nullcontext():
            yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
        torch.set_rng_state(generator)
        if gpu_generator is not None:
            torch.cuda.set_rng_state(gpu_generator, device.index)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32


def judging_cores(device: Device, cores: set[int]) -> set[int]:
    """Return the cores among some on which a judge of the device runs: none of the workers'.

    Where several judges take turns, they have one each beside those. Compilers keep off these cores
    (`builds.builder`): a judge that times beside one would lose its core for milliseconds.
    """
    others = sorted(cores - set(device.reserved_cores))
    return set(others[: len(device.reserved_cores)] if device.lane_cores else others)


def timing_core(device: Device, cores: set[int]) -> int | None:
    """Return the core among some on which a judge of the device times; None where they are few.

    The last ones are taken first: the machine's first core often serves interrupts.
    """
    others = sorted(judging_cores(device, cores), reverse=True)
    return others[device.index] if device.index < len(others) else None


@contextmanager
def staying(device: Device) -> Iterator[None]:
    """Keep this thread on its core: on another core a burst seems up to 60 us longer.

    The kernel has chosen the core, and may choose another core the next time. Where several judges
    take turns on a GPU, the one that times has the GPU's own core, which no compiler ever has. A
    candidate that is being built could else slow the judge down while a reference is timed.
    """
    cores = os.sched_getaffinity(0)
    own = timing_core(device, cores) if device.lane_cores else libc.sched_getcpu()
    os.sched_setaffinity(0, {own} if own in cores else cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: in a process that trains, a collection outlasts a burst."""
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


@contextmanager
def unreadable() -> Iterator[None]:
    """Let only root read this process's memory, and no other process of the same user."""
    before = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_DUMPABLE, before, 0, 0, 0)
