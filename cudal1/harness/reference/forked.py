"""Keep an object in a forked process of its own, and call its methods over a pipe.

A process that has imported PyTorch forks in milliseconds what takes seconds to start anew. What
happens in the fork ends with it. The process that forks must have no threads that compute and no
CUDA context. Threat: a problem's file runs in the fork. It may exit, hang, crash, print, or change
anything that it imports. The fork gets no environment variables but those that `processes` lists.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import re
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Collection
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import psutil

from cudal1 import processes
from cudal1.errors import CudaL1Error, WorkerError, describe
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.reference.keeper import STOPPED, close_all_but, end_kept, fork_kept
from cudal1.harness.reference.reference import SCRATCH
from cudal1.harness.reference.reference_code import CALL_LIMIT_S, end_with_a_hang
from cudal1.harness.reference.scratch import Scratch

CLOSE = "close"
ANSWER_LIMIT_S = 900.0
"""Seconds that an answer may take: many calls of at most `CALL_LIMIT_S` each. A problem may have
removed that limit."""
CLOSE_LIMIT_S = 60.0
"""Seconds that closing an object may take."""
STALL_LIMIT_S = 30
"""Seconds that may pass between two pieces of an answer: a problem may write the beginning of an
answer that never ends."""
END_LIMIT_S = 5.0
"""Seconds that a process may take to end after it has closed its end of the pipe."""
STACK_LIMIT_S = 1.0
"""Seconds that a process which gives no answer may take to say where it is."""
FRAME = re.compile(r'File "([\w./<>-]{1,200})", line (\d+) in (\w{1,80})')
NUM_FRAMES = 3
"""Number of innermost frames that are named then."""
MAX_FRAMES, MAX_NOTE = 20, 8000
"""Innermost frames, and characters, of the traceback that comes with an error."""

Ask = tuple[str, tuple[Any, ...], dict[str, Any]]


class Ended(Exception):
    """A forked process has ended without an answer; the message says how."""


class Forked:
    """An object that lives in a forked process; `ask` calls its methods.

    Args:
        make: makes the object there. The object's method `close`, if there is one, is called last.
        keeps: descriptors of this process that `make` uses; all others are closed there.
        call_limit_s: seconds that a call into a problem's reference may take there.
        answer_limit_s: seconds that an answer may take.

    Raises:
        Ended: the process ended while the object was made. Whatever `make` raises is raised, too.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        keeps: Collection[int] = (),
        call_limit_s: float = CALL_LIMIT_S,
        answer_limit_s: float = ANSWER_LIMIT_S,
    ) -> None:
        self._call_limit_s = call_limit_s
        self._answer_limit_s = answer_limit_s
        self._folder = Scratch("cudal1-problem-")
        self._ours, theirs = multiprocessing.Pipe()
        _limit_stalls(self._ours)
        self._stack = os.memfd_create("stack", os.MFD_CLOEXEC)
        keeps = (*keeps, self._stack)
        self._process = fork_kept(
            partial(_serve, make, theirs, keeps, self._stack, self._folder.path, call_limit_s)
        )
        theirs.close()
        self._status: int | None = None
        try:
            self._answer(answer_limit_s)
        except BaseException:  # Ctrl-C, too: the fork ends, and it is raised again
            self.kill()
            raise

    def ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method there; return or raise what the method does.

        Raises:
            Ended: the process has ended.
        """
        return self._asked((name, arguments, named), self._answer_limit_s)

    def begin(self, name: str, *arguments: Any, **named: Any) -> float:
        """Start a call of a method there; `finish` returns or raises what the method does.

        Return the time by the monotonic clock at which the call must have been answered. Only one
        call may run at a time.
        """
        self._send((name, arguments, named))
        return time.monotonic() + self._answer_limit_s

    def fileno(self) -> int:
        """Return a descriptor that is readable once a call is answered or the process has ended."""
        return self._ours.fileno()

    def finish(self) -> Any:
        """Return or raise what a started call did, once it is answered or its time is over.

        Raises:
            Ended: the process has ended.
        """
        if self._status is not None:
            raise self._ended(self._status)
        return self._answer(0.0)

    def close(self) -> None:
        """Close the object, and end its process."""
        if self._status is None:
            with contextlib.suppress(Exception):
                self._asked((CLOSE, (), {}), CLOSE_LIMIT_S)
        self.kill()

    def kill(self) -> None:
        """End the process at once; idempotent."""
        if self._status is None:
            self._ours.close()
            self._status = end_kept(self._process)
            os.close(self._stack)
        self._folder.close()

    def _asked(self, asked: Ask, limit_s: float) -> Any:
        if self._status is not None:
            raise self._ended(self._status)
        self._send(asked)
        return self._answer(limit_s)

    def _send(self, asked: Ask) -> None:
        if self._status is None:
            with contextlib.suppress(OSError):  # the process is gone: the answer says how
                self._ours.send(asked)

    def _answer(self, limit_s: float) -> Any:
        if not self._ours.poll(limit_s):
            where = self._where()
            self.kill()
            raise Ended(f"gives no answer within {limit_s or self._answer_limit_s:g} s{where}")
        try:
            is_error, content = self._ours.recv()
        except BlockingIOError as error:
            self.kill()
            raise Ended("gives no answer that can be read") from error
        except (EOFError, OSError) as error:
            self._reap()
            assert self._status is not None
            raise self._ended(self._status) from error
        except Exception as error:  # a problem may write into the pipe, or patch pickle
            self.kill()
            raise Ended("gives no answer that can be read") from error
        if is_error:
            raise content
        return content

    def _ended(self, status: int) -> Ended:
        is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
        if is_late:
            return Ended(f"does not return within {self._call_limit_s:g} s")
        return Ended(_ending(status))

    def _reap(self) -> None:
        """Learn how the process ended; kill a process that has only closed its end of the pipe."""
        self._ours.close()
        self._status = end_kept(self._process, patience_s=END_LIMIT_S)
        os.close(self._stack)

    def _where(self) -> str:
        """Return the innermost calls of a process that gives no answer, as a part of a sentence.

        They are as the process writes them: a hint for a person, and nothing to decide by.
        """
        with contextlib.suppress(psutil.Error):
            for problem in psutil.Process(self._process).children():
                problem.send_signal(signal.SIGUSR2)
        until = time.monotonic() + STACK_LIMIT_S
        while not os.fstat(self._stack).st_size and time.monotonic() < until:
            time.sleep(0.01)
        said = os.pread(self._stack, MAX_NOTE, 0).decode("utf-8", "replace")
        frames = FRAME.findall(said)[:NUM_FRAMES]
        calls = [f"{function} ({Path(file).name}:{line})" for file, line, function in frames]
        return f"; it is in {', called by '.join(calls)}" if calls else ""


def _limit_stalls(channel: Connection) -> None:
    with socket.socket(fileno=os.dup(channel.fileno())) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", STALL_LIMIT_S, 0))


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"crashes ({signal.Signals(os.WTERMSIG(status)).name})"
    if os.waitstatus_to_exitcode(status) == STOPPED:
        return "stops its process"
    return f"ends its process (exit status {os.waitstatus_to_exitcode(status)})"


def _serve(
    make: Callable[[], Any],
    channel: Connection,
    keeps: Collection[int],
    stack: int,
    folder: str,
    call_limit_s: float,
) -> NoReturn:
    """Run in the child: make the object, answer calls until the pipe closes, and exit.

    On SIGUSR2 the process writes its stack, whatever it is doing.
    """
    status = 1
    try:
        close_all_but(channel.fileno(), *keeps)
        faulthandler.register(signal.SIGUSR2, file=stack, all_threads=False)
        _settle(folder, call_limit_s)
        made, failed = _tried(make)
        channel.send((failed is not None, failed))
        while failed is None:
            name, arguments, named = channel.recv()
            if name == CLOSE and not hasattr(made, CLOSE):
                channel.send((False, None))
                break
            found, error = _tried(partial(getattr(made, name), *arguments, **named))
            channel.send((error is not None, found if error is None else error))
            if name == CLOSE:
                break
        status = 0
    except (EOFError, OSError):
        status = 0  # the process that asked is gone
    except SystemExit as error:  # the problem's own
        status = error.code if isinstance(error.code, int) else 1
    finally:
        os._exit(status)


def _tried(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 -- a problem's own, or ours: raised where it was asked
        return None, _portable(error)


def _portable(error: Exception) -> Exception:
    """Return an error of a class that the other process has, with the traceback as its note."""
    if isinstance(error, CudaL1Error):
        return error
    said = describe(error)
    portable = MemoryError(said) if lacks_memory(said) else WorkerError(said)
    trace = "".join(traceback.format_exception(error, limit=-MAX_FRAMES))
    portable.add_note(f"in the forked process: {trace[-MAX_NOTE:]}")
    return portable


def _settle(folder: str, call_limit_s: float) -> None:
    """Make this process silent, in its own folder, without keys in its environment."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_a_hang(call_limit_s)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    # the Python objects may be files of their own, which are closed
    sys.stdout = sys.stderr = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sparse = processes.sparse()
    for name in set(os.environ) - set(sparse):
        del os.environ[name]
    os.environ.update(sparse)
    os.environ[SCRATCH] = folder
    os.chdir(Path(folder))
