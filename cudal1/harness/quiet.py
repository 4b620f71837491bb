"""The judge's own process: undisturbed while it judges, and unreadable for others.

The process that judges may be one that also trains. So its core, its threads and its random
numbers are borrowed for one verdict at a time and given back as they were.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from cudal1.harness.device import Device

PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4


@contextmanager
def undisturbed(device: Device) -> Iterator[None]:
    """One thread, off the core where bursts run; torch's generator is afterwards as before.

    Without the last, a seed of ours would steer somebody's training.
    """
    import torch

    threads, generator = torch.get_num_threads(), torch.get_rng_state()
    cores = os.sched_getaffinity(0)
    torch.set_num_threads(1)
    others = cores - {device.worker_core}
    if others:
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
        torch.set_rng_state(generator)


@contextmanager
def unreadable() -> Iterator[None]:
    """Nobody but root may read this process's memory, not even one of the same user."""
    libc = ctypes.CDLL(None)
    before = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_DUMPABLE, before, 0, 0, 0)
