"""Tests that our server is started, watched and stopped; a small program stands in for vLLM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cudal1.errors import ProviderDownError, ProviderError
from cudal1.llm import server
from cudal1.llm.provider import Request, complete
from cudal1.llm.vllm import VllmProvider
from cudal1.settings.provider_settings import VllmSettings
from tests.llm.receipts import Kept

Ask = Callable[..., list[Request]]
FAKE = Path(__file__).with_name("fake_vllm.py")
OWNER = """
import sys
from tests.llm.receipts import Kept
from tests.llm.test_vllm import Fake
with Fake(__import__("pathlib").Path(sys.argv[1])).provider().open(Kept()):
    print("open", flush=True)
    sys.stdin.read()
"""


class Fake:
    """A folder with a stand-in interpreter, a stand-in policy, and notes."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "python"
        self.policy = folder / "policy"
        self.notes_path = folder / "notes.jsonl"

    def write(self) -> Fake:
        self.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        self.python.chmod(0o755)
        self.policy.mkdir()
        (self.policy / "config.json").write_text("{}")
        return self

    def provider(self, *, weights: str = "w", **changes: Any) -> VllmProvider:
        values: dict[str, Any] = {
            "kind": "vllm",
            "path": str(self.policy),
            "python": str(self.python),
            "max_model_tokens": 512,
            "gpu_memory_share": 0.4,
            "start_timeout_s": 60.0,
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 16,
            "concurrency": 4,
            "timeout_s": 20.0,
            "max_retries": 0,
            **changes,
        }
        return VllmProvider("x", VllmSettings(**values), lambda folder: weights)

    def notes(self) -> list[dict[str, Any]]:
        lines = self.notes_path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def clock(self) -> float:
        """Return 0 until the server, which may start slowly, has begun to load; then the time."""
        logs = self.notes_path.parent.glob("cudal1-server-*/server.log")
        is_loading = any("loading weights" in log.read_text() for log in logs)
        return time.monotonic() if is_loading else 0.0

    @property
    def pids(self) -> list[int]:
        return self.notes()[0]["pids"]

    @property
    def folder(self) -> Path:
        return Path(self.notes()[0]["folder"])


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Make a stand-in that behaves well unless FAKE_VLLM says otherwise."""
    fake = Fake(tmp_path).write()
    monkeypatch.setenv("FAKE_VLLM_NOTES", str(fake.notes_path))
    # logs of servers that failed stay: not among those of real ones
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return fake


def are_gone(pids: list[int], within_s: float = 60.0) -> bool:
    """Return whether no such process is left; an ended process that was not reaped is gone."""
    deadline = time.monotonic() + within_s
    while any(is_at_work(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_at_work(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_provider_answers_from_a_server_that_it_started(fake: Fake, ask: Ask, kept: Kept) -> None:
    provider = fake.provider()
    completions = list(complete(provider, ask(provider, attempts=3), kept))
    assert [completion.text for completion in completions] == ["hello"] * 3


def test_the_server_gets_its_policy_and_its_port(fake: Fake, kept: Kept) -> None:
    with fake.provider().open(kept):
        arguments = fake.notes()[0]["arguments"]
    assert arguments[:2] == ["-m", "vllm.entrypoints.openai.api_server"]
    told = dict(zip(arguments[2::2], arguments[3::2], strict=False))
    assert (told["--model"], told["--host"]) == (str(fake.policy), "127.0.0.1")
    assert told["--max-model-len"] == "512"


def test_a_server_on_a_cpu_computes_eagerly_in_full_precision(
    fake: Fake, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake.policy))
    with fake.provider().open(kept):
        started = fake.notes()[0]
    assert {"float32", "--enforce-eager"} <= set(started["arguments"])
    assert started["environment"]["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_a_server_on_a_gpu_may_compile(
    fake: Fake, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = fake.policy / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.policy))
    with fake.provider().open(kept):
        started = fake.notes()[0]
    assert "--enforce-eager" not in started["arguments"]
    assert "TORCHDYNAMO_DISABLE" not in started["environment"]


@pytest.mark.slow
def test_every_request_carries_its_own_seed(fake: Fake, ask: Ask, kept: Kept) -> None:
    provider = fake.provider()
    list(complete(provider, ask(provider, attempts=3), kept))
    bodies = [note["body"] for note in fake.notes()[1:]]
    assert len({body["seed"] for body in bodies}) == 3
    assert all(0 <= body["seed"] < 2**31 for body in bodies)


@pytest.mark.slow
def test_the_settings_are_sent(fake: Fake, ask: Ask, kept: Kept) -> None:
    provider = fake.provider(temperature=0.25, top_p=None, max_tokens=9)
    list(complete(provider, ask(provider), kept))
    body = fake.notes()[1]["body"]
    assert (body["temperature"], body["max_tokens"]) == (0.25, 9)
    assert "top_p" not in body


@pytest.mark.slow
def test_only_the_process_that_started_the_server_knows_the_key(
    fake: Fake, ask: Ask, kept: Kept
) -> None:
    provider = fake.provider()
    list(complete(provider, ask(provider), kept))
    started, asked = fake.notes()
    key = started["environment"]["VLLM_API_KEY"]
    assert asked["key"] == f"Bearer {key}"
    assert key not in started["arguments"]
    with provider.open(kept):
        assert fake.notes()[-1]["environment"]["VLLM_API_KEY"] != key


@pytest.mark.slow
def test_the_server_cannot_import_our_modules(
    fake: Fake, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    with fake.provider().open(kept):
        started = fake.notes()[0]
    assert "PYTHONPATH" not in started["environment"]
    assert Path(started["folder"]) != Path.cwd()


@pytest.mark.slow
def test_no_process_of_the_server_is_left_at_the_end(fake: Fake, kept: Kept) -> None:
    with fake.provider().open(kept):
        assert not are_gone(fake.pids, within_s=0.2)
    assert are_gone(fake.pids, within_s=0.0)
    assert not fake.folder.exists()


def test_an_error_of_the_caller_stops_the_server_too(fake: Fake, kept: Kept) -> None:
    with pytest.raises(KeyboardInterrupt), fake.provider().open(kept):
        raise KeyboardInterrupt
    assert are_gone(fake.pids, within_s=0.0)
    assert not fake.folder.exists()


@pytest.mark.slow
def test_a_server_that_does_not_stop_is_killed(
    fake: Fake, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "stubborn")
    with fake.provider().open(kept):
        pass
    assert are_gone(fake.pids, within_s=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_its_owner_however_the_owner_ends(
    fake: Fake, end: signal.Signals
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(fake.python.parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"open\n"
    owner.send_signal(end)
    owner.communicate()
    assert are_gone(fake.pids)


def test_a_server_that_dies_at_the_start_gives_the_reason(
    fake: Fake, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies at start")
    with pytest.raises(ProviderError) as caught:
        fake.provider().open(kept).__enter__()
    message = str(caught.value)
    log = fake.folder / "server.log"
    assert message == (
        "provider x: vLLM died while it started: ValueError: 7 heads cannot be split; "
        f"its log: {log}"
    )
    assert "loading weights" in log.read_text()
    assert are_gone(fake.pids, within_s=0.0)


@pytest.mark.parametrize("behaviour", ["hangs", "never healthy"])
def test_a_server_that_does_not_come_up_is_given_up(
    fake: Fake, kept: Kept, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setenv("FAKE_VLLM", behaviour)
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=fake.clock, sleep=time.sleep))
    provider = fake.provider(start_timeout_s=1.5)
    with pytest.raises(ProviderError, match=r"within 1\.5 s .*: loading weights; its log"):
        provider.open(kept).__enter__()
    assert are_gone(fake.pids, within_s=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "words"), [("dies later", "MemoryError: the w"), ("is killed", "killed by SIGK")]
)
def test_a_server_that_dies_at_work_gives_the_reason(
    fake: Fake, ask: Ask, kept: Kept, monkeypatch: pytest.MonkeyPatch, behaviour: str, words: str
) -> None:
    monkeypatch.setenv("FAKE_VLLM", behaviour)
    provider = fake.provider(concurrency=1)
    # one or two are lost with it, as data; the next finds no server there
    with pytest.raises(ProviderDownError, match=f"provider x: vLLM died: {words}"):
        list(complete(provider, ask(provider, attempts=5), kept))
    assert are_gone(fake.pids, within_s=0.0)


def test_a_missing_interpreter_names_the_command_that_makes_it(fake: Fake) -> None:
    with pytest.raises(ProviderError, match=r"no interpreter \.venv-none/python; run `make vllm`"):
        fake.provider(python=".venv-none/python")


def test_a_missing_policy_names_its_path(fake: Fake) -> None:
    with pytest.raises(ProviderError, match="provider x: gone holds no policy"):
        fake.provider(path="gone")


def test_weights_and_seed_are_part_of_the_question(fake: Fake, ask: Ask) -> None:
    asked = [
        ask(fake.provider(weights=weights), seed=seed)[0].id
        for weights, seed in (("a", 1), ("b", 1), ("a", 2))
    ]
    assert len(set(asked)) == 3


def test_patience_and_concurrency_do_not_change_the_question(fake: Fake, ask: Ask) -> None:
    other = fake.provider(concurrency=9, timeout_s=1.0, start_timeout_s=1.0, max_retries=7)
    assert ask(other)[0].id == ask(fake.provider())[0].id


def test_no_server_is_started_before_it_is_needed(fake: Fake) -> None:
    assert fake.provider().fingerprint
    assert not fake.notes_path.exists()
