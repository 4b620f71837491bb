"""Keep programs running until they are told to stop, and check the ports that they listen at."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from cudal1.errors import ConfigError, CudaL1Error

TOO_OFTEN, WITHIN_S = 5, 120.0
"""Number of ends, and seconds in which so many ends mean a lasting fault."""
LOOK_S = 0.5
HOST = "127.0.0.1"


class ProgramEnded(CudaL1Error):
    """An error: a program ends as soon as it is started."""


class Program:
    """One program in a session of its own: Ctrl-C reaches it only through `stop`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        log: Path | None,
    ) -> None:
        """Set up a program that starts in `folder` and prints to `log`; None: to the terminal."""
        self.name = name
        self._command = command
        self._environment = environment
        self._folder = folder
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._ends: deque[float] = deque(maxlen=TOO_OFTEN)

    def start(self) -> None:
        """Start the program."""
        stream: IO[bytes] | None = None
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            stream = self._log.open("ab")
        try:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT if stream else None,
                start_new_session=True,
            )
        finally:
            if stream is not None:
                stream.close()

    @property
    def is_running(self) -> bool:
        """Return whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def keep_running(self) -> bool:
        """Start the program again if it has ended by itself; return whether it had.

        Raises:
            ProgramEnded: it ends again and again.
        """
        if self.is_running:
            return False
        now = time.monotonic()
        self._ends.append(now)
        if len(self._ends) == TOO_OFTEN and now - self._ends[0] < WITHIN_S:
            where = f"; what it said is in {self._log}" if self._log else ""
            raise ProgramEnded(f"{self.name} ends as soon as it is started{where}")
        self.start()
        return True

    def stop(self, *, wait_s: float) -> None:
        """Ask the program to end, wait for `wait_s` seconds, then kill it."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_taken(port: int) -> bool:
    """Return whether a program of this machine, of any user, listens at a port.

    Raises:
        ConfigError: it is no port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OverflowError as error:
            raise ConfigError(f"port {port}: must be 1 to 65535") from error
        except OSError:
            return True
    return False
