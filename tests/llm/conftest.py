"""Fixtures: a problem, its prompt, and an OpenAI-compatible server that misbehaves on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cudal1.llm.provider import Provider, Request, request_to
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompts.prompt import PromptStyle, generation_prompt
from tests.llm.receipts import Kept

SOURCE = """import torch
import torch.nn as nn

N = 4


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""

ANSWER = "```python\nclass ModelNew:\n    pass\n```"


@pytest.fixture
def problem() -> Problem:
    """Return a tiny problem of the shipped suite's shape."""
    return Problem(
        suite="toy",
        level=1,
        number=1,
        name="relu",
        split=Split.TRAIN,
        device_class=DeviceClass.CPU,
        revision="r",
        source=SOURCE,
    )


@pytest.fixture
def ask(problem: Problem) -> Callable[..., list[Request]]:
    """Return a function that makes the requests of a number of attempts."""

    def requests(provider: Provider, attempts: int = 1, seed: int = 0) -> list[Request]:
        return [
            request_to(
                provider,
                stage="generate@x",
                problem=problem,
                prompt=generation_prompt(problem, style=PromptStyle.COMPACT),
                attempt=attempt,
                seed=seed,
            )
            for attempt in range(attempts)
        ]

    return requests


@pytest.fixture
def kept() -> Kept:
    """Return empty receipts."""
    return Kept()


class Stub:
    """An OpenAI-compatible server; each request uses up a behaviour, but the last one stays."""

    def __init__(self) -> None:
        """Start a server that answers well until a test sets other behaviours."""
        self.behaviours: list[str] = ["ok"]
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.idempotency_keys: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        self.on_request: Callable[[], object] = lambda: None
        self.in_flight = 0
        self.most_in_flight = 0
        self.delay_s = 0.0
        self.retry_after_ms = "5"
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def base_url(self) -> str:
        """Return the URL at which the server listens."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def next_behaviour(self) -> str:
        """Return the behaviour for the next request, and use it up unless it is the last."""
        with self.lock:
            return self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]

    def stop(self) -> None:
        """Release hanging requests and close the server."""
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            with stub.lock:
                stub.bodies.append(json.loads(raw))
                stub.keys.append(self.headers.get("Authorization", ""))
                stub.idempotency_keys.append(self.headers.get("Idempotency-Key"))
                stub.headers.append(dict(self.headers))
                stub.on_request()
                stub.in_flight += 1
                stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
            time.sleep(stub.delay_s)
            with stub.lock:  # before the answer, after which the next request may come at once
                stub.in_flight -= 1
            self._behave(stub.next_behaviour())

        def _behave(self, behaviour: str) -> None:
            match behaviour:
                case "ok":
                    self._send(200, json.dumps(_chat("stop")))
                case "length":
                    self._send(200, json.dumps(_chat("length")))
                case "no choices":
                    self._send(200, json.dumps({"id": "x", "object": "chat.completion"}))
                case "empty choices":
                    self._send(200, json.dumps({**_chat("stop"), "choices": []}))
                case "drip":
                    self._drip(json.dumps(_chat("stop")))
                case "thoughts":
                    answer = _chat("stop")
                    answer["choices"][0]["message"]["reasoning_content"] = "```python\nbad\n```"
                    answer["usage"]["completion_tokens_details"] = {"reasoning_tokens": 400}
                    self._send(200, json.dumps(answer))
                case "cached":
                    answer = _chat("stop")
                    answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 80}
                    self._send(200, json.dumps(answer))
                case "refusal":
                    answer = _chat("stop")
                    answer["choices"][0]["message"] = {"content": None, "refusal": "I will not."}
                    self._send(200, json.dumps(answer))
                case "parts":
                    answer = _chat("stop")
                    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
                    answer["choices"][0]["message"]["content"] = parts
                    self._send(200, json.dumps(answer))
                case "logprobs":
                    answer = _chat("stop")
                    tokens = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]
                    answer["choices"][0]["logprobs"] = {"content": tokens}
                    self._send(200, json.dumps(answer))
                case "unbilled":
                    answer = _chat("stop")
                    del answer["usage"]
                    self._send(200, json.dumps(answer))
                case "echo":
                    answer = _chat("stop")
                    answer["choices"][0]["message"]["content"] = self.headers["Authorization"]
                    self._send(200, json.dumps(answer))
                case "echo refused":
                    said = {"error": {"message": self.headers["Authorization"]}}
                    self._send(400, json.dumps(said))
                case "huge counts":
                    answer = _chat("stop")
                    answer["usage"] = {"prompt_tokens": 3 * 10**9, "completion_tokens": 10**400}
                    self._send(200, json.dumps(answer))
                case "surrogate":
                    self._send(400, '{"error": {"message": "bad char \\ud83d"}}')
                case "infinite logprob":
                    answer = _chat("stop")
                    answer["choices"][0]["logprobs"] = {"content": [{"logprob": -float("inf")}]}
                    self._send(200, json.dumps(answer))
                case "utf-16":
                    self._send(200, json.dumps(_chat("stop")), "application/json; charset=utf-16")
                case "packed":
                    self._send(200, json.dumps(_chat("stop")), encoding="gzip")
                case "endless":
                    self._send(200, "x" * (1 << 20))
                case reason if reason.startswith("reason "):
                    self._send(200, json.dumps(_chat(reason.removeprefix("reason "))))
                case "beside":
                    answer = _chat("stop")
                    answer["usage"]["total_tokens"] = 800  # 200 of reasoning in no other number
                    self._send(200, json.dumps(answer))
                case "null content":
                    answer = _chat("content_filter")
                    answer["choices"][0]["message"]["content"] = None
                    self._send(200, json.dumps(answer))
                case "tool calls":
                    answer = _chat("tool_calls")
                    source = "class ModelNew:\n    pass\n"
                    called = {"name": "write_file", "arguments": json.dumps({"content": source})}
                    answer["choices"][0]["message"] = {
                        "content": None,
                        "tool_calls": [{"type": "function", "function": called}],
                    }
                    self._send(200, json.dumps(answer))
                case "wrong types":
                    answer = _chat("stop")
                    answer["choices"] = [{"message": {"content": 7}}]
                    answer["usage"] = "much"
                    self._send(200, json.dumps(answer))
                case "malformed":
                    self._send(200, '{"choices": [')
                case "html":
                    self._send(200, "<html>gateway</html>", content_type="text/html")
                case "hang":
                    stub.released.wait()
                    self.close_connection = True
                case body if body.startswith("says "):
                    _, status, said = body.split(" ", 2)
                    self._send(int(status), said)
                case "cut":
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"choices"')
                    self.close_connection = True
                case status:
                    self._send(int(status), json.dumps({"error": {"message": f"no: {status}"}}))

        def _drip(self, body: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for character in body:
                if stub.released.wait(0.05):
                    break
                try:
                    self.wfile.write(character.encode())
                    self.wfile.flush()
                except OSError:  # the client has gone away
                    break
            self.close_connection = True

        def _send(
            self, status: int, body: str, content_type: str = "application/json", encoding: str = ""
        ) -> None:
            encoded = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(encoded)))
            self.send_header("retry-after-ms", stub.retry_after_ms)
            if encoding:
                self.send_header("Content-Encoding", encoding)
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:9/v1")
            self.end_headers()
            self.wfile.write(encoded)

    return Handler


def _chat(finish_reason: str) -> dict[str, Any]:
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": ANSWER},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 500, "total_tokens": 600},
    }


@pytest.fixture
def stub() -> Iterator[Stub]:
    """Run a server."""
    server = Stub()
    yield server
    server.stop()
