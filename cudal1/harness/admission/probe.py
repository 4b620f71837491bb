"""The process that tries references: a request a line in, two answers a line out, in JSON.

It imports torch once and forks a child for each problem. Whatever a file does (hang, crash, exit,
print, fill memory, patch torch) ends with that child and costs no other problem. A child answers
twice: with what `trial.py` saw of the reference, and, where a protocol is given, with the mutants
that the correctness check notices (`harness.admission.mutants`). A request with a `profile_mode`
has one answer, the reference's profile (`harness.admission.profiling`). `admission.py` holds the
asking process.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

from cudal1.harness.admission import trial
from cudal1.harness.admission.admission import UNREADABLE
from cudal1.harness.admission.reasons import answered
from cudal1.harness.admission.required import require_accuracy
from cudal1.harness.device.device import Device
from cudal1.harness.reference import reference
from cudal1.harness.reference.keeper import (
    adopt_orphans,
    close_all_but,
    end_children,
    end_kept,
    fork_kept,
)
from cudal1.harness.reference.reference_code import CALL_LIMIT_S, end_with_a_hang
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol, Mode

CHILD_PREFIX = "cudal1-trial-"

MAX_ANSWER_BYTES = 1 << 20
"""Maximum bytes of a child's line; a problem with a hundred inputs takes a tenth of it."""
MEMORY_BYTES = 16 << 30
"""Bytes of address space of a child on the CPU. A CUDA child has no limit: CUDA reserves more than
any machine has."""


def main() -> None:
    """Serve requests until the input ends."""
    import torch

    torch.set_num_threads(1)
    adopt_orphans()
    # file descriptor 1 is for answers alone: the output of libraries is discarded
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    for line in sys.stdin.buffer:
        for answer in _in_a_child(json.loads(line)):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _in_a_child(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the child's answers; an answer with a reason is the last."""
    receiver, sender = os.pipe()
    folder = tempfile.mkdtemp(prefix=CHILD_PREFIX)
    child = fork_kept(partial(_be_the_child, request, sender, folder))
    os.close(sender)
    limits_s = [float(request["time_limit_s"])]
    if request["protocol"] is not None:
        limits_s.append(float(request["check_limit_s"]))
    left = bytearray()
    try:
        for time_limit_s in limits_s:
            line, in_time = _listen(receiver, child, time.monotonic() + time_limit_s, left)
            if not line:
                status, child = end_kept(child), 0
                said = _ending(status) if in_time else f"does not end within {time_limit_s:g} s"
                yield {"reason": said}
                return
            answer = _read(line)
            yield answer
            if answer.get("reason") is not None:
                return
    finally:
        os.close(receiver)
        if child:
            end_kept(child)
        end_children()  # those of a child that ended its keeper
        shutil.rmtree(folder, ignore_errors=True)


def _read(line: bytes) -> dict[str, Any]:
    """Return a child's answer, or a rejection if the problem wrote it itself."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    return answer if isinstance(answer, dict) else {"reason": UNREADABLE}


def _listen(receiver: int, child: int, deadline: float, left: bytearray) -> tuple[bytes, bool]:
    """Return the child's next line, empty without one, and whether it came in time.

    A child that ends in time counts as in time. `left` keeps the bytes received beyond the line. A
    line that is too long is replaced by one that is no JSON.
    """
    ended = os.pidfd_open(child)
    watched = [receiver, ended]
    in_time = b"\n" in left
    while not in_time and (left_s := deadline - time.monotonic()) > 0:
        ready = select.select(watched, [], [], left_s)[0]
        if receiver in ready:
            chunk = os.read(receiver, 65536)
            left += chunk
            if len(left) > MAX_ANSWER_BYTES and b"\n" not in left:
                left[:] = b"?\n"
            if not chunk:  # closed: a crash, or a file that closes what it did not open
                watched.remove(receiver)
        # an answer may still be in the pipe after its sender has ended
        in_time = b"\n" in left or ready == [ended]
    os.close(ended)
    line, end, rest = bytes(left).partition(b"\n")
    if not end:
        return b"", in_time
    left[:] = rest
    return line, in_time


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return f"does not return within {CALL_LIMIT_S:g} s"
    if os.WIFSIGNALED(status):
        return f"crashes ({signal.Signals(os.WTERMSIG(status)).name})"
    return f"ends its process (exit status {os.waitstatus_to_exitcode(status)})"


def _be_the_child(request: dict[str, Any], sender: int, folder: str) -> NoReturn:
    """Try one problem, answer, end. Any error that the problem raises is its reason."""

    def answer(content: dict[str, Any]) -> None:
        os.write(sender, json.dumps(content).encode() + b"\n")

    try:
        close_all_but(sender)
        _limit(request)
        end_with_a_hang()
        os.environ[reference.SCRATCH] = folder
        os.chdir(folder)
        problem = Problem.model_validate(request["problem"])
        look = _profiled if "profile_mode" in request else _seen
        seen = answered(partial(look, problem, request))
        answer(seen)
        if seen["reason"] is None and request["protocol"] is not None:
            answer(answered(partial(_examined, problem, request)))
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    finally:
        os._exit(0)


def _seen(problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
    protocol = _protocol(request)
    return trial.try_out(
        problem,
        device=request["device"],
        max_reference_ms=request["max_reference_ms"],
        mode=Mode.CONSTRUCTED if protocol is None else protocol.mode,
        is_examined=protocol is not None,
    )


def _profiled(problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
    from cudal1.harness.admission.profiling import profiled

    return profiled(problem, device=request["device"], mode=Mode(request["profile_mode"]))


def _examined(problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
    """Return the problem's kill table, and what an oracle learns of its reference."""
    from cudal1.harness.admission.mutants import examine
    from cudal1.harness.oracle.traits import Traits

    protocol, known = _protocol(request), request["traits"]
    assert protocol is not None
    table, traits = examine(
        problem,
        protocol,
        Device.model_validate(request["harness_device"]),
        None if known is None else Traits.model_validate(known),
    )
    require_accuracy(traits.off_by)
    return {"table": table.model_dump(mode="json"), "traits": traits.model_dump(mode="json")}


def _protocol(request: dict[str, Any]) -> EvalProtocol | None:
    given = request["protocol"]
    return None if given is None else EvalProtocol.model_validate(given)


def _limit(request: dict[str, Any]) -> None:
    os.setpgid(0, 0)  # signals to its process group end no other process
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    cpu_s = (
        int(request["time_limit_s"] + request["check_limit_s"]) + 10
    )  # in case the parent is killed and never ends the child
    bounds = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, cpu_s)]
    if not request["device"].startswith("cuda"):
        bounds.append((resource.RLIMIT_AS, MEMORY_BYTES))
    for which, bound in bounds:
        hard = resource.getrlimit(which)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (bound, bound))


if __name__ == "__main__":
    main()
