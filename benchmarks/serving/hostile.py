"""Count what a hostile client achieves, and measure whether it slows another client down.

python -m benchmarks.serving.hostile [--pairs 10] [--window 12] [--out FOLDER]

An honest client submits candidates one after the other; the server judges for real on the fake
device, checks only. Windows without and with the attacks follow one another, in turns, and are
compared in pairs: by verdicts a second, and by the time of a request for a known answer. All
attacks go on at once, by a process of the lowest priority, at RATE requests a second:

* bodies that are too long, by their header and chunked;
* bodies that are malformed, one of them as long as a body may be and with a mistake in each item;
* wrong tokens;
* other clients' answers, read by their ids;
* connections that send a byte a second, SLOW at a time.

Long bodies come from a second client, since they use its requests of a minute up. Each attack
counts the responses that it should not have had.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2

from benchmarks import common
from benchmarks.arguments import Parser
from benchmarks.serving.judge_server import CANDIDATE, PROBLEM, RULES
from benchmarks.serving.servers import Server, running
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass
from cudal1.processes import python, sparse

RATE = 5.0
"""Requests a second of each attack."""
SLOW = 150
"""Connections that are slow."""
UNLIMITED = "  requests_per_minute: 1000000\n"
"""Setting of the honest client, which asks as often as it can."""
LONG = 3 << 20
"""Bytes of a body that is too long."""
MISTAKES = b'{"submissions":[' + b"1," * 1_000_000 + b"1]}"
"""A body with a million mistakes, nearly as long as a body may be."""
REFUSED = {400, 401, 403, 404, 409, 413, 422, 429}


def main() -> None:
    """Attack, measure, and write results/serving_hostile.json."""
    parser = Parser(
        prog="python -m benchmarks.serving.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--window", type=float, default=12.0, help="seconds")
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    parser.add_argument("--attack", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        attack(*given.attack)
        return
    with tempfile.TemporaryDirectory(prefix="serving-hostile-") as name:
        found = measured(Path(name), given.pairs, given.window)
    print(json.dumps(found, indent=1))
    device = find_device(DeviceClass.FAKE)
    common.save("serving_hostile", given.out, device, RULES.protocol, **found)


def measured(folder: Path, num_pairs: int, window_s: float) -> dict[str, Any]:
    """Return the counts of the attacks, and the ratios of paired windows."""
    counts = Counter[str]()
    verdicts: list[float] = []
    requests: list[float] = []
    numbers = itertools.count()
    with (
        running(Server(folder, "fake", ["honest", "hostile", "wordy"], UNLIMITED)) as server,
        httpx2.Client(
            base_url=server.url,
            headers={"Authorization": f"Bearer {server.tokens['honest']}"},
            timeout=120.0,
            trust_env=False,
        ) as client,
    ):
        secret = _submit(client, next(numbers))
        attacker = _attacker(server, secret)
        _told(attacker, "off")  # it has started when it answers
        for pair in range(num_pairs):
            order = (False, True) if pair % 2 else (True, False)
            found: dict[bool, tuple[float, float]] = {}
            for is_attacked in order:
                if is_attacked:
                    _told(attacker, "on")
                found[is_attacked] = _window(client, numbers, window_s)
                if is_attacked:
                    counts = Counter(_told(attacker, "off"))
            verdicts.append(found[True][0] / found[False][0])
            requests.append(found[True][1] / found[False][1])
        attacker.communicate("")
    return {
        "load_of_the_machine": os.getloadavg()[0],
        "num_pairs": num_pairs,
        "window_s": window_s,
        "attacks": dict(sorted(counts.items())),
        "num_let_through": sum(n for name, n in counts.items() if name.endswith("let through")),
        "verdicts_a_second_attacked_over_quiet": _interval(verdicts),
        "milliseconds_of_a_known_answer_attacked_over_quiet": _interval(requests),
    }


def _interval(ratios: list[float]) -> dict[str, Any]:
    """Return the median of ratios with a 95 % bootstrap interval."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return {
        "median": round(statistics.median(ratios), 3),
        "low": round(medians[49], 3),
        "high": round(medians[1949], 3),
        "each": [round(each, 3) for each in ratios],
    }


def _submit(client: httpx2.Client, number: int) -> str:
    content = {
        "problem": PROBLEM.key,
        "source": CANDIDATE.format(number=f"honest {number}"),
        "timing": False,
    }
    response = client.post("/v1/submissions", json=content, params={"wait_s": 60})
    assert response.json()["state"] == "done", response.text
    return response.json()["id"]


def _window(client: httpx2.Client, numbers: Iterator[int], window_s: float) -> tuple[float, float]:
    """Return verdicts a second, and the median milliseconds of a request for a known answer."""
    began, count = time.monotonic(), 0
    known: list[float] = []
    while time.monotonic() - began < window_s:
        submission = _submit(client, next(numbers))
        count += 1
        for _ in range(5):
            at = time.perf_counter()
            client.get(f"/v1/submissions/{submission}")
            known.append((time.perf_counter() - at) * 1e3)
    return count / (time.monotonic() - began), statistics.median(known)


# --- the attacker's process ----------------------------------------------------------------------


def _attacker(server: Server, secret: str) -> subprocess.Popen[str]:
    tokens = server.tokens
    words = (
        "--attack",
        server.url,
        tokens["hostile"],
        tokens["wordy"],
        secret,
        tokens["honest"][:8],
    )
    return subprocess.Popen(
        ["nice", "-n", "19", *python("benchmarks.serving.hostile", *words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=sparse(),
    )


def _told(attacker: subprocess.Popen[str], word: str) -> dict[str, int]:
    """Tell the attacker to begin or to pause; return what has come of its attacks so far."""
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    attacker.stdin.write(f"{word}\n")
    attacker.stdin.flush()
    return json.loads(attacker.stdout.readline())


def attack(url: str, token: str, wordy: str, secret: str, beginning: str) -> None:
    """Attack while standard input says so; answer each of its lines with the counts so far."""
    counts: Counter[str] = Counter()
    for line in sys.stdin:
        stop: list[bool] = []
        if line.strip() == "on":
            threads = [
                Thread(target=_requests, args=(url, token, wordy, secret, beginning, counts, stop)),
                Thread(target=_slow, args=(url, counts, stop)),
            ]
            for each in threads:
                each.start()
            print(json.dumps(counts), flush=True)
            sys.stdin.readline()
            stop.append(True)
            for each in threads:
                each.join()
        print(json.dumps(counts), flush=True)


def _requests(
    url: str,
    token: str,
    wordy: str,
    secret: str,
    beginning: str,
    counts: Counter[str],
    stop: list[bool],
) -> None:
    mine, other = (
        {"Authorization": f"Bearer {each}", "content-type": "application/json"}
        for each in (token, wordy)
    )
    kinds: dict[str, Callable[[httpx2.Client, int], httpx2.Response]] = {
        "oversize": lambda c, _: c.post("/v1/batches", content=b"x" * LONG, headers=mine),
        "oversize, chunked": lambda c, _: c.post(
            "/v1/batches", content=iter([b"x" * (1 << 18)] * 12), headers=other
        ),
        "malformed, long": lambda c, _: c.post("/v1/batches", content=MISTAKES, headers=other),
        "malformed": lambda c, n: c.post(
            "/v1/batches", content=(b"[" * 9999, b"{", b"\xff", b"null")[n % 4], headers=mine
        ),
        "token guessed": lambda c, n: c.get(
            "/v1/answers", headers={"Authorization": f"Bearer {beginning}{n:035d}"}
        ),
        "other's verdict": lambda c, _: c.get(f"/v1/submissions/{secret}", headers=mine),
    }
    with httpx2.Client(base_url=url, timeout=60.0, trust_env=False) as client:
        for number in itertools.count():
            if stop:
                return
            for kind, ask in kinds.items():
                try:
                    is_through = ask(client, number).status_code not in REFUSED
                except httpx2.TransportError:  # the server ends the connection before it has all
                    is_through = False
                counts[f"{kind}: {'let through' if is_through else 'refused'}"] += 1
            time.sleep(1.0 / RATE)


def _slow(url: str, counts: Counter[str], stop: list[bool]) -> None:
    host, port = url.removeprefix("http://").split(":")
    opened: list[socket.socket] = []
    while not stop:
        while len(opened) < SLOW:
            opened.append(socket.create_connection((host, int(port))))
            opened[-1].sendall(b"POST /v1/batches HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        for each in list(opened):
            try:
                each.sendall(b"x")
            except OSError:
                counts["slow: ended by the server"] += 1
                opened.remove(each)
                each.close()
        time.sleep(1.0)
    counts["slow: still open at the end"] += len(opened)
    for each in opened:
        each.close()


if __name__ == "__main__":
    main()
