"""Stand in for the interpreter of vLLM's environment: run as `… -m MODULE --port N …`.

The variable FAKE_VLLM selects the behaviour. The file that FAKE_VLLM_NOTES names gets what the
program saw, and its processes. The program does no part of the work of cudal1.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BEHAVIOUR = os.environ.get("FAKE_VLLM", "well")
NOTES = Path(os.environ["FAKE_VLLM_NOTES"])


def note(**facts: Any) -> None:
    """Append a line."""
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(json.dumps(facts) + "\n")


class Handler(BaseHTTPRequestHandler):
    """A healthy server that answers every question alike."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        """Report whether the server is healthy."""
        self._send(503 if BEHAVIOUR == "never healthy" else 200, {})

    def do_POST(self) -> None:
        """Answer a question."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        note(body=body, key=self.headers["Authorization"])
        if BEHAVIOUR == "dies later":
            print("MemoryError: the weights were too heavy", flush=True)
            print("EngineDeadError: the engine died, see the trace above", flush=True)
            os._exit(1)
        if BEHAVIOUR == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": "hello"}}
        self._send(200, {"choices": [choice], "usage": {}})

    def _send(self, status: int, content: dict[str, Any]) -> None:
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


def main() -> None:
    """Behave as FAKE_VLLM says."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note(
        arguments=sys.argv[1:],
        pids=[os.getpid(), child.pid],
        folder=str(Path.cwd()),
        environment=dict(os.environ),
    )
    print("loading weights", flush=True)
    match BEHAVIOUR:
        case "dies at start":
            print("ValueError: 7 heads cannot be split", flush=True)
            print("bye", flush=True)
            sys.exit(1)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "hangs":
            time.sleep(600)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
