"""Allow one flow at a time in a checkout: two would want the same stages, files and device.

The lock belongs to the process, so a killed flow leaves none. DVC and the ledger guard against
commands that a person starts beside the flow: `dvc repro` refuses a stage that is running, and the
ledger refuses a second writer.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager

from prefect.runtime import deployment

from cudal1.errors import ConfigError
from tasks.server.checkout import CHECKOUT
from tasks.stage import DATA

LOCK = DATA / ".flow"
WAIT_S = 12 * 3600.0
"""Seconds that a deployment waits; at a terminal a flow fails almost at once."""
LOOK_S = 1.0


def is_attended() -> bool:
    """Return whether a person has started this flow at a terminal; False in a deployment."""
    return deployment.id is None


def is_busy() -> bool:
    """Return whether a flow is running in this checkout."""
    if not LOCK.exists():
        return False
    descriptor = os.open(LOCK, os.O_RDWR)
    try:
        return not _locks(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def workspace(flow: str) -> Generator[None]:
    """Hold this checkout for a flow; a deployment waits for another to end.

    A deployment's process starts in Prefect's home, and goes to the checkout here.

    Raises:
        ConfigError: another flow holds it; the message names it.
    """
    if not is_attended():
        os.chdir(CHECKOUT)
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + (2.0 if is_attended() else WAIT_S)
    try:
        has_said = False
        while not _locks(descriptor):
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"{flow}: flow {holder or 'of another process'} is running in this folder; "
                    "wait for it, or stop it"
                )
            if not has_said:
                print(f"{flow}: waiting for flow {holder} to end in this folder", flush=True)
                has_said = True
            time.sleep(LOOK_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{flow} (process {os.getpid()})\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
