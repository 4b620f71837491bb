"""The process that tries references: a request a line in, an answer a line out, in JSON.

It imports torch once and forks a child for each problem, so that whatever a file does (hang, crash,
fill memory, patch torch) ends with that child and costs nobody else. What is tried is `trial.py`;
who asks is `admission.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from types import TracebackType
from typing import Any, NoReturn

from cudal1.suite import trial

MEMORY_BYTES = 16 << 30
"""Address space of a child on the CPU. CUDA reserves more than any machine has: no limit there."""


def main() -> None:
    """Serve requests until the input ends."""
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin.buffer:
        answer = _in_a_child(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _in_a_child(request: dict[str, Any]) -> dict[str, Any]:
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        _be_the_child(request, sender)
    os.close(sender)
    time_limit_s = float(request["time_limit_s"])
    line, in_time = _listen(receiver, child, time.monotonic() + time_limit_s)
    os.close(receiver)
    _kill(child)  # a child that has ended keeps its status, and may have left others behind
    _, status = os.waitpid(child, 0)
    if line:
        return json.loads(line)
    return {"reason": _ending(status) if in_time else f"does not end within {time_limit_s:g} s"}


def _listen(receiver: int, child: int, deadline: float) -> tuple[bytes, bool]:
    """The child's line, empty if there was none; and whether it answered or ended in time."""
    received = b""
    ended = os.pidfd_open(child)
    watched = [receiver, ended]
    in_time = False
    while not in_time and (left_s := deadline - time.monotonic()) > 0:
        ready = select.select(watched, [], [], left_s)[0]
        if receiver in ready:
            chunk = os.read(receiver, 65536)
            received += chunk
            if not chunk:  # closed: a crash, or a file that closes what it did not open
                watched.remove(receiver)
        # an answer may still be in the pipe when its sender is gone
        in_time = received.endswith(b"\n") or ready == [ended]
    os.close(ended)
    return received if received.endswith(b"\n") else b"", in_time


def _kill(child: int) -> None:
    """End a child and what it started, wherever it went."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"crashes ({signal.Signals(os.WTERMSIG(status)).name})"
    return f"ends its process (exit status {os.waitstatus_to_exitcode(status)})"


def _be_the_child(request: dict[str, Any], sender: int) -> NoReturn:
    """Try one problem, answer, end. Whatever it raises reaches the hook, which answers too."""

    def answer(content: dict[str, Any]) -> NoReturn:
        os.write(sender, json.dumps(content).encode() + b"\n")
        os._exit(0)

    def on_uncaught(
        kind: type[BaseException], error: BaseException, _: TracebackType | None
    ) -> NoReturn:
        answer({"reason": " ".join(f"raises {kind.__name__}: {error}".split())[:300]})

    _limit(request)
    sys.excepthook = on_uncaught
    try:
        seen = trial.try_out(
            request["source"],
            device=request["device"],
            max_reference_ms=request["max_reference_ms"],
        )
    except trial.RejectedError as rejected:
        answer({"reason": str(rejected)})
    answer({"reason": None, **seen})


def _limit(request: dict[str, Any]) -> None:
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    cpu_s = int(request["time_limit_s"]) + 10  # should the parent be killed and never end it
    bounds = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, cpu_s)]
    if request["device"] == "cpu":
        bounds.append((resource.RLIMIT_AS, MEMORY_BYTES))
    for which, bound in bounds:
        hard = resource.getrlimit(which)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (bound, bound))


if __name__ == "__main__":
    main()
