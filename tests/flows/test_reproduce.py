"""Tests that a stage is one task run: retried in a deployment, and cheap for Prefect's server."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from prefect import flow
from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.testing.utilities import prefect_test_harness

from cudal1.errors import DeviceError
from tasks import reproduce as module
from tasks.reproduce import bring_up_to_date

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with (
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
        prefect_test_harness(server_startup_timeout=900),
    ):
        yield


@pytest.fixture(autouse=True)
def nothing_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_fresh", lambda stage: False)
    monkeypatch.setattr(module, "RETRY_AFTER_S", [0.0, 0.0])


def run_flow(*stages: str) -> str | None:
    @flow(name="some")
    def some() -> str | None:
        return bring_up_to_date(stages)

    return some()


class Failing:
    """A stage that fails a few times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.tries: list[str] = []

    def __call__(self, stage: str, relay: object) -> bool:
        self.tries.append(stage)
        if len(self.tries) <= self.times:
            raise DeviceError("device cpu is in use")
        return False


def test_a_deployment_retries_a_failed_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Failing(2)
    monkeypatch.setattr(module, "_repro", stage)
    monkeypatch.setattr(module, "is_attended", lambda: False)
    assert run_flow("filter", "sft") is None
    assert stage.tries == ["filter"] * 3 + ["sft"]


def test_a_stage_that_keeps_failing_ends_the_flow_with_its_own_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Failing(99)
    monkeypatch.setattr(module, "_repro", stage)
    monkeypatch.setattr(module, "is_attended", lambda: False)
    assert run_flow("filter", "sft") == "device cpu is in use"
    assert stage.tries == ["filter"] * 3


def test_a_flow_at_a_terminal_runs_a_failing_stage_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Failing(99)
    monkeypatch.setattr(module, "_repro", stage)
    monkeypatch.setattr(module, "is_attended", lambda: True)
    assert run_flow("filter") == "device cpu is in use"
    assert stage.tries == ["filter"]


def test_calls_to_the_server_do_not_grow_with_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for client in (httpx.Client, httpx.AsyncClient):
        monkeypatch.setattr(client, "send", counting(client.send, calls))

    def calls_for(num_candidates: int) -> int:
        def judge(stage: str, relay: module.Relay) -> bool:
            for index in range(num_candidates):
                relay.take(f"filter: candidate {index} timed out")
                relay.take(f"candidates: {index + 1} of {num_candidates}")
            return False

        monkeypatch.setattr(module, "_repro", judge)
        before = len(calls)
        assert run_flow("filter") is None
        return len(calls) - before

    calls_for(1)  # the first flow of a process makes more calls
    few, many = calls_for(10), calls_for(10_000)
    assert few > 0
    assert many <= few + 50  # a busy server is asked again


def test_a_terminated_flow_ends_its_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "import os, time; print('at work:', os.getpid(), flush=True); time.sleep(600)"
    (tmp_path / "dvc.yaml").write_text(f'stages: {{long: {{cmd: "python -c \\"{said}\\""}}}}')
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm"], cwd=tmp_path, check=True)
    monkeypatch.setattr(module, "CHECKOUT", tmp_path)
    begun: list[int] = []

    class Terminated:
        """Is told to end as soon as the stage is at work."""

        def take(self, line: str) -> None:
            if line.startswith("at work: "):
                begun.append(int(line.rpartition(" ")[2]))
                raise TerminationSignal(signal=signal.SIGTERM)

    with pytest.raises(TerminationSignal):
        module._repro("long", Terminated())  # pyright: ignore[reportArgumentType]
    (process,) = begun
    assert not psutil.pid_exists(process)


def counting(send, calls: list[str]):
    def counted(self, request, *args, **kwargs):
        calls.append(str(request.url))
        return send(self, request, *args, **kwargs)

    return counted
