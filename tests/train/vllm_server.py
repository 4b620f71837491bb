"""Serve a vLLM server's HTTP for TRL's client; answers tell which prompt they are to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

NUM_TOKENS = 5


class Server:
    """A server that records its requests, and lets a test hold answers back."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.num_syncs = 0
        self.syncs_before: list[int] = []
        """For each request, the number of earlier transfers of weights."""
        self.hold: Callable[[list[int]], object] = lambda prompt: None
        """A function that is called with a prompt; its answers wait until the function returns."""

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer all prompts of a request."""
        self.asked.append(body)
        self.syncs_before.append(self.num_syncs)
        for prompt in body["prompt"]:
            self.hold(prompt)
        return {
            "choices": [_choice(prompt, i) for prompt in body["prompt"] for i in range(body["n"])]
        }


def answer(prompt: Sequence[int], index: int) -> list[int]:
    """Return the tokens of one answer to a prompt."""
    return [20 + (sum(prompt) + 7 * index + 3 * place) % 200 for place in range(NUM_TOKENS)]


def logprobs(tokens: Sequence[int]) -> list[float]:
    """Return the server's log-probabilities of the tokens."""
    return [-token / 100 for token in tokens]


def _choice(prompt: list[int], index: int) -> dict[str, Any]:
    tokens = answer(prompt, index)
    return {
        "prompt_token_ids": prompt,
        "token_ids": tokens,
        "index": index,
        "logprobs": {
            "tokens": [f"token_id:{token}" for token in tokens],
            "token_logprobs": logprobs(tokens),
            "top_logprobs": [None] * len(tokens),
        },
    }


@contextmanager
def serving(server: Server) -> Generator[None]:
    """Listen on a free port until the end of the context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

        def do_GET(self) -> None:
            logprobs_mode = {"model_config": {"logprobs_mode": "processed_logprobs"}}
            self._send({"data": [{"id": "policy"}], "vllm_config": logprobs_mode})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(server.complete(body))

        def _send(self, content: dict[str, Any]) -> None:
            encoded = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def stand_in(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let TRL believe that vLLM is here; weights, which go over NCCL, are counted instead."""
    from trl.generation import vllm_client, vllm_generation

    def begin(self: Any) -> None:
        self.vllm_client = vllm_client.VLLMClient(base_url=self.server_base_url)

    def sync_weights(self: Any) -> None:
        server.num_syncs += 1

    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda **_: True)
    monkeypatch.setattr(vllm_generation.VLLMGeneration, "_init_vllm", begin)
    monkeypatch.setattr(vllm_generation.VLLMGeneration, "sync_weights", sync_weights)
