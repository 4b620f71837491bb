"""Show a page in a headless Chromium, as on a phone or a desktop, over its DevTools protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
START_S = 300


class Browser:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, count(1)
        self.problems: list[str] = []
        """The browser's complaints, such as a blocked script."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        id_ = next(self._ids)
        self._socket.send(json.dumps({"id": id_, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv(timeout=START_S))
            if said.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.problems.append(json.dumps(said["params"]))
            if said.get("id") == id_:
                assert "error" not in said, said
                return said["result"]

    def show(self, url: str, *, width: int, scheme: str) -> None:
        """Load a page in a window of a size in CSS pixels, light or dark."""
        is_phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        preference = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[preference])
        self.call("Page.navigate", url="about:blank")  # a link into the same page loads nothing
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + START_S
        while self.ask("location.href + document.readyState") != f"{url}complete":
            assert time.monotonic() < deadline, url
            time.sleep(0.05)

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")


@contextmanager
def browser() -> Generator[Browser]:
    """Open a tab of a new browser, and end the browser afterwards."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with connect(_tab(Path(profile), process), max_size=None) as socket:
                yield Browser(socket)
        finally:
            process.terminate()
            process.wait(timeout=START_S)


def _tab(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the browser's first tab."""
    from urllib.request import urlopen

    said = profile / "DevToolsActivePort"
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        if said.exists() and len(lines := said.read_text().splitlines()) == 2:
            with urlopen(f"http://127.0.0.1:{lines[0]}/json") as answer:
                tabs = json.load(answer)
            for tab in tabs:
                if tab["type"] == "page":
                    return tab["webSocketDebuggerUrl"]
        time.sleep(0.1)
    raise AssertionError("the browser did not start")
