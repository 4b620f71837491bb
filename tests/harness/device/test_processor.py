"""The kernel counts the time for which a process waits for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from cudal1.harness.device.processor import waiting

BUSY = (
    "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile 1: pass"
)
LONG_NS = 5_000_000
LIMIT_S = 60.0


@pytest.fixture
def core() -> Iterator[int]:
    """The only core that this thread may use meanwhile."""
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


@pytest.mark.parametrize("whose", ["own", "rival"])
def test_a_process_that_competes_for_a_core_waits(rival: int, whose: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    total_ns = 0
    while total_ns < LONG_NS:
        assert time.monotonic() < deadline
        with waiting(rival if whose == "rival" else os.getpid()) as waited:
            until = time.thread_time_ns() + LONG_NS
            while time.thread_time_ns() < until:
                pass
        total_ns += waited.ns


def test_a_process_that_sleeps_does_not_wait() -> None:
    with subprocess.Popen(["sleep", "100"]) as asleep:
        time.sleep(0.1)  # until it sleeps
        with waiting(asleep.pid) as waited:
            time.sleep(0.2)
        asleep.kill()
    assert waited.ns == 0


def test_the_wait_of_no_process_is_zero() -> None:
    with waiting(None) as waited:
        pass
    assert waited.ns == 0


def test_a_process_that_has_ended_can_be_asked() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended, waiting(ended.pid):
        ended.wait()
    with waiting(ended.pid) as waited:
        pass
    assert waited.ns >= 0
