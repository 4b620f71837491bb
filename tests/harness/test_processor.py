"""What is waited for a core is counted by the kernel, and told of one process and of ourselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from cudal1.harness.processor import waiting

BUSY = (
    "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile 1: pass"
)
LONG_NS = 5_000_000
LIMIT_S = 60.0


@pytest.fixture
def core() -> Iterator[int]:
    """The only one that this thread may use meanwhile."""
    before = os.sched_getaffinity(0)
    core = min(before)
    os.sched_setaffinity(0, {core})
    yield core
    os.sched_setaffinity(0, before)


@pytest.fixture
def rival(core: int) -> Iterator[int]:
    """A process that computes on the same core."""
    with subprocess.Popen([sys.executable, "-c", BUSY, str(core)], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        yield busy.pid
        busy.kill()


@pytest.mark.parametrize("asks_for_rival", [False, True])
def test_who_competes_for_a_core_waits(rival: int, asks_for_rival: bool) -> None:
    deadline = time.monotonic() + LIMIT_S
    total_ns = 0
    while total_ns < LONG_NS:
        assert time.monotonic() < deadline
        with waiting(rival if asks_for_rival else None) as waited:
            until = time.thread_time_ns() + LONG_NS
            while time.thread_time_ns() < until:
                pass
        total_ns += waited.ns


def test_who_sleeps_does_not_wait() -> None:
    with waiting(None) as waited:
        time.sleep(0.2)
    assert waited.ns < 0.1e9


def test_a_process_that_has_gone_waits_no_longer() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended, waiting(ended.pid):
        ended.wait()
    with waiting(ended.pid) as waited:
        pass
    assert waited.ns >= 0
