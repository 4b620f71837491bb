"""The answer of a command, which alone is written to standard output.

While a command runs, descriptor 1 leads to standard error and the answer has a private descriptor.
So no other output (of a library, C code, or a process that inherits descriptor 1) spoils the JSON.

Writing never raises. If the reader is gone or the device is full, this is remembered and decides
the exit code: docs/command-line.md.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import math
import os
import select
import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console

READ, WRITE = os.O_RDONLY, os.O_WRONLY


class Descriptor(io.RawIOBase):
    """A descriptor to write to; its first failure is kept, and further data is discarded."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self.failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write a part of the data, or discard all of it."""
        while self.failure is None:
            try:
                return os.write(self._number, data)
            except BlockingIOError:  # another program has made a shared terminal non-blocking
                waiting = select.poll()
                waiting.register(self._number, select.POLLOUT)
                waiting.poll()
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes

    def writable(self) -> bool:
        """Return True: the descriptor is there to be written to."""
        return True

    def fileno(self) -> int:
        """Return the descriptor's number."""
        return self._number

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(self._number)


_descriptor: Descriptor | None = None
"""The private descriptor, once the streams are taken."""
_stream: TextIO | None = None
"""The stream of the answer, once a command runs."""


def take_streams() -> None:
    """Give the answer a descriptor of its own, and lead descriptor 1 to standard error.

    Closed descriptors are opened on /dev/null, so that no file of ours gets their numbers. Streams
    that replace the process's own, as in tests, are left as they are.
    """
    global _descriptor, _stream
    if _descriptor is not None:
        return
    if (sys.stdout, sys.stderr) != (sys.__stdout__, sys.__stderr__):
        _stream = sys.stdout
        return
    encoding = sys.stdout.encoding if sys.stdout else "utf-8"
    for number, mode in enumerate((READ, WRITE, WRITE)):
        _open(number, mode)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the process's own
    _descriptor = Descriptor(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3))
    os.dup2(2, 1)
    sys.stdout = _stream = _text(_descriptor, encoding)
    sys.stderr = _text(Descriptor(2), encoding)


def keep_to_the_answer() -> None:
    """Send what is printed to standard error, for the rest of the process."""
    sys.stdout = sys.stderr


def answer(text: str = "") -> None:
    """Write a line, or several, of the answer; end the command when it cannot be written.

    Raises:
        typer.Exit: it cannot be written; `exit_code` says with which code the process ends.
    """
    stream = _to()
    stream.write(text + "\n")
    stream.flush()
    if _descriptor is not None and _descriptor.failure is not None:
        raise typer.Exit(0)


def answer_json(value: object, *, indent: int | None = None) -> None:
    """Write the answer as one JSON document.

    Raises:
        typer.Exit: as `answer`.
    """
    answer(json_text(value, indent=indent))


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return the value as JSON, in ASCII. Records are objects, NaN and infinities are null."""
    return json.dumps(_plain(value), indent=indent, default=str, allow_nan=False)


def answer_console(**options: Any) -> Console:
    """Return rich's console for the answer."""
    from rich.console import Console

    return Console(file=_to(), **options)


def failure() -> OSError | None:
    """Flush the answer, and return the error that kept it from being written, if any."""
    _to().flush()
    return None if _descriptor is None else _descriptor.failure


def is_unread(error: OSError) -> bool:
    """Return whether the reader was gone, as in `cudal1 … | head -1`."""
    return error.errno == errno.EPIPE


def _to() -> TextIO:
    return _stream if _stream is not None else sys.stdout


def _text(descriptor: Descriptor, encoding: str) -> TextIO:
    """Return a stream that writes any text: what the encoding lacks is escaped."""
    return io.TextIOWrapper(
        io.BufferedWriter(descriptor), encoding, errors="backslashreplace", line_buffering=True
    )


def _open(number: int, mode: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        os.set_inheritable(os.open(os.devnull, mode), True)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value == value.to_integral_value()
        value = int(value) if is_whole else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    dump = getattr(value, "model_dump", None)
    return value if dump is None else _plain(dump(mode="json"))
