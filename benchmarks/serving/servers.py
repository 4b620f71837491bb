"""Start and end the servers that are measured."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

from cudal1.processes import python, sparse
from cudal1.serving.clients import add_token

START_LIMIT_S = 180.0


class Server:
    """A server in a process of its own, which may be killed and started again.

    Args:
        folder: its folder.
        kind: the judge's kind (`judge_server`).
        names: its clients.
        settings: further lines of the first client in the clients' file.
    """

    def __init__(self, folder: Path, kind: str, names: Sequence[str], settings: str = "") -> None:
        self._folder, self._kind = folder, kind
        path = folder / "tokens.yaml"
        self.tokens: Mapping[str, str] = {name: add_token(path, name) for name in names}
        if settings:
            text = path.read_text()
            text = text.replace(f"{names[0]}:\n", f"{names[0]}:\n{settings}")
            path.write_text(text)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = (str(self._folder), str(self.port), self._kind)
        self._process = subprocess.Popen(
            python("benchmarks.serving.judge_server", *words), env=sparse()
        )
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                if httpx2.get(f"{self.url}/health", trust_env=False).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server does not start")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it in order."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def cpu_s(self) -> float:
        """Return the processor seconds that the server's own process has used."""
        assert self._process is not None
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / 100


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server, and stop it in the end."""
    server.start()
    try:
        yield server
    finally:
        server.stop()
