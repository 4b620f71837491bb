"""Make what Prefect's server needs to start our flows: pool, queues, deployments.

Missing ones are made. Existing ones are left as they are, since an operator may have changed them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
    WorkQueueFilter,
    WorkQueueFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed

from cudal1.errors import ConfigError, StoreError
from cudal1.processes import python
from cudal1.settings.params import Params
from tasks.server.checkout import CHECKOUT
from tasks.server.prefect_home import HOME

POOL = "cudal1"
FILE = Path("prefect.yaml")
_BEGUN = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


def wanted_deployments() -> dict[str, str]:
    """Return the deployments of prefect.yaml and the queue of each.

    Raises:
        ConfigError: the file is absent, or a device of params.yaml has no deployment.
    """
    try:
        content: Any = yaml.safe_load(FILE.read_text(encoding="utf-8"))
        queues = {
            str(entry["name"]): str(entry["work_pool"]["work_queue_name"])
            for entry in content["deployments"]
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{FILE}: cannot be read ({' '.join(str(error).split())}); run this in the project's "
            "folder, with the file as it is in git"
        ) from error
    for device in Params.load(Path("params.yaml")).transfer.devices:
        if queues.get(f"transfer-{device}") != device:
            raise ConfigError(
                f"{FILE}: no deployment transfer-{device} on work queue {device}, though "
                f"params.yaml: transfer.devices names {device}; copy that of another device"
            )
    return queues


def make_what_is_missing(environment: Mapping[str, str]) -> list[str]:
    """Make what the server of PREFECT_API_URL lacks: pool, queues, deployments; return names.

    Raises:
        ConfigError: prefect.yaml is wrong.
        StoreError: the server refuses.
    """
    wanted = wanted_deployments()
    made: list[str] = []
    with SyncPrefectClient(environment["PREFECT_API_URL"]) as client:
        if not client.read_work_pools(
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL]))
        ):
            _prefect("work-pool", "create", POOL, "--type", "process", environment=environment)
            made.append(f"work pool {POOL}")
        known = {deployment.name for deployment in client.read_deployments()}
    missing = [name for name in wanted if name not in known]
    if missing:
        names = [word for name in missing for word in ("--name", name)]
        file = str(CHECKOUT / FILE)
        _prefect("--no-prompt", "deploy", "--prefect-file", file, *names, environment=environment)
        made += [f"deployment {name}" for name in missing]
    return made


def end_what_nobody_runs(api: str, queue: str) -> list[str]:
    """Mark runs without a worker as crashed, on the server at `api`; return their names.

    Call this only for a queue's only worker, which starts where no flow runs. Then a killed worker
    has begun whatever the queue shows as begun. Otherwise such a run would be called running for
    ever.
    """
    with SyncPrefectClient(api) as client:
        left = _begun(client, queue)
        for run in left:
            client.set_flow_run_state(
                run.id,
                force=True,
                state=Crashed(message="its worker was killed; what was done is kept: run it again"),
            )
    return [run.name for run in left]


def _begun(client: SyncPrefectClient, queue: str) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_BEGUN)))
        ),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL])),
        work_queue_filter=WorkQueueFilter(name=WorkQueueFilterName(any_=[queue])),
    )


def _prefect(*words: str, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        python("prefect", *words),
        env=dict(environment),
        cwd=HOME,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        said = " ".join(done.stdout.split())[-300:]
        raise StoreError(f"prefect {' '.join(words)}: {said}")
