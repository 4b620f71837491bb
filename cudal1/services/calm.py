"""Settings of this process with which small models run fast on a shared CPU."""

from __future__ import annotations

import ctypes
import gc
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameter numbers of glibc's malloc.h."""
MIN_GARBAGE = 10_000
"""New objects after which Python looks for garbage; its own default is 700."""


def calm_the_machine() -> None:
    """Change settings that make small models run several times slower on a shared CPU.

    OpenMP's threads otherwise spin while another process holds the core, and every large tensor is
    mapped and unmapped anew (measured: 171 against 1,330 tokens a second). Call this before torch
    is loaded.

    Python looks for garbage less often: the libraries of a training stage make a million objects
    when they are imported, and hardly any garbage (measured: 5.4 against 7.0 s of CPU time).
    """
    gc.set_threshold(MIN_GARBAGE)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # only glibc has it
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
