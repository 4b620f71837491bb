"""Judge candidates that crash, hang or attack, and an honest candidate after each of them.

python -m benchmarks.judging.crashes [--device cuda] [--only "fork bomb" hangs]

Each must get a verdict that is not `correct`, unless what it did is harmless, and the honest
candidate judged next must be correct. What could hurt the machine itself is tried only where the
sandbox has the layers against it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from benchmarks.common import chosen, judge, note, options, own, print_table, save
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Verdict

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
"""
SOURCE = """import ctypes
import os
import signal
import sys
import time

import torch
import torch.nn as nn
{top}

class ModelNew(nn.Module):
    def forward(self, x):
        {body}
        return x * torch.sigmoid(x)
"""
CRASHED, NO_TIME, CORRECT, NOT_BUILT = "crashed", "timed_out", "correct", "no_build"
DEAD = frozenset({CRASHED, NO_TIME})
PIDS = frozenset({"own_pids", "own_proc", "pid_limit"})


@dataclass(frozen=True)
class Case:
    """A candidate that the judge must survive."""

    name: str
    body: str
    expected: frozenset[str]
    top: str = ""
    needs: frozenset[str] = frozenset()
    """Layers without which it is not tried."""
    cuda_only: bool = False

    @property
    def source(self) -> str:
        """Return the candidate's source."""
        return SOURCE.format(top=self.top, body=self.body)


WILD_READ = """
import triton
import triton.language as tl


@triton.jit
def wild(x_ptr, y_ptr):
    tl.store(y_ptr, tl.load(x_ptr + (1 << 40)))
"""
CASES = (
    Case("raises", "raise ValueError('no')", frozenset({CRASHED})),
    Case("raises on import", "pass", frozenset({NOT_BUILT}), top="raise ValueError('no')"),
    Case("hangs", "time.sleep(10_000)", frozenset({NO_TIME})),
    Case("hangs on import", "pass", frozenset({NO_TIME, NOT_BUILT}), top="time.sleep(10_000)"),
    Case(
        "hangs deaf to signals",
        "[signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; time.sleep(10_000)",
        frozenset({NO_TIME}),
    ),
    Case("segfaults", "ctypes.string_at(0)", frozenset({CRASHED})),
    Case("ends its process", "os._exit(0)", frozenset({CRASHED})),
    Case("kills itself", "os.kill(os.getpid(), signal.SIGKILL); os.abort()", frozenset({CRASHED})),
    Case("kills all it sees", "os.kill(-1, signal.SIGKILL)", DEAD | {CORRECT}, needs=PIDS),
    Case(
        "kills its parent",
        "os.getppid() and os.kill(os.getppid(), signal.SIGKILL)",
        DEAD | {CORRECT},
        needs=PIDS,
    ),
    Case("fork bomb", "[os.fork() for _ in iter(int, 1)]", DEAD, needs=PIDS),
    Case(
        "children that stay", "os.fork() == 0 and time.sleep(10_000)", DEAD | {CORRECT}, needs=PIDS
    ),
    Case(
        "memory bomb",
        "self.kept = [torch.ones(1 << 24) for _ in iter(int, 1)]",
        DEAD,
        needs=frozenset({"rlimits"}),
    ),
    Case("stack overflow", "f = lambda: f(); sys.setrecursionlimit(1 << 30); f()", DEAD),
    Case(
        "floods its output",
        "[os.write(n, b'x' * 65536) for _ in range(20_000) for n in (1, 2)]",
        DEAD | {CORRECT},
    ),
    Case(
        "fills its folder",
        "[open(f'f{i}', 'wb').write(bytes(1 << 24)) for i in range(1 << 20)]",
        DEAD,
        needs=frozenset({"private_folder", "read_only_files"}),
    ),
    Case("a long error", "raise ValueError('\\x1b[2J' + 'x' * (1 << 26))", frozenset({CRASHED})),
    Case(
        "device memory bomb",
        "self.kept = [torch.ones(1 << 28, device='cuda') for _ in iter(int, 1)]",
        DEAD,
        cuda_only=True,
    ),
    Case(
        "illegal address",
        "wild[(1,)](x, torch.empty_like(x)); torch.cuda.synchronize()",
        DEAD,
        top=WILD_READ,
        cuda_only=True,
    ),
    Case(
        "device assertion",
        "x.flatten()[torch.full((9,), 1 << 40, device='cuda')].sum().item()",
        DEAD,
        cuda_only=True,
    ),
    Case(
        "kernel that never ends",
        "[torch.cuda._sleep(1 << 40) for _ in range(64)]",
        DEAD,
        cuda_only=True,
    ),
)


def main() -> None:
    """Judge each, print a table, and write results/crashes_DEVICE.json."""
    parser = options("crashes", __doc__)
    parser.add_argument("--start-timeout", type=float, default=15.0, help="seconds")
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="of these alone")
    given = parser.parse_args()
    device, protocol = chosen(given)
    protocol = _patient_for(protocol, given.start_timeout, device.device_class)
    problem, found = own("silu", PROBLEM, device), list[dict[str, Any]]()
    with Pool(device, protocol) as pool:
        layers = frozenset(_next(pool, problem).sandbox)
        for case in CASES:
            if case.cuda_only and device.device_class is not DeviceClass.CUDA:
                continue
            if given.only and case.name not in given.only:
                continue
            found.append(_tried(pool, problem, case, layers))
            note(f"{case.name}: {found[-1]['outcome']}")
            save(f"crashes_{given.device}", given.out, device, protocol, cases=found)
    print_table(
        ["candidate", "verdict", "seconds", "", "the next one", ""], [_row(case) for case in found]
    )
    bad = [case["name"] for case in found if case["outcome"] not in ("good", "not tried")]
    print(f"{len(found) - len(bad)} of {len(found)} as they should be")
    raise SystemExit(1 if bad else 0)


def _patient_for(protocol: EvalProtocol, seconds: float, device: DeviceClass) -> EvalProtocol:
    """Return the protocol with shorter limits, since a hang is waited for many times."""
    limits: dict[str, object] = {"start_timeout_s": seconds, "build_timeout_s": seconds}
    if device is DeviceClass.CPU:
        limits["memory_bytes"] = 2 << 30
    return protocol.model_copy(update=limits)


def _tried(pool: Pool, problem: Problem, case: Case, layers: frozenset[str]) -> dict[str, Any]:
    if case.needs - layers:
        missing = ", ".join(sorted(case.needs - layers))
        return {"name": case.name, "outcome": "not tried", "missing": missing}
    started = time.monotonic()
    verdict = judge(pool, problem, case.source, timing=False)
    took_s = time.monotonic() - started
    following = _next(pool, problem)
    good = verdict.status in case.expected and following.is_successful
    return {
        "name": case.name,
        "outcome": "good" if good else "BAD",
        "status": verdict.status,
        "reason": verdict.reason,
        "seconds": took_s,
        "next_status": following.status,
        "next_reason": following.reason,
        "next_seconds": following.judge_s,
    }


def _next(pool: Pool, problem: Problem) -> Verdict:
    """Return the full verdict on the honest candidate."""
    return judge(pool, problem, problem.null_source)


def _row(case: dict[str, Any]) -> list[str]:
    if "status" not in case:
        return [case["name"], f"not tried: no {case['missing']}", "", "", "", ""]
    return [
        case["name"],
        case["status"],
        f"{case['seconds']:.1f}",
        case["outcome"],
        case["next_status"],
        f"{case['next_seconds']:.1f} s",
    ]


if __name__ == "__main__":
    main()
