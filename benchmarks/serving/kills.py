"""Count verdicts that are lost or made twice where the server is killed during submissions.

python -m benchmarks.serving.kills [--submissions 1000] [--clients 8] [--kills 2] [--out FOLDER]

Clients submit different candidates, and some that all of them submit. The server judges for real on
the fake device, checks only. It is killed with SIGKILL when a third and two thirds of the answers
are there, and started again at once. Clients repeat their requests until they have all answers.

A verdict is lost if its submission has no verdict in the end, or another one than was answered
before. It is made twice if the device's process has returned two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.arguments import Parser
from benchmarks.serving.judge_server import CANDIDATE, PROBLEM, RULES
from benchmarks.serving.servers import Server
from cudal1.harness.device.device import find_device
from cudal1.ledger import Ledger
from cudal1.problem import DeviceClass
from cudal1.serving.client import RemoteJudge
from cudal1.serving.messages import Answer, State, Submission

SHARED = 5
"""One of so many candidates is submitted by all clients."""
BATCH = 5
"""Submissions of one request."""


def main() -> None:
    """Kill, count, and write results/serving_kills.json."""
    parser = Parser(
        prog="python -m benchmarks.serving.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serving-kills-") as name:
        found = killed(
            Path(name),
            num_submissions=given.submissions,
            num_clients=given.clients,
            num_kills=given.kills,
        )
    print(json.dumps(found, indent=1))
    device = find_device(DeviceClass.FAKE)
    common.save("serving_kills", given.out, device, RULES.protocol, **found)


def killed(
    folder: Path, *, num_submissions: int, num_clients: int, num_kills: int
) -> dict[str, Any]:
    """Return the counts of one run."""
    names = [f"client{number}" for number in range(num_clients)]
    server = Server(folder, "fake", names)
    server.start()
    answers: dict[str, list[Answer]] = {name: [] for name in names}
    began = time.monotonic()
    resumed_s: list[float] = []
    with ThreadPoolExecutor(num_clients) as clients:
        each = num_submissions // num_clients
        running = [clients.submit(_submit, server, name, each, answers[name]) for name in names]
        for number in range(num_kills):
            _wait_for(answers, num_submissions * (number + 1) // (num_kills + 1))
            server.kill()
            at = time.monotonic()
            before = sum(map(len, answers.values()))
            server.start()
            _wait_for(answers, before + num_clients)
            resumed_s.append(round(time.monotonic() - at, 1))
        for client in running:
            client.result()
    took_s = time.monotonic() - began
    later = {name: _asked_again(server, name, answers[name]) for name in names}
    server.stop()
    made = Counter((folder / "made").read_text().split("\n")[:-1])
    pairs = [pair for name in names for pair in zip(answers[name], later[name], strict=True)]
    return {
        "num_submissions": len(pairs),
        "num_clients": num_clients,
        "num_kills": num_kills,
        "num_different_candidates": len(made),
        "num_lost": sum(now.state is not State.DONE for _, now in pairs),
        "num_changed": sum(first != now for first, now in pairs),
        "num_made_twice": sum(count - 1 for count in made.values()),
        "num_not_in_ledger": len(made) - _num_in_ledger(folder),
        "seconds": round(took_s, 1),
        "seconds_from_a_kill_to_eight_more_answers": resumed_s,
    }


def _wait_for(answers: dict[str, list[Answer]], count: int) -> None:
    while sum(map(len, answers.values())) < count:
        time.sleep(0.05)


def _submit(server: Server, name: str, count: int, found: list[Answer]) -> None:
    """Submit a client's candidates in small batches; gather the answers as they come."""
    texts = [
        CANDIDATE.format(number=f"all {at}" if at % SHARED == 0 else f"{name} {at}")
        for at in range(count)
    ]
    waiting: list[Answer] = []
    is_done = threading.Event()

    def gather() -> None:
        with RemoteJudge(server.url, server.tokens[name]) as judge:
            while not (is_done.is_set() and len(found) == len(waiting)):
                if len(found) < len(waiting):
                    found.append(judge.wait(waiting[len(found)]))
                else:
                    time.sleep(0.01)

    gathering = threading.Thread(target=gather)
    gathering.start()
    with RemoteJudge(server.url, server.tokens[name]) as judge:
        for start in range(0, count, BATCH):
            given = [
                Submission(problem=PROBLEM.key, source=text, timing=False)
                for text in texts[start : start + BATCH]
            ]
            waiting.extend(judge.submit(given))
            while len(waiting) - len(found) > 4 * BATCH:
                time.sleep(0.02)
    is_done.set()
    gathering.join()


def _asked_again(server: Server, name: str, answers: list[Answer]) -> list[Answer]:
    with RemoteJudge(server.url, server.tokens[name]) as judge:
        return [judge.poll(each.id) for each in answers]


def _num_in_ledger(folder: Path) -> int:
    with Ledger.read(folder) as ledger:
        return ledger.sql("select distinct candidate_id from verdicts").height


if __name__ == "__main__":
    main()
