"""Serve an OpenAI-compatible API that goes wrong in every way, and keep exact books.

python -m benchmarks.answers.faulty_server --ready FILE [--seed 0] [--faults 0.4] [--forgets-keys]

The server writes its URL to FILE when it listens. GET /books says what it has charged for. Faults
are drawn anew for each request:

* 429 with Retry-After, 500, 503, a hang, an answer cut off in the middle, or a slow drip;
* JSON that is none, HTML, or a gateway's 504 for a request that was answered;
* errors with status 200: 429 and 503 in an object, a text, a 502, a choice that failed.

The server charges for every answer that it began to send, whether or not it arrived whole. With
Idempotency-Key it charges once for each key, unless it `--forgets-keys`.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser

REFUSALS = ("429", "500", "503")
REFUSALS_INSIDE = ("429 inside", "503 inside")
INSIDE = {
    "429 inside": {"error": {"message": "not now", "code": 429}},
    "503 inside": {"choices": [], "error": {"type": "unavailable", "message": "not now"}},
    "502 inside": {"error": {"message": "upstream failed", "code": 502}},
    "text inside": {"detail": "upstream failed"},
    "failed choice": {"choices": [{"finish_reason": "error", "message": {"content": "No co"}}]},
}
"""Errors that come with status 200."""
LOSSES = (
    "hang",
    "cut",
    "drip",
    "malformed",
    "html",
    "504",
    "502 inside",
    "text inside",
    "failed choice",
)
HANG_S = 3.0
DRIP_S = 0.3
"""Seconds between two pieces of an answer that drips."""
PROMPT_TOKENS, COMPLETION_TOKENS = 100, 40


class Books:
    """The requests and the charges."""

    def __init__(self, *, seed: int, faults: float, forgets_keys: bool) -> None:
        self._rng = random.Random(seed)
        self._faults = faults
        self._forgets_keys = forgets_keys
        self._lock = threading.Lock()
        self.num_requests = 0
        self.charged: Counter[str] = Counter()
        self.behaviours: Counter[str] = Counter()

    def behaviour(self) -> str:
        """Return the behaviour for the request that has just come."""
        with self._lock:
            self.num_requests += 1
            fails = self._rng.random() < self._faults
            chosen = self._rng.choice((*REFUSALS, *REFUSALS_INSIDE, *LOSSES)) if fails else "ok"
            self.behaviours[chosen] += 1
            return chosen

    def charge(self, key: str) -> None:
        """Charge for an answer that begins to be sent."""
        with self._lock:
            if self._forgets_keys or key not in self.charged:
                self.charged[key] += 1

    def as_json(self) -> str:
        """Return everything, for an audit."""
        with self._lock:
            return json.dumps(
                {
                    "num_requests": self.num_requests,
                    "num_charged": self.charged.total(),
                    "num_keys": len(self.charged),
                    "behaviours": dict(self.behaviours),
                    "prompt_tokens": PROMPT_TOKENS * self.charged.total(),
                    "completion_tokens": COMPLETION_TOKENS * self.charged.total(),
                }
            )


class Server(ThreadingHTTPServer):
    """A server that says nothing about clients that go away."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has gone away."""


def handler(books: Books) -> type[BaseHTTPRequestHandler]:
    """Return a class that answers requests, and fails them."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def do_GET(self) -> None:
            """Send the books."""
            self._send(200, books.as_json())

        def do_POST(self) -> None:
            """Complete a chat, or fail."""
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            key = self.headers.get("Idempotency-Key") or hashlib.sha256(asked).hexdigest()
            try:
                self._behave(books.behaviour(), key)
            except OSError:  # the client has gone away
                self.close_connection = True

        def _behave(self, behaviour: str, key: str) -> None:
            if behaviour in REFUSALS:
                self._send(int(behaviour), '{"error": {"message": "not now"}}', retry_after="0.1")
                return
            if behaviour in REFUSALS_INSIDE:
                self._send(200, json.dumps(INSIDE[behaviour]), retry_after="0.1")
                return
            books.charge(key)
            body = json.dumps(answer(key))
            match behaviour:
                case "ok":
                    self._send(200, body)
                case "504":  # the gateway gives up, though the request was answered
                    self._send(504, "<html>504 Gateway Timeout</html>", kind="text/html")
                case "hang":
                    time.sleep(HANG_S)
                    self.close_connection = True
                case "cut" | "drip":
                    self._head(200, len(body), "application/json")
                    half = len(body) // 2
                    self.wfile.write(body[:half].encode())
                    for character in body[half : half + 20] if behaviour == "drip" else "":
                        time.sleep(DRIP_S)
                        self.wfile.write(character.encode())
                        self.wfile.flush()
                    self.close_connection = True
                case "malformed":
                    self._send(200, body[:-9])
                case "html":
                    self._send(200, "<html>502 Bad Gateway</html>", kind="text/html")
                case _:
                    self._send(200, json.dumps(INSIDE[behaviour]))

        def _send(
            self, status: int, body: str, *, kind: str = "application/json", retry_after: str = ""
        ) -> None:
            self._head(status, len(body), kind, retry_after)
            self.wfile.write(body.encode())

        def _head(self, status: int, length: int, kind: str, retry_after: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.end_headers()

    return Handler


def answer(key: str) -> dict[str, Any]:
    """Return the answer to a request, the same for each request with the same key."""
    return {
        "id": f"chatcmpl-{key[:16]}",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": f"No code today. ({key})"},
            }
        ],
        "usage": {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": COMPLETION_TOKENS,
            "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
        },
    }


def main() -> None:
    """Serve until killed."""
    parser = Parser(prog="python -m benchmarks.answers.faulty_server", description=__doc__)
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.4)
    parser.add_argument("--forgets-keys", action="store_true")
    given = parser.parse_args()
    books = Books(seed=given.seed, faults=given.faults, forgets_keys=given.forgets_keys)
    server = Server(("127.0.0.1", 0), handler(books))
    partial = given.ready.with_suffix(".partial")
    partial.write_text(f"http://127.0.0.1:{server.server_address[1]}")
    partial.replace(given.ready)
    server.serve_forever()


if __name__ == "__main__":
    main()
