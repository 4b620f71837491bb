"""Measure what HTTP, queue and ledger add to a verdict, in milliseconds.

python -m benchmarks.serving.overhead [--count 300] [--out FOLDER]

`known` is from a request to its answer, for a verdict that the client has had before. `new` is from
a submission to its verdict, where the device answers at once. What is left is the server's own:
three writes to the queue, one to the ledger, and the fleet. `cpu` is the processor time of the
server's process. `health` is the least that any request takes on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from benchmarks import common
from benchmarks.arguments import Parser
from benchmarks.serving.judge_server import CANDIDATE, PROBLEM, RULES
from benchmarks.serving.servers import Server, running
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass

SETTINGS = "  requests_per_minute: 1000000\n"


def main() -> None:
    """Measure, and write results/serving_overhead.json."""
    parser = Parser(
        prog="python -m benchmarks.serving.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serving-overhead-") as name:
        found = measured(Path(name), given.count)
    print(json.dumps(found, indent=1))
    device = find_device(DeviceClass.FAKE)
    common.save("serving_overhead", given.out, device, RULES.protocol, **found)


def measured(folder: Path, count: int) -> dict[str, Any]:
    """Return quantiles of the times of each kind of request."""
    with (
        running(Server(folder, "instant", ["alice"], SETTINGS)) as server,
        httpx2.Client(
            base_url=server.url,
            headers={"Authorization": f"Bearer {server.tokens['alice']}"},
            timeout=120.0,
            trust_env=False,
        ) as client,
    ):

        def submit(number: int) -> None:
            content = {
                "problem": PROBLEM.key,
                "source": CANDIDATE.format(number=number),
                "timing": False,
            }
            response = client.post("/v1/submissions", json=content, params={"wait_s": 60})
            assert response.json()["state"] == "done", response.text

        submit(0)  # the fleet opens, and connections are made
        return {
            "load_of_the_machine": os.getloadavg()[0],
            "health": _times(lambda _: client.get("/health"), count, server),
            "known": _times(lambda _: submit(0), count, server),
            "new": _times(lambda number: submit(number + 1), count, server),
        }


def _times(ask: Callable[[int], object], count: int, server: Server) -> dict[str, float]:
    found: list[float] = []
    cpu_s = server.cpu_s()
    for number in range(count):
        began = time.perf_counter()
        ask(number)
        found.append((time.perf_counter() - began) * 1e3)
    cuts = statistics.quantiles(found, n=20)
    return {
        "num_requests": count,
        "median_ms": round(statistics.median(found), 2),
        "p95_ms": round(cuts[-1], 2),
        "fastest_tenth_ms": round(cuts[1], 2),
        "cpu_ms": round((server.cpu_s() - cpu_s) * 1e3 / count, 2),
    }


if __name__ == "__main__":
    main()
