"""MLflow, write-only: curves and checkpoints for people to look at. Nothing reads it back.

The store is `data/mlflow.db`, artifacts lie under `data/mlruns`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cudal1.errors import StoreError

EXPERIMENT = "cudal1"


class Run:
    """One MLflow run of one training stage; a restart with the same key continues it."""

    def __init__(
        self, folder: Path, stage: str, *, key: str, params: Mapping[str, object]
    ) -> None:
        self._folder = folder
        self._stage = stage
        self._key = key
        self._params = params
        self._run_id = ""
        self._client: Any = None

    def __enter__(self) -> Self:
        with _clear_errors(self._folder):
            self._client, experiment = _client(self._folder)
            found = self._client.search_runs(
                [experiment], filter_string=f"tags.key = '{self._key}'", max_results=1
            )
            if found:
                self._run_id = found[0].info.run_id
                self._client.set_terminated(self._run_id, status="RUNNING")
            else:
                tags = {"key": self._key, "stage": self._stage}
                run = self._client.create_run(experiment, run_name=self._stage, tags=tags)
                self._run_id = run.info.run_id
                for name, value in self._params.items():
                    self._client.log_param(self._run_id, name, str(value)[:500])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _clear_errors(self._folder):
            self._client.set_terminated(
                self._run_id, status="FINISHED" if error is None else "FAILED"
            )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of one step, in one write."""
        import time

        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        with _clear_errors(self._folder):
            self._client.log_batch(
                self._run_id,
                metrics=[Metric(name, value, now_ms, step) for name, value in values.items()],
            )

    def log_checkpoint(self, policy: Path) -> None:
        """Keep the finished policy as the run's artifact."""
        with _clear_errors(self._folder):
            self._client.log_artifacts(self._run_id, str(policy), "policy")


def register(folder: Path, name: str, policy: Path, *, alias: str) -> int:
    """Register a policy as the newest version of a model; returns the version."""
    from mlflow.exceptions import MlflowException

    with _clear_errors(folder):
        client, experiment = _client(folder)
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        runs = client.search_runs(
            [experiment], filter_string=f"tags.stage = '{policy.name}'", max_results=1
        )
        run = runs[0].info
        version = client.create_model_version(
            name, source=f"{run.artifact_uri}/policy", run_id=run.run_id
        )
        client.set_registered_model_alias(name, alias, version.version)
        return int(version.version)


def _client(folder: Path) -> tuple[Any, str]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import logging

    from mlflow import MlflowClient

    for noisy in ("alembic", "mlflow", "mlflow.store.db.utils"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return client, found.experiment_id
    location = (folder.resolve() / "mlruns").as_uri()
    return client, client.create_experiment(EXPERIMENT, artifact_location=location)


@contextmanager
def _clear_errors(folder: Path) -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        raise StoreError(
            f"{folder / 'mlflow.db'}: MLflow cannot write ({str(error).splitlines()[0]}); move the "
            "file away to start a new store"
        ) from error
