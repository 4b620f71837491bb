"""The fake asynchronous device behaves as a GPU does where hacks care."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from cudal1.harness.worker import fake

COST_US = 20_000.0
NUM_TRIES = 50
"""Tries, of which one must succeed: another process may have the core meanwhile."""


@pytest.fixture
def started() -> Iterator[None]:
    fake.start()
    yield
    fake._state.is_started = False
    fake._state.failure = None


def _add(out: torch.Tensor, x: torch.Tensor) -> None:
    torch.add(x, 1.0, out=out)


@pytest.mark.slow
def test_a_launch_before_the_start_has_run_when_it_returns_and_starts_no_thread() -> None:
    code = (
        "import threading, torch\nfrom cudal1.harness.worker import fake\n"
        "out = fake.empty((4,))\nfake.launch(out.fill_, 3.0, cost_us=1e9)\n"
        "fake.synchronize()\nprint(out.tolist() == [3.0] * 4, threading.active_count())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "1"]


@pytest.mark.usefixtures("started")
def test_a_launch_returns_before_its_work_is_done_and_a_synchronisation_after() -> None:
    out, x, go_on = fake.empty((4,)).zero_(), torch.ones(4), threading.Event()
    began = time.perf_counter()
    fake.launch(go_on.wait)
    fake.launch(_add, out, x, cost_us=COST_US)
    assert out.tolist() == [0.0] * 4
    go_on.set()
    fake.synchronize()
    assert out.tolist() == [2.0] * 4
    assert time.perf_counter() - began >= COST_US * 1e-6


@pytest.mark.usefixtures("started")
def test_one_stream_keeps_its_order() -> None:
    done: list[int] = []
    for number in range(20):
        fake.launch(done.append, number, cost_us=float(100 * (number % 3)))
    fake.synchronize()
    assert done == list(range(20))


@pytest.mark.usefixtures("started")
def test_the_default_stream_waits_for_another_only_if_it_is_told_to() -> None:
    side, out = fake.Stream(), fake.empty((4,)).zero_()
    early, late, go_on = fake.empty((4,)), fake.empty((4,)), threading.Event()
    fake.launch(go_on.wait, stream=side)
    fake.launch(out.fill_, 5.0, stream=side)
    fake.copy(early, out)
    fake.default_stream.synchronize()
    go_on.set()
    fake.default_stream.wait_stream(side)
    fake.copy(late, out)
    fake.default_stream.synchronize()
    assert (early.tolist(), late.tolist()) == ([0.0] * 4, [5.0] * 4)


@pytest.mark.usefixtures("started")
def test_events_see_the_work_of_their_own_stream_alone() -> None:
    def time_of(stream: fake.Stream) -> float:
        first, last = fake.Event(), fake.Event()
        first.record()
        fake.launch(time.sleep, 0.0, stream=stream, cost_us=COST_US)
        last.record()
        last.synchronize()
        return first.elapsed_time(last)

    assert time_of(fake.default_stream) >= COST_US / 1000
    side = fake.Stream()
    assert any(5 * time_of(side) < COST_US / 1000 for _ in range(NUM_TRIES))


@pytest.mark.usefixtures("started")
def test_kernels_of_two_streams_overlap() -> None:
    streams = [fake.Stream(), fake.Stream()]

    def time_s() -> float:
        began = time.perf_counter()
        for stream in streams:
            for _ in range(3):
                fake.launch(time.sleep, 0.0, stream=stream, cost_us=COST_US)
        fake.synchronize()
        return time.perf_counter() - began

    def is_fast() -> bool:
        took_s = time_s()
        assert took_s >= 3 * COST_US * 1e-6
        return took_s < 5 * COST_US * 1e-6  # one after the other they take six in every try

    assert any(is_fast() for _ in range(NUM_TRIES))


def test_fresh_memory_holds_the_bytes_of_the_last_freed_tensor_of_its_size() -> None:
    shape = (3, 7)
    first, second = fake.empty(shape).fill_(1.0), fake.empty(shape).fill_(2.0)
    view = first[0]
    del first
    assert fake.empty(shape).tolist() == torch.zeros(shape).tolist()  # still held by its view
    del second, view
    assert fake.empty(shape).unique().tolist() == [1.0]


def test_a_tensor_of_another_size_gets_no_bytes_of_a_freed_one() -> None:
    freed = fake.empty((3, 11)).fill_(1.0)
    del freed
    assert fake.empty((3, 13)).unique().tolist() == [0.0]
    assert fake.empty((0, 3)).shape == (0, 3)


def test_a_launch_that_asks_for_too_much_runs_nothing_and_raises_nothing() -> None:
    out = fake.empty((4,)).zero_()
    code = fake.launch(out.fill_, 1.0, shared_bytes=fake.SHARED_LIMIT_BYTES + 256)
    assert code == fake.ERROR_TOO_MUCH_SHARED
    assert out.tolist() == [0.0] * 4
    assert fake.launch(out.fill_, 1.0, shared_bytes=fake.SHARED_LIMIT_BYTES) == 0


@pytest.mark.usefixtures("started")
def test_a_graph_replays_the_tensors_it_was_captured_with_at_one_launch() -> None:
    out, x = fake.empty((4,)).zero_(), torch.ones(4)
    with fake.capture() as graph:
        fake.launch(_add, out, x, cost_us=COST_US / 2)
        fake.launch(_add, out, out, cost_us=COST_US / 2)
    fake.synchronize()
    assert out.tolist() == [0.0] * 4
    x.fill_(10.0)
    began = time.perf_counter()
    graph.replay()
    fake.synchronize()
    assert out.tolist() == [12.0] * 4
    assert time.perf_counter() - began >= COST_US * 1e-6


@pytest.mark.usefixtures("started")
def test_a_synchronisation_raises_the_failure_of_a_kernel() -> None:
    fake.launch(torch.zeros(2).copy_, torch.zeros(3))
    with pytest.raises(RuntimeError, match="a kernel failed"):
        fake.synchronize()
