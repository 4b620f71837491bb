"""An executor of one isolated interpreter, which is asked one question after the other.

Not `ProcessPoolExecutor`: its processes import the main program of whoever asks, with its import
path and all of its environment. Threat: none new; both ends are ours, and talk over a socket pair
in pickles.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing import connection
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn

from cudal1 import processes
from cudal1.errors import WorkerError, describe

MODULE = "cudal1.harness.isolated"
MAX_SAID = 300
"""Characters of a process's last words that are shown."""
END_LIMIT_S = 20.0
"""Seconds that a process may take to end when it is asked to."""
CALM = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Threads that wait sleep: they would hold cores on which others are timed."""

NO_MORE = b""
"""The message behind the last question."""


class Isolated(Executor):
    """One process that answers questions in their order; started by the first one.

    Once it has ended, what was asked and all that is asked raises `BrokenExecutor`, until it is
    revived.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._life: _Life | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Ask; functions are named by their modules, which the process imports.

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
        """Return whether the process has ended, and that has been noticed."""
        return self._life is not None and self._life.has_ended

    def revive(self) -> None:
        """Have the next question start another process where the last one has ended."""
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
        self._asked: deque[Future[Any]] = deque()
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
            self._asked.append(future)
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
                return  # it has ended, as the other thread says
            if question is None:
                return

    def _receive(self) -> None:
        while True:
            try:
                answer = self._answer()
            except (EOFError, OSError):
                break
            future = self._asked.popleft()
            is_error, content = _loaded(answer)
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
            left, self._asked = list(self._asked), deque()
        for future in left:
            future.set_exception(BrokenExecutor(self._ending))
        self._outbox.put(None)
        self._said.close()

    def _answer(self) -> bytes:
        """Return the next answer; what the process has left behind may hold its end of the socket.

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
    """Return an answer, or the error that it cannot be read here."""
    try:
        return pickle.loads(answer)
    except Exception as error:  # noqa: BLE001 -- a class that this process does not have
        return True, WorkerError(describe(error))


def main() -> None:
    """Answer until the other end asks no more; end at once when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the process that asks to pass on
    channel = Connection(int(sys.argv[1]))
    questions: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(channel, questions), daemon=True).start()
    while (question := questions.get()) != NO_MORE:
        channel.send_bytes(_answer(question))


def _listen(channel: Connection, questions: SimpleQueue[bytes]) -> None:
    """Take questions in while others are answered."""
    question = None
    while question != NO_MORE:
        try:
            question = channel.recv_bytes()
        except (EOFError, OSError):
            _end_now()
        questions.put(question)


def _end_now() -> NoReturn:
    """A process that nothing asks any more would hold the device's lock."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _answer(question: bytes) -> bytes:
    try:
        fn, args = pickle.loads(question)
        return pickle.dumps((False, fn(*args)))
    except Exception as error:  # noqa: BLE001 -- raised where it was asked
        return pickle.dumps((True, _portable(error)))


def _portable(error: Exception) -> Exception:
    """Return the error, or one that says the same, if its class does not come through."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 -- a class of somebody's own may raise anything
        return WorkerError(describe(error))
    return error


if __name__ == "__main__":
    main()
