"""Provide a device of threads that works while its caller goes on, for tests without a GPU.

The device has what asynchronous hacks need, and each hack is deterministic here
(docs/attacks.md#the-fake-device). Streams order only their own work. Events record times on a
stream. Launches return at once, and launches that fail say nothing. Graphs replay the addresses
that they captured. Memory is handed out with the bytes of its last owner. A kernel may be given a
cost in µs, spent asleep, so that kernels of two streams overlap even on one core.

Until `start` is called, every launch runs at once, at no cost, and no thread exists. The judge runs
references to know the answers, and never starts the device.

Threat: none of its own. The device lives in the worker's process, where candidates may do with it
what they like. Only references and candidates of problems for `DeviceClass.FAKE` import it.
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
"""Bytes of shared memory that one launch may ask for, as on an H200; a launch that asks for more
fails and says nothing."""
ERROR_TOO_MUCH_SHARED = 1

Step = Callable[[], object]


class Stream:
    """A queue of work that runs in its order, beside the work of other streams."""

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[Step] | None = None
        _streams.append(self)

    def enqueue(self, step: Step) -> None:
        """Run `step` after all that was enqueued before it."""
        if not _state.is_started:
            step()
            return
        if self._steps is None:
            self._steps = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._steps,), daemon=True).start()
        self._steps.put(step)

    def wait_event(self, event: Event) -> None:
        """Hold back all work that is enqueued later until `event` has passed."""
        self.enqueue(event.passed.wait)

    def wait_stream(self, other: Stream) -> None:
        """Hold back all work that is enqueued later until all present work of `other` is done."""
        event = Event()
        event.record(other)
        self.wait_event(event)

    def synchronize(self) -> None:
        """Wait for all that was enqueued.

        Raises:
            RuntimeError: a kernel failed; as on a GPU, this is where the failure is first noticed.
        """
        event = Event()
        event.record(self)
        event.synchronize()


class Event:
    """A mark in a stream, with the time when it was passed."""

    def __init__(self) -> None:
        self.passed = threading.Event()
        self._time_s = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark at the end of a stream, the default one if none is given."""
        self.passed.clear()
        (stream or default_stream).enqueue(self._pass)

    def synchronize(self) -> None:
        """Wait until the mark was passed."""
        self.passed.wait()
        if _state.failure is not None:
            raise RuntimeError(f"a kernel failed: {_state.failure}") from _state.failure

    def elapsed_time(self, later: Event) -> float:
        """Return the milliseconds from this event to a later one."""
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
        """Run the launches again, on the very tensors that they were captured with."""
        launch(self._run, stream=stream, cost_us=self.cost_us)

    def _run(self) -> None:
        for kernel in self.kernels:
            kernel()


class _State:
    """The state of this process's device."""

    def __init__(self) -> None:
        self.is_started = False
        self.failure: BaseException | None = None
        self.capturing: Graph | None = None


def start() -> None:
    """Start the device: launches then return before their work is done."""
    _state.is_started = True


def is_started() -> bool:
    """Return whether this process has started the fake device."""
    return _state.is_started


def launch(
    kernel: Callable[..., object],
    *arguments: Any,
    stream: Stream | None = None,
    cost_us: float = 0.0,
    shared_bytes: int = 0,
) -> int:
    """Enqueue `kernel(*arguments)`; return an error code that, as on a GPU, is easily ignored.

    Args:
        kernel: the function to run; it should write into a tensor that it is given.
        arguments: the kernel's arguments.
        stream: the stream to run it on; the default stream if none is given.
        cost_us: microseconds for which the device is busy before the result is written.
        shared_bytes: shared memory of the launch; beyond `SHARED_LIMIT_BYTES` nothing runs.
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
    """Yield a graph of the launches made inside, none of which runs."""
    _state.capturing = graph = Graph()
    try:
        yield graph
    finally:
        _state.capturing = None


def empty(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return memory with the bytes of the last freed tensor of that size, or with zeros."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    if num_bytes == 0:
        return torch.empty(shape, dtype=dtype)
    freed = _freed.setdefault(num_bytes, [])
    memory = freed.pop() if freed else bytearray(num_bytes)
    lease = (ctypes.c_char * num_bytes).from_buffer(memory)
    # a tensor keeps its lease alive: the lease ends with the last view
    weakref.finalize(lease, freed.append, memory).atexit = False
    return torch.frombuffer(lease, dtype=dtype).view(shape)


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return memory as `empty` does, for the shape and dtype of a tensor."""
    return empty(tuple(tensor.shape), tensor.dtype)


def _run(step: Step, cost_us: float) -> None:
    if _state.is_started and cost_us > 0:
        time.sleep(cost_us * 1e-6)
    step()


def _work(steps: queue.SimpleQueue[Step]) -> None:
    # make a sleep end when it should, not up to 50 µs later
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    torch.set_grad_enabled(False)
    while True:
        step = steps.get()
        try:
            step()
        except BaseException as failure:  # noqa: BLE001 -- a candidate's; a caller gets it later
            _state.failure = failure
        del step  # or its tensors would live until the next step


_state = _State()
_streams: list[Stream] = []
_freed: dict[int, list[bytearray]] = {}
default_stream = Stream()
"""The stream of work that names no stream, such as copies of results."""
