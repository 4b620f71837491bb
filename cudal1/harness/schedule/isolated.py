"""Ask one isolated interpreter several questions at a time, as an executor does.

`ProcessPoolExecutor` will not do: its processes import the caller's main program, with its import
path and all of its environment. Threat: none new; both ends are ours, and talk over a socket pair
in pickles.

Long because both ends of the socket pair, the executor's and the interpreter's, are to be read
beside each other.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing import connection
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn, Protocol

from cudal1 import processes
from cudal1.errors import WorkerError, describe

MODULE = "cudal1.harness.schedule.isolated"
MAX_SAID = 300
"""Characters of a process's last words that are shown."""
END_LIMIT_S = 20.0
"""Seconds that a process may take to end when it is asked to."""
CALM = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Environment variables that have waiting threads sleep. Else they would hold cores on which others
are timed."""

NUMBER = struct.Struct("<Q")
"""The number of its question, from 0, before each answer."""
NO_MORE = b""
"""The message behind the last question."""


class Later(Protocol):
    """An answer that is not known yet; a function in the process returns it."""

    def awaited(self) -> Collection[int]:
        """Return descriptors to wait for: the answer may be known once any of them can be read."""
        ...

    def until(self) -> float:
        """Return when to look in any case, by the monotonic clock."""
        ...

    def is_known(self) -> bool:
        """Do what can be done without waiting; return whether the answer is known."""
        ...

    def result(self) -> Any:
        """Return or raise the answer."""
        ...


class Isolated(Executor):
    """An executor of one process, which the first question starts.

    The process takes questions in their order. It answers each before it hears the next one, unless
    a function returns a `Later`. Once it has ended, every question raises `BrokenExecutor`, those
    without an answer, too, until it is revived.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._life: _Life | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Ask a question; functions are named by their modules, which the process imports.

        Raises:
            BrokenExecutor: the process has ended.
        """
        assert not kwargs, "positional arguments are passed on"
        with self._turn:
            if self._life is None:
                self._life = _Life()
            return self._life.ask(pickle.dumps((fn, args)))

    @property
    def is_broken(self) -> bool:
        """True if the process has ended, and that has been noticed."""
        return self._life is not None and self._life.has_ended

    def revive(self) -> None:
        """End the process, so that the next question starts another one."""
        with self._turn:
            if self._life is not None:
                self._life.kill()
            self._life = None

    def kill(self) -> None:
        """End the process at once, whatever it is doing."""
        with self._turn:
            if self._life is not None:
                self._life.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Have the process end once it has answered what it was asked; idempotent."""
        with self._turn:
            life = self._life
        if life is not None:
            life.end(wait=wait)


class _Life:
    """A process from its start to its end."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile("w+b")  # noqa: SIM115 -- closed when it has ended
        with theirs:
            self._process = subprocess.Popen(
                processes.python(MODULE, str(theirs.fileno())),
                env=processes.sparse(**CALM),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=[theirs.fileno()],
            )
        self._channel = Connection(ours.detach())
        self._ended = os.pidfd_open(self._process.pid)
        self._turn = threading.Lock()
        self._asked: dict[int, Future[Any]] = {}
        self._num_asked = 0
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._ending: str | None = None
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def has_ended(self) -> bool:
        return self._ending is not None

    def ask(self, question: bytes) -> Future[Any]:
        with self._turn:
            if self._ending is not None:
                raise BrokenExecutor(self._ending)
            future = Future[Any]()
            future.set_running_or_notify_cancel()
            self._asked[self._num_asked] = future
            self._num_asked += 1
            self._outbox.put(question)
        return future

    def end(self, *, wait: bool) -> None:
        self._outbox.put(None)
        if not wait:
            return
        for thread in self._threads:
            thread.join()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _send(self) -> None:
        while True:
            question = self._outbox.get()
            try:
                self._channel.send_bytes(NO_MORE if question is None else question)
            except OSError:
                return  # the process has ended; the other thread reports that
            if question is None:
                return

    def _receive(self) -> None:
        while True:
            try:
                answer = self._answer()
            except (EOFError, OSError):
                break
            (number,), content = NUMBER.unpack_from(answer), answer[NUMBER.size :]
            with self._turn:
                future = self._asked.pop(number)
            is_error, content = _loaded(content)
            if is_error:
                future.set_exception(content)
            else:
                future.set_result(content)
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:  # what it sent was no answer
            self.kill()
        os.close(self._ended)
        with self._turn:
            self._ending = self._last_words()
            left, self._asked = list(self._asked.values()), {}
        for future in left:
            future.set_exception(BrokenExecutor(self._ending))
        self._outbox.put(None)
        self._said.close()

    def _answer(self) -> bytes:
        """Return the next answer.

        A process that this one has left behind may hold its end of the socket, so its end is
        awaited, too.

        Raises:
            EOFError: the process has ended.
        """
        if self._channel not in connection.wait([self._channel, self._ended]):
            raise EOFError
        return self._channel.recv_bytes()

    def _last_words(self) -> str:
        code = self._process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self._said.seek(0)
        said = " ".join(self._said.read().decode("utf-8", "replace").split())[-MAX_SAID:]
        return f"its process has ended ({how}){': ' if said else ''}{said}"


def _loaded(answer: bytes) -> tuple[bool, Any]:
    """Return whether an answer is an error, and the answer; one that cannot be read is an error."""
    try:
        return pickle.loads(answer)
    except Exception as error:  # noqa: BLE001 -- a class that this process does not have
        return True, WorkerError(describe(error))


def main() -> None:
    """Answer until the other end asks nothing more; end at once when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks passes it on
    channel = Connection(int(sys.argv[1]))
    questions: SimpleQueue[bytes] = SimpleQueue()
    bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    threading.Thread(target=_listen, args=(channel, questions, bell), daemon=True).start()
    later: dict[int, Later] = {}
    num_heard, is_over = 0, False
    while later or not is_over:
        _wait(bell, later.values())
        while not questions.empty():
            question = questions.get()
            if question == NO_MORE:
                is_over = True
                break
            answer = _answer(question)
            if isinstance(answer, bytes):
                channel.send_bytes(NUMBER.pack(num_heard) + answer)
            else:
                later[num_heard] = answer
            num_heard += 1
        for number in [number for number, each in later.items() if each.is_known()]:
            answer = _tried(later.pop(number).result)
            channel.send_bytes(NUMBER.pack(number) + pickle.dumps(answer))


def _wait(bell: int, later: Collection[Later]) -> None:
    """Wait until there is a question, or what an answer waits for."""
    until = min((each.until() for each in later), default=None)
    limit_s = None if until is None else max(0.0, until - time.monotonic())
    connection.wait({bell, *(each for one in later for each in one.awaited())}, limit_s)
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(bell)


def _listen(channel: Connection, questions: SimpleQueue[bytes], bell: int) -> None:
    """Take in questions while others are answered."""
    question = None
    while question != NO_MORE:
        try:
            question = channel.recv_bytes()
        except (EOFError, OSError):
            _end_now()
        questions.put(question)
        os.eventfd_write(bell, 1)


def _end_now() -> NoReturn:
    """Kill this process: with no process to ask it, it would hold the device's lock."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _answer(question: bytes) -> bytes | Later:
    """Return the answer to be sent, or the `Later` that will have it."""

    def asked() -> Any:
        fn, args = pickle.loads(question)
        return fn(*args)

    is_error, content = _tried(asked)
    if not is_error and hasattr(content, "is_known"):
        return content
    try:
        return pickle.dumps((is_error, content))
    except Exception as error:  # noqa: BLE001 -- the process that asked raises it
        return pickle.dumps((True, _portable(error)))


def _tried(call: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return False, call()
    except Exception as error:  # noqa: BLE001 -- the process that asked raises it
        return True, _portable(error)


def _portable(error: Exception) -> Exception:
    """Return the error, or one that says the same, if its class does not come through."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 -- a third party's class may raise anything
        return WorkerError(describe(error))
    return error


if __name__ == "__main__":
    main()
