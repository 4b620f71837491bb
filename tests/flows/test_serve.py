"""Start server and worker as an operator does, schedule a run, and check that it runs.

The server is killed on the way: the run continues, and nothing of it is lost.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from cudal1.llm.server import free_port
from tests.flows.nights import make_night_project
from tests.project import ROOT, Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
PATIENCE_S = 900.0
THEIRS = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "all_proxy": "socks://127.0.0.1:9",
    "PREFECT_API_URL": "http://127.0.0.1:9/api",
    "PREFECT_PROFILE": "theirs",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    "MLFLOW_RUN_ID": "0",
    "DVC_ROOT": "/nowhere",
}
"""Variables of a user of other servers, behind a proxy."""
SCHEDULED_AHEAD_S = 15.0


@dataclass(frozen=True)
class Served:
    """`make prefect` in its own project."""

    project: Project
    process: subprocess.Popen[bytes]
    output: Path
    port: int

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer of Prefect's server; a body makes the request a POST."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        for _ in range(60):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # a busy database: Prefect's own clients retry, too
                    raise
                time.sleep(1)
        raise AssertionError(f"{path}: the server is busy for a minute")

    def schedule(self, name: str, *, ahead_s: float) -> str:
        """Schedule a run of a deployment; return its id."""
        deployment = self.ask(f"deployments/name/{name}")
        at = (datetime.now(UTC) + timedelta(seconds=ahead_s)).isoformat()
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": at}}
        run = self.ask(f"deployments/{deployment['id']}/create_flow_run", {"state": state})
        return run["id"]

    def run(self, run_id: str) -> dict[str, Any]:
        return self.ask(f"flow_runs/{run_id}")

    def state(self, run_id: str) -> str:
        return self.run(run_id)["state_type"]

    def server(self) -> psutil.Process:
        """Return the process that was started as Prefect's server."""
        children = psutil.Process(self.process.pid).children()
        (found,) = (child for child in children if "server" in child.cmdline())
        return found


def wait_until(holds: Callable[[], bool], *, what: str, output: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}\n" + (
            output.read_text()
        )
        time.sleep(0.5)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    project = make_night_project(tmp_path_factory.mktemp("project"))
    port, output = free_port(), project.folder / "serve.log"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.serve", "--port", str(port)],
            cwd=project.folder,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**project.environment(), **THEIRS},
        )
    made = Served(project, process, output, port)
    try:
        wait_until(
            lambda: process.poll() is not None or "started!" in output.read_text(),
            what="server and worker are there",
            output=output,
        )
        assert process.poll() is None, output.read_text()
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@dataclass(frozen=True)
class Finished:
    """A night, scheduled ahead; Prefect's server was killed in the middle of it."""

    served: Served
    run: dict[str, Any]
    late_s: float
    second: dict[str, Any]
    """A run that was requested meanwhile."""
    leases: list[str]
    """The files, when the server was killed, that say which run holds a deployment's slot."""


@pytest.fixture(scope="module")
def night(served: Served) -> Finished:
    run_id = served.schedule("nightly/nightly", ahead_s=SCHEDULED_AHEAD_S)

    def is_at_work() -> bool:
        return ", lessons: " in served.output.read_text()

    wait_until(is_at_work, what="the night is in stage lessons", output=served.output)
    second = served.schedule("nightly/nightly", ahead_s=0)
    wait_until(
        lambda: served.state(second) == "CANCELLED",
        what="a second night is left out",
        output=served.output,
    )
    leases = sorted(
        path.name
        for path in (served.project.folder / ".prefect" / "concurrency_leases").glob("*.json")
        if path.name != "expirations.json"
    )
    server = served.server()
    for process in (*server.children(recursive=True), server):
        process.kill()
    wait_until(
        lambda: "server had ended: started again" in served.output.read_text() and answers(served),
        what="the server is back",
        output=served.output,
    )
    wait_until(
        lambda: served.state(run_id) not in ("SCHEDULED", "PENDING", "RUNNING"),
        what="the night has ended",
        output=served.output,
    )
    run = served.run(run_id)
    begun = datetime.fromisoformat(run["start_time"])
    late = begun - datetime.fromisoformat(run["expected_start_time"])
    return Finished(served, run, late.total_seconds(), served.run(second), leases)


def answers(served: Served) -> bool:
    try:
        served.ask("health")
    except OSError:
        return False
    return True


def test_a_scheduled_run_begins_no_earlier_and_runs_to_its_end(night: Finished) -> None:
    assert night.run["state_type"] == "COMPLETED", night.served.output.read_text()
    # Prefect's server rounds a run's remaining wait to the nearest second
    assert night.late_s >= -0.5


def test_the_night_ends_with_a_decision(night: Finished) -> None:
    end = json.loads((night.served.project.data / "nightly" / "end.json").read_text())
    assert end["number"] == 1
    assert end["why"].startswith(("kept version 1", "promoted version 2 over 1"))


def test_each_stage_is_a_completed_task_run_despite_the_killed_server(night: Finished) -> None:
    filters = {"flow_runs": {"id": {"any_": [night.run["id"]]}}}

    def states() -> dict[str, str]:
        found = night.served.ask("task_runs/filter", filters)
        return {task["name"].partition(",")[0]: task["state_type"] for task in found}

    stages = ("night", "problems", "champion", "lessons", "tuned", "challenger", "duel", "promote")
    # the server writes task runs down a little after the flow run
    wait_until(
        lambda: states() == dict.fromkeys(stages, "COMPLETED"),
        what=f"all of {stages} completed",
        output=night.served.output,
    )


def test_two_nights_do_not_overlap(night: Finished) -> None:
    assert night.second["state_type"] == "CANCELLED"
    assert "concurrency limit" in night.second["state"]["message"]


def test_a_restarted_server_knows_which_run_holds_the_slot(night: Finished) -> None:
    """Without the record the server stops the run minutes later, when its lease is renewed."""
    assert len(night.leases) == 1


def test_the_flow_run_has_an_account_of_the_night(night: Finished) -> None:
    found = night.served.ask(
        "artifacts/filter",
        {"artifacts": {"key": {"any_": ["night"]}, "flow_run_id": {"any_": [night.run["id"]]}}},
    )
    (page,) = (artifact["data"] for artifact in found)
    assert page.startswith("# Night 1: version")
    assert "| champion (version 1) | challenger |" in page


def test_dvc_has_nothing_left_to_run(night: Finished) -> None:
    done = night.served.project.run("dvc", "repro", "--dry", "flows/night/dvc.yaml")
    assert done.returncode == 0, done.stdout
    assert "> python" not in done.stdout


def test_the_nightly_deployment_has_scheduled_runs(served: Served) -> None:
    """A scheduler that fails does so silently (docs of the pins in pyproject.toml)."""
    filters = {
        "deployments": {"name": {"any_": ["nightly"]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
    }
    wait_until(
        lambda: len(served.ask("flow_runs/filter", filters)) >= 2,
        what="nights are scheduled",
        output=served.output,
    )


def shown_commands(beginning: str) -> list[str]:
    """Return the commands of docs/operating.md that begin with `beginning`."""
    text = (ROOT / "docs" / "operating.md").read_text()
    return [line for line in re.findall(r"[^`\n]+", text) if line.startswith(beginning)]


def shell(served: Served, command: str) -> subprocess.CompletedProcess[str]:
    url = f"http://127.0.0.1:{served.port}/api"
    return subprocess.run(
        command.replace("http://127.0.0.1:4200/api", url),
        shell=True,
        text=True,
        check=False,
        cwd=served.project.folder,
        env={
            **served.project.environment(),
            "PREFECT_API_URL": url,
            "PREFECT_HOME": str(served.project.folder / ".tmp" / "users-prefect"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_the_documents_command_rolls_a_champion_back(night: Finished) -> None:
    (command,) = shown_commands("python -c 'from mlflow")
    done = shell(night.served, command.replace('"3"', '"1"'))
    assert done.returncode == 0, done.stdout
    done = shell(night.served, command.replace('"3"', '"99"'))
    assert done.returncode != 0


def test_the_documents_command_applies_a_change_of_prefect_yaml(night: Finished) -> None:
    (command,) = set(shown_commands("prefect --no-prompt deploy"))
    path = night.served.project.folder / "prefect.yaml"
    path.write_text(path.read_text().replace("0 2 * * *", "30 3 * * *"))
    done = shell(night.served, command)
    assert done.returncode == 0, done.stdout
    found = night.served.ask("deployments/name/nightly/nightly")["schedules"]
    assert [entry["schedule"]["cron"] for entry in found] == ["30 3 * * *"]


def test_the_documents_command_starts_a_run(night: Finished) -> None:
    (command,) = set(shown_commands("PREFECT_API_URL=http"))
    done = shell(night.served, command)
    assert done.returncode == 0, done.stdout
    assert "Created flow run" in done.stdout


def test_an_interrupt_ends_all_processes_of_prefect(served: Served, night: Finished) -> None:
    before = psutil.Process(served.process.pid).children(recursive=True)
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(PATIENCE_S) == 0, served.output.read_text()
    _, alive = psutil.wait_procs(before, timeout=PATIENCE_S)
    assert alive == []
    assert served.output.read_text().endswith("stopped\n")


def test_a_port_in_use_by_another_program_is_reported() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "flows.serve", "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "choose another --port" in done.stderr


def test_a_worker_alone_gives_the_option_for_the_servers_address() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.serve", "--worker"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **THEIRS},
    )
    assert done.returncode == 2
    assert "--api" in done.stderr
