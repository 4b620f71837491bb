"""Fixtures: a folder with two clients, the loop on a played device, and a server in a process."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from cudal1.candidate import Candidate
from cudal1.ledger import Ledger
from cudal1.processes import python, sparse
from cudal1.record import content_id
from cudal1.serving.bench import Bench
from cudal1.serving.clients import add_token
from cudal1.serving.judging_loop import JudgingLoop
from cudal1.serving.messages import Asks
from cudal1.serving.store import Received, SubmissionStore
from tests.serving.played import PROBLEMS, RULES, PlayedDevice, played

START_LIMIT_S = 120.0


def received(source: str, problem: int = 0, **asks: object) -> Received:
    """Return a submission as the interface hands it to the store."""
    wanted = Asks.model_validate(asks)
    candidate = Candidate(problem_id=PROBLEMS[problem].id, source=source)
    protocol = wanted.verdict_protocol(RULES.protocol)
    return Received(
        content_id(candidate.problem_id, source, protocol.id), PROBLEMS[problem], candidate, wanted
    )


@dataclass
class Judging:
    """A loop with all that it works on."""

    store: SubmissionStore
    ledger: Ledger
    device: PlayedDevice
    loop: JudgingLoop

    def submit(self, client: str, *sources: str, **asks: object) -> list[str]:
        """Submit candidates; return the submissions' ids."""
        given = [received(source, **asks) for source in sources]
        self.store.add(client, given, max_waiting=1000)
        self.loop.notify()
        return [each.id for each in given]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SubmissionStore]:
    opened = SubmissionStore(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def judging(tmp_path: Path, store: SubmissionStore) -> Iterator[Judging]:
    """Provide a loop that has not started."""
    device = PlayedDevice()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("serve@1")
        loop = JudgingLoop(
            store,
            ledger,
            Bench(RULES, lambda: played(device)),
            {each.id: each for each in PROBLEMS},
            RULES,
            share_of=lambda _: 1.0,
            settled=lambda *_: None,
            one_team=False,
        )
        yield Judging(store, ledger, device, loop)
        if loop.is_alive:
            loop.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; only a hang reaches the limit."""
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


@dataclass
class Running:
    """A server in a process of its own, with the tokens of its clients."""

    url: str
    tokens: dict[str, str]
    folder: Path
    process: subprocess.Popen[bytes]

    def client(self, name: str) -> httpx2.Client:
        """Return a client of the server."""
        return httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.tokens[name]}"},
            timeout=120.0,
            trust_env=False,
        )


@contextmanager
def running(
    folder: Path, tokens: dict[str, str], port: int, *, delay_s: float
) -> Iterator[Running]:
    """Run a server with a played device until the end, which may be a kill."""
    command = python("tests.serving.played", str(folder), str(port), str(delay_s))
    process = subprocess.Popen(command, env=sparse())
    try:
        url = f"http://127.0.0.1:{port}"

        def is_up() -> bool:
            assert process.poll() is None, "the server has ended"
            try:
                return httpx2.get(f"{url}/health", trust_env=False).status_code == 200
            except httpx2.TransportError:
                return False

        until(is_up)
        yield Running(url, tokens, folder, process)
    finally:
        process.terminate()
        process.wait(60)


def new_folder(folder: Path, *names: str) -> dict[str, str]:
    """Return the tokens of new clients."""
    return {name: add_token(folder / "tokens.yaml", name) for name in names}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for tests that do not end it."""
    folder = tmp_path_factory.mktemp("serve")
    tokens = new_folder(folder, "alice", "bob", "operator", "own", "little")
    path = folder / "tokens.yaml"
    settings = {
        "operator": "metrics: true",
        "own": "own_problems: true",
        "little": "max_waiting: 3\n  max_bytes: 2000\n  max_open: 2",
    }
    text = path.read_text()
    for name, line in settings.items():
        text = text.replace(f"{name}:\n", f"{name}:\n  {line}\n")
    path.write_text(text)
    with running(folder, tokens, free_port(), delay_s=0.0) as found:
        for name in tokens:  # before a test guesses tokens from the same address
            with found.client(name) as client:
                assert client.get("/v1/problems").status_code == 200
        yield found


def free_port() -> int:
    """Return a port that was free just now."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
