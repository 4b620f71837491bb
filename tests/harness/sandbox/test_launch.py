"""A zygote that does not start fails in time and leaves nothing behind."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from typing import Any

import psutil
import pytest

from cudal1.errors import WorkerError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.sandbox import launch as launching
from cudal1.harness.sandbox.launch import launch
from cudal1.problem import DeviceClass

LIMITS_S, AT_ONCE_S = (2.0, 20.0, 100.0), 200.0
"""Limits of a start, and of its end, in seconds.

Within the shorter limits a busy machine may not even begin to start the interpreter.
"""


def _started(before: Collection[psutil.Process]) -> list[psutil.Process]:
    """Return the zygotes that this process has started since `before` was listed.

    Zygotes of other tests are left out.
    """
    found: list[psutil.Process] = []
    for mine in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            theirs = [] if mine in before else mine.children(recursive=True)
            found += [each for each in theirs if "cudal1.harness.worker.zygote" in each.cmdline()]
    return found


@contextlib.contextmanager
def _all_stopped() -> Iterator[list[psutil.Process]]:
    """Stop each new zygote as soon as it is there, before it has imported anything."""
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


@pytest.mark.slow
def test_a_zygote_that_hangs_at_its_start_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
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


# --- inside bubblewrap or not --------------------------------------------------------------------

BOTH, NONE = ("own_pids", "own_network"), ()


class Played:
    """A zygote inside bubblewrap or not, with given layers, which comes up or does not."""

    made: list[Played]
    inside: tuple[tuple[str, ...], bool]
    outside: tuple[tuple[str, ...], bool]

    def __init__(self, _device: Device, *, wrapped: bool, compilers: bool) -> None:
        assert not compilers
        self.is_wrapped, self.is_killed, self.is_awaited = wrapped, False, False
        self.layers, self._comes_up = self.inside if wrapped else self.outside
        self.made.append(self)

    def is_up(self) -> bool:
        self.is_awaited = True
        return self._comes_up

    def kill(self) -> None:
        self.is_killed = True


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[Played]:
    monkeypatch.setattr(launching, "Source", Played)
    Played.made = []
    return Played


def test_a_zygote_that_can_make_no_namespaces_is_given_up_before_its_imports(
    played: type[Played],
) -> None:
    played.inside, played.outside = (NONE, True), (BOTH, True)
    launched: Any = launch(find_device(DeviceClass.CPU))
    inside, outside = played.made
    assert launched is outside
    assert (inside.is_awaited, inside.is_killed) == (False, True)
    assert (outside.is_awaited, outside.is_killed) == (True, False)


@pytest.mark.parametrize(
    ("inside", "outside", "is_wrapped"),
    [
        ((BOTH, True), (BOTH, True), True),
        ((BOTH, False), (BOTH, True), False),
        ((NONE, True), (NONE, True), True),
        ((NONE, False), (NONE, True), False),
    ],
    ids=["best", "does not come up", "no better outside", "neither, and does not come up"],
)
def test_a_zygote_is_inside_bubblewrap_unless_its_workers_lose_layers_there(
    played: type[Played],
    inside: tuple[tuple[str, ...], bool],
    outside: tuple[tuple[str, ...], bool],
    is_wrapped: bool,
) -> None:
    played.inside, played.outside = inside, outside
    launched: Any = launch(find_device(DeviceClass.CPU))
    assert launched.is_wrapped is is_wrapped
    assert [each.is_killed for each in played.made] == [
        each is not launched for each in played.made
    ]
