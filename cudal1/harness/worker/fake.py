"""A device that works while its caller goes on, made of threads: for tests without a GPU.

It has what asynchronous hacks need, and each of them is deterministic here: streams that order only
their own work, events that record times on a stream, launches that return at once, launches that
fail without a word, graphs that replay the addresses they captured, and memory that is handed out
with the bytes of its last owner (harness.md 7.6). A kernel may be given a cost in µs, spent asleep,
so that kernels of two streams overlap even on one core.

Until `start` is called every launch runs at once, at no cost, and no thread exists: the judge,
which runs references to know the answers, never starts it.

Threat: none of its own. It lives in the worker's process, where candidates may do with it what they
like; only references and candidates of problems for `DeviceClass.FAKE` import it.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

PR_SET_TIMERSLACK = 29
SHARED_LIMIT_BYTES = 228 * 1024
"""Shared memory that one launch may ask for, as on an H200; with more it fails and says nothing."""
ERROR_TOO_MUCH_SHARED = 1

Step = Callable[[], object]


class Stream:
    """Work in the order in which it was enqueued, beside that of other streams."""

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[Step] | None = None
        _streams.append(self)

    def enqueue(self, step: Step) -> None:
        """Have `step` run after all that was enqueued before it."""
        if not _state.is_started:
            step()
            return
        if self._steps is None:
            self._steps = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._steps,), daemon=True).start()
        self._steps.put(step)

    def wait_event(self, event: Event) -> None:
        """Let nothing that is enqueued from now on run before `event` has passed."""
        self.enqueue(event.passed.wait)

    def wait_stream(self, other: Stream) -> None:
        """Let nothing that is enqueued from now on run before all that `other` has now."""
        event = Event()
        event.record(other)
        self.wait_event(event)

    def synchronize(self) -> None:
        """Wait for all that was enqueued.

        Raises:
            RuntimeError: a kernel failed; as on a GPU, where it is first noticed.
        """
        event = Event()
        event.record(self)
        event.synchronize()


class Event:
    """A mark in a stream; knows when it was passed."""

    def __init__(self) -> None:
        self.passed = threading.Event()
        self._time_s = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Put it at the end of a stream, the default one if none is given."""
        self.passed.clear()
        (stream or default_stream).enqueue(self._pass)

    def synchronize(self) -> None:
        """Wait until it was passed."""
        self.passed.wait()
        if _state.failure is not None:
            raise RuntimeError(f"a kernel failed: {_state.failure}") from _state.failure

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds from this one to a later one."""
        return 1e3 * (later._time_s - self._time_s)

    def _pass(self) -> None:
        self._time_s = time.perf_counter()
        self.passed.set()


class Graph:
    """Launches that were captured instead of run; each replay is one launch of them all."""

    def __init__(self) -> None:
        self.kernels: list[Step] = []
        self.cost_us = 0.0

    def replay(self, stream: Stream | None = None) -> None:
        """Run them again, on the very tensors that they were captured with."""
        launch(self._run, stream=stream, cost_us=self.cost_us)

    def _run(self) -> None:
        for kernel in self.kernels:
            kernel()


class _State:
    """Of this process's device."""

    def __init__(self) -> None:
        self.is_started = False
        self.failure: BaseException | None = None
        self.capturing: Graph | None = None


def start() -> None:
    """From now on launches return before their work is done."""
    _state.is_started = True


def is_started() -> bool:
    """Whether this process works on the fake device at all."""
    return _state.is_started


def launch(
    kernel: Callable[..., object], *arguments: Any, stream: Stream | None = None,
    cost_us: float = 0.0, shared_bytes: int = 0,
) -> int:  # fmt: skip
    """Enqueue `kernel(*arguments)`; returns an error code that, as on a GPU, is easily ignored.

    Args:
        kernel: what to run; it should write into a tensor that it is given.
        arguments: for it.
        stream: where; the default stream if none is given.
        cost_us: how long the device is busy before the result is written.
        shared_bytes: beyond `SHARED_LIMIT_BYTES` nothing runs.
    """
    if shared_bytes > SHARED_LIMIT_BYTES:
        return ERROR_TOO_MUCH_SHARED
    step = partial(kernel, *arguments)
    if _state.capturing is not None:
        _state.capturing.kernels.append(step)
        _state.capturing.cost_us += cost_us
    else:
        (stream or default_stream).enqueue(partial(_run, step, cost_us))
    return 0


def copy(target: torch.Tensor, source: torch.Tensor, *, stream: Stream | None = None) -> None:
    """Enqueue a copy."""
    launch(target.copy_, source, stream=stream)


def synchronize() -> None:
    """Wait for all streams."""
    for stream in _streams:
        stream.synchronize()


@contextlib.contextmanager
def capture() -> Iterator[Graph]:
    """A graph of the launches made inside, none of which runs."""
    _state.capturing = graph = Graph()
    try:
        yield graph
    finally:
        _state.capturing = None


def empty(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory as it comes: with the bytes of the last freed tensor of that size, else zeros."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    if num_bytes == 0:
        return torch.empty(shape, dtype=dtype)
    freed = _freed.setdefault(num_bytes, [])
    memory = freed.pop() if freed else bytearray(num_bytes)
    lease = (ctypes.c_char * num_bytes).from_buffer(memory)
    # a tensor keeps alive what it was made from: the lease ends with its last view
    weakref.finalize(lease, freed.append, memory).atexit = False
    return torch.frombuffer(lease, dtype=dtype).view(shape)


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """The same for the shape and dtype of a tensor."""
    return empty(tuple(tensor.shape), tensor.dtype)


def _run(step: Step, cost_us: float) -> None:
    if _state.is_started and cost_us > 0:
        time.sleep(cost_us * 1e-6)
    step()


def _work(steps: queue.SimpleQueue[Step]) -> None:
    # a sleep ends when it should, not up to 50 µs later
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    torch.set_grad_enabled(False)
    while True:
        step = steps.get()
        try:
            step()
        except BaseException as failure:  # noqa: BLE001 - told to whoever synchronises
            _state.failure = failure
        del step  # or its tensors would live until the next one comes


_state = _State()
_streams: list[Stream] = []
_freed: dict[int, list[bytearray]] = {}
default_stream = Stream()
"""Where work goes that names no stream, copies of results among it."""
