"""A model server on this machine that we start, watch and stop, leaving nothing behind.

Nothing here knows what the server serves or how it is asked.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from cudal1.errors import ProviderError
from cudal1.llm import guard
from cudal1.processes import FLAGS

HOST = "127.0.0.1"
_POLL_S = 0.2
_PROBE_TIMEOUT_S = 2.0
_END_S = guard.REST_S + 2.0
_FIRST_PORT, _USUAL_FIRST = 20_000, 32_768
_KERNELS_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORT_TRIES = 1000
_CHANCE = random.SystemRandom()  # a seed would give all processes the same ports
_SAYS_WHY = re.compile(r"(^killed by |[\w.]*(error|exception): ).*", re.IGNORECASE)
_IS_NO_REASON = re.compile(r" (INFO|WARNING) |\babove\b")
"""Pattern of lines that give no reason; vLLM's front end refers to the reason "above"."""


class Server:
    """A server's processes, reachable at `url`."""

    def __init__(
        self, command: Sequence[str], *, port: int, folder: Path, env: Mapping[str, str]
    ) -> None:
        """Start the server; `folder` takes its log and its temporary files."""
        self.url = f"http://{HOST}:{port}"
        self.log = folder / "server.log"
        self.is_log_wanted = False
        """True if a message has named the log, so that it must stay."""
        self._port = port
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *FLAGS, guard.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**env, "TMPDIR": str(folder)},
                # not our working directory: `python -m` looks for modules there first
                cwd=folder,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        """True if the server process has ended."""
        return self._process.poll() is not None

    @property
    def is_healthy(self) -> bool:
        """True if the server answers GET /health with 200."""
        # proxies that the environment names are not asked
        connection = http.client.HTTPConnection(HOST, self._port, timeout=_PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
            return response.status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def ends_soon(self) -> bool:
        """Return whether the server ends within `_END_S`, for a caller that lost the connection."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """Return the line of the log that says most about the server's end, and the log's path."""
        self.is_log_wanted = True
        reason = reason_in(self.log.read_text(encoding="utf-8", errors="replace"))
        return f"{reason[:300]}; its log: {self.log}"

    def stop(self) -> None:
        """Stop the server; return when all of its processes are gone."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b".")  # a fork of ours may hold the pipe open
            self._process.stdin.close()
        try:
            self._process.wait(guard.GRACE_S + 5.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        deadline = time.monotonic() + _END_S  # the others were killed too and may end later
        while self._has_members() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _has_members(self) -> bool:
        """Return whether a process of the server's group still runs."""
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                is_ours = os.getpgid(process.pid) == self._process.pid
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    return True
        return False


@contextmanager
def serving(
    name: str, command: Sequence[str], *, port: int, env: Mapping[str, str], start_timeout_s: float
) -> Generator[Server]:
    """Yield a healthy server, which is stopped when the context is left or we are killed.

    Args:
        name: names the server in errors.
        command: listens at `port`, and answers GET /health once it can work.
        port: comes from `free_port`.
        env: all of the server's environment, but for TMPDIR.
        start_timeout_s: seconds from start to healthy.

    Raises:
        ProviderError: the server died, or was not healthy in time; the log stays where the message
            says.
    """
    folder = Path(tempfile.mkdtemp(prefix="cudal1-server-"))
    server = Server(command, port=port, folder=folder, env=env)
    try:
        _wait(name, server, start_timeout_s)
        yield server
    finally:
        server.stop()
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path != server.log or not server.is_log_wanted:
                path.unlink(missing_ok=True)
        if not server.is_log_wanted:
            folder.rmdir()


def reason_in(log: str) -> str:
    """Return the log's last line that looks like an exception, or else its last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    for i in range(len(lines) - 1, -1, -1):
        found = _SAYS_WHY.search(lines[i])
        if found and not _IS_NO_REASON.search(lines[i]):
            # pydantic puts the fault into the next line
            more = [line.strip() for line in lines[i + 1 : i + 2] if line.startswith("  ")]
            return " ".join([found[0], *more])
    return lines[-1].strip() if lines else "it said nothing"


def free_port() -> int:
    """Return a port of this machine that is free and stays so until a server listens.

    It lies outside the kernel's own range: the kernel may give a port of that range to any
    connection at any moment.
    """
    for _ in range(_PORT_TRIES):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, _CHANCE.randrange(_FIRST_PORT, _first_of_the_kernel())))
            return probe.getsockname()[1]
    raise ProviderError(f"{HOST}: no port is free to listen at")


def _first_of_the_kernel() -> int:
    try:
        first = int(_KERNELS_PORTS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST
    return first if first > _FIRST_PORT else _USUAL_FIRST


def _wait(name: str, server: Server, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not server.is_healthy:
        if server.has_ended:
            raise ProviderError(f"{name} died while it started: {server.last_words()}")
        if time.monotonic() > deadline:
            raise ProviderError(
                f"{name} was not healthy within {timeout_s:g} s (start_timeout_s): "
                f"{server.last_words()}"
            )
        time.sleep(_POLL_S)
