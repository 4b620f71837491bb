"""Starting the process that forks workers fails in time, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator

import psutil
import pytest

from cudal1.errors import WorkerError
from cudal1.harness import find_device
from cudal1.harness import launch as launching
from cudal1.harness.launch import launch
from cudal1.problem import DeviceClass

LIMITS_S, AT_ONCE_S = (2.0, 20.0, 100.0), 200.0
"""Within the shorter ones a busy machine may not even begin to start the interpreter."""


def _started(before: Collection[psutil.Process]) -> list[psutil.Process]:
    """Interpreters that are to fork workers, begun by this process since then.

    Other tests have theirs, which are none of our business.
    """
    found: list[psutil.Process] = []
    for mine in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            theirs = [] if mine in before else mine.children(recursive=True)
            found += [each for each in theirs if "cudal1.harness.worker.zygote" in each.cmdline()]
    return found


@contextlib.contextmanager
def _all_stopped() -> Iterator[list[psutil.Process]]:
    """Stop each as soon as it is there, before it has imported anything."""
    before = psutil.Process().children()
    stopped: list[psutil.Process] = []
    is_over = threading.Event()

    def stop() -> None:
        while not is_over.wait(0.01):
            for each in _started(before):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if each not in stopped:
                        each.suspend()
                        stopped.append(each)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield stopped
    finally:
        is_over.set()
        thread.join()


def test_one_that_hangs_at_its_start_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[WorkerError] = []

    def tried() -> None:
        with pytest.raises(WorkerError, match="did not start") as caught:
            launch(find_device(DeviceClass.CPU))
        said.append(caught.value)

    for limit_s in LIMITS_S:
        monkeypatch.setattr(launching, "START_LIMIT_S", limit_s)
        said.clear()
        with _all_stopped() as stopped:
            thread = threading.Thread(target=tried, daemon=True)
            thread.start()
            thread.join(AT_ONCE_S)
            _, alive = psutil.wait_procs(stopped, timeout=AT_ONCE_S)
            for each in alive:
                each.kill()
        assert said
        assert not alive
        if stopped:
            return
    pytest.fail("no interpreter was started")
