"""Test that `cudal1 optimize` loses no fact and pays for none twice when it is killed with SIGKILL.

python -m benchmarks.optimizing.kills [--kills 20] [--seed 0] [--out FOLDER]

A server that speaks OpenAI's protocol writes versions of one module, and counts what it is asked by
Idempotency-Key. The command is started and killed, with all its processes, after a number of
questions and verdicts that is drawn anew. After each kill every fact that the ledger had must be
there, verdicts with their times. A question with an answer in the ledger must not come again. The
last run is not killed; it must keep a proven version.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions
from cudal1 import processes
from cudal1.ledger import Ledger

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PROVIDER = "writer"
MODULE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.stack([torch.relu(row) for row in x])


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
VERSION = """```python
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) {extra}
```"""
MOST_EVENTS = 8
"""Largest number of questions and verdicts in a run before it is killed."""
RUN_LIMIT_S = 600.0
POLL_S = 0.01


class Server(ThreadingHTTPServer):
    """A server that says nothing about clients that were killed."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has gone away."""


class Writer:
    """A server that answers each key with another version, and counts.

    Of five versions in turn one is no code and one is wrong.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked: Counter[str] = Counter()
        self._server = Server(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return the address for `base_url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        """Stop to serve."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, key: str) -> str:
        """Return what is written for a question, the same for the same key."""
        with self._lock:
            self.asked[key] += 1
            number = list(self.asked).index(key)
        if number % 5 == 0:
            return "I would fuse the loop into one call."
        return VERSION.format(extra="+ 1.0" if number % 5 == 1 else f"* 1.0 + {number} * 0.0")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        writer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

            def do_POST(self) -> None:
                """Complete a chat."""
                self.rfile.read(int(self.headers["Content-Length"]))
                said = writer.answer(self.headers["Idempotency-Key"])
                message = {"role": "assistant", "content": said}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                usage = {"prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140}
                body = json.dumps(
                    {
                        "id": "chatcmpl-1",
                        "object": "chat.completion",
                        "created": 0,
                        "model": "m",
                        "choices": [choice],
                        "usage": usage,
                    }
                ).encode()
                with suppress(OSError):  # the client was killed
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        return Handler


def main() -> None:
    """Kill and check again and again; write results/optimize_kills.json."""
    parser = Parser(
        prog="python -m benchmarks.optimizing.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="optimize-kills-") as name:
        found = kill_often(Path(name), num_kills=given.kills, seed=given.seed)
    content = {
        "benchmark": "optimize_kills",
        "measured": time.strftime("%Y-%m-%d"),
        "cpu": cpu_name(),
        "versions": versions("torch", "duckdb", "openai"),
        **found,
    }
    print(json.dumps(content, indent=1))
    path = given.out / "optimize_kills.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    bad = found["num_lost"] + found["num_paid_twice"] + (found["last_exit_code"] != 0)
    sys.exit(bad > 0)


def kill_often(folder: Path, *, num_kills: int, seed: int) -> dict[str, Any]:
    """Kill the command so many times, let it end once, and return what was lost or paid twice."""
    rng, writer = random.Random(seed), Writer()
    (folder / "model.py").write_text(MODULE, encoding="utf-8")
    (folder / "params.yaml").write_text(_params(writer.url), encoding="utf-8")
    (folder / "locks").mkdir()
    ledger = folder / "model.optimize"
    lost: set[str] = set()
    twice: set[str] = set()
    moments: list[int] = []
    facts: dict[str, str] = {}
    try:
        while len(moments) < num_kills:
            events, before = rng.randint(0, MOST_EVENTS), Counter(writer.asked)
            was_killed = _killed_after(folder, writer, events, rng.random())
            twice |= _asked_in_vain(before, writer.asked, facts)
            now = _facts(ledger)
            lost |= {key for key, value in facts.items() if now.get(key) != value}
            facts = now
            if was_killed:
                moments.append(events)
        before = Counter(writer.asked)
        done = subprocess.run(
            _command(verdicts=4),
            cwd=folder,
            env=_environment(folder),
            check=False,
            capture_output=True,
            text=True,
            timeout=RUN_LIMIT_S,
        )
        twice |= _asked_in_vain(before, writer.asked, facts)
        now = _facts(ledger)
        lost |= {key for key, value in facts.items() if now.get(key) != value}
    finally:
        writer.close()
    return {
        "num_kills": len(moments),
        "events_before_kills": moments,
        "num_lost": len(lost),
        "num_paid_twice": len(twice),
        "num_questions": len(writer.asked),
        "num_facts": len(now),
        "last_exit_code": done.returncode,
        "last_said": done.stderr.strip().splitlines(),
        "verdicts": [value for key, value in now.items() if key.startswith("verdict ")],
    }


def _asked_in_vain(before: Counter[str], now: Counter[str], facts: dict[str, str]) -> set[str]:
    """Return questions that came although their answers were in the ledger."""
    return {key for key, count in now.items() if count > before[key] and f"answer {key}" in facts}


def _facts(folder: Path) -> dict[str, str]:
    """Return every answer and verdict of the ledger, with its content or result."""
    if not (folder / "journal").exists():
        return {}
    with Ledger.read(folder) as ledger:
        answers = ledger.sql("select completion_id, decode(answer) as said from completions")
        verdicts = ledger.sql(
            "select candidate_id, judged_at, concat_ws(' ', status, reason, speedup) as said"
            " from verdicts"
        )
    found = {f"answer {row['completion_id']}": row["said"] for row in answers.to_dicts()}
    return found | {
        f"verdict {row['candidate_id']} {row['judged_at']}": row["said"]
        for row in verdicts.to_dicts()
    }


def _killed_after(folder: Path, writer: Writer, events: int, delay_s: float) -> bool:
    """Start the command and kill it after so many events and a delay; return if it was running."""
    journal = folder / "model.optimize" / "journal" / "optimize.jsonl"

    def num_events() -> int:
        size = journal.read_bytes().count(b'"verdicts"') if journal.exists() else 0
        return writer.asked.total() + size

    before = num_events()
    child = subprocess.Popen(
        _command(verdicts=MOST_EVENTS + 4),
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + RUN_LIMIT_S
    while num_events() - before < events and child.poll() is None and time.monotonic() < until:
        time.sleep(POLL_S)
    time.sleep(delay_s)
    was_running = child.poll() is None
    below = psutil.Process(child.pid).children(recursive=True) if was_running else []
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for process in below:  # some are in sessions of their own
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(below, timeout=10)
    return was_running


def _command(*, verdicts: int) -> list[str]:
    return processes.python(
        "cudal1.cli",
        "optimize",
        "model.py",
        "--with",
        PROVIDER,
        "--params",
        "params.yaml",
        "--verdicts",
        str(verdicts),
        "--usd",
        "1",
    )


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment with locks of its own, so that no other judge is waited for."""
    return processes.sparse(TMPDIR=str(folder / "locks"))


def _params(url: str) -> str:
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["protocol"] |= {"min_quads": 9, "max_quads": 9}
    params["generate"]["providers"] = {
        PROVIDER: {
            "kind": "openai",
            "model": "m",
            "base_url": url,
            "api_key_env": None,
            "temperature": 1.0,
            "top_p": None,
            "max_tokens": 400,
            "max_completion_tokens": None,
            "reasoning_effort": None,
            "usd_per_million_prompt_tokens": 1.0,
            "usd_per_million_cached_prompt_tokens": None,
            "usd_per_million_completion_tokens": 1.0,
            "requests_per_minute": None,
            "tokens_per_minute": None,
            "budget_usd": None,
            "concurrency": 2,
            "timeout_s": 30.0,
            "max_retries": 2,
        }
    }
    return yaml.safe_dump(params, sort_keys=False)


if __name__ == "__main__":
    main()
