"""MLflow: curves and checkpoints for people to look at, and the registry that names the champion.

Curves are write-only. One thing is read back from the registry: the version behind an alias, which
a person may move. The store is `data/mlflow.db`, artifacts lie under `data/mlruns`, also after the
checkout was moved or copied. MLflow is imported when it is needed, with its telemetry off.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cudal1.errors import StoreError
from cudal1.tracking import moved_store

log = logging.getLogger("cudal1")

EXPERIMENT = "cudal1"
DATABASE = "mlflow.db"
MODEL_NAME = "cudal1"
"""Name of the registered model; its versions are our policies."""
NEWEST = "newest"
"""The alias of the policy that the pipeline made last: the first champion."""
MAX_PARAM_LETTERS = 500
_ARTIFACT = "policy"
_KEPT_AT = "kept_at"
"""The tag with the time at which a run kept a whole policy; a continued run may have begun
earlier."""


@dataclass(frozen=True)
class Version:
    """A policy in the registry; it never changes."""

    number: int
    made_at: str
    """ISO 8601, UTC."""


class Run:
    """One MLflow run of one training stage.

    An unfinished run of the same stage and key (its process was killed or failed) is continued, so
    that the curve stays one; after a finished one a new run begins. So all work of a stage that may
    be killed and continued belongs inside.

    Attributes:
        last_step: the last step with numbers in the run; -1: none.
    """

    def __init__(self, folder: Path, stage: str, *, key: str, params: Mapping[str, object]) -> None:
        self._folder = folder
        self._stage = stage
        self._key = key
        self._params = params
        self._run_id = ""
        self._client: Any = None
        self.last_step = -1

    def __enter__(self) -> Self:
        with _clear_errors(self._folder):
            self._client, experiment = _client(self._folder)
            found = self._client.search_runs(
                [experiment],
                filter_string=(
                    f"tags.key = '{self._key}' and tags.stage = '{self._stage}' "
                    "and attributes.status != 'FINISHED'"
                ),
                max_results=1,
            )
            if found:
                self._run_id = found[0].info.run_id
                self._client.update_run(self._run_id, status="RUNNING")
                self.last_step = max(
                    (
                        point.step
                        for name in found[0].data.metrics
                        for point in self._client.get_metric_history(self._run_id, name)
                    ),
                    default=-1,
                )
            else:
                self._start(experiment)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        status = "FINISHED" if error is None else "FAILED"
        try:
            with _clear_errors(self._folder):
                self._client.set_terminated(self._run_id, status=status)
        except StoreError as refused:
            if error is None:
                raise
            log.warning("%s", refused)  # the error that stopped the training matters more

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of one step, in one write; a number logged twice would stay twice."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        with _clear_errors(self._folder):
            self._client.log_batch(
                self._run_id,
                metrics=[
                    Metric(name, float(value), now_ms, step) for name, value in values.items()
                ],
            )
        self.last_step = max(step, self.last_step)

    def log_checkpoint(self, policy: Path) -> None:
        """Keep the finished policy as the run's artifact."""
        with _clear_errors(self._folder):
            self._client.log_artifacts(self._run_id, str(policy), _ARTIFACT)
            self._client.set_tag(self._run_id, _KEPT_AT, datetime.now(UTC).isoformat())

    def _start(self, experiment: str) -> None:
        from mlflow.entities import Param

        run = self._client.create_run(
            experiment, run_name=self._stage, tags={"key": self._key, "stage": self._stage}
        )
        self._run_id = run.info.run_id
        self._client.log_batch(
            self._run_id,
            params=[
                Param(name, str(value)[:MAX_PARAM_LETTERS]) for name, value in self._params.items()
            ],
        )


def settle(folder: Path) -> None:
    """Make the store if it is missing; correct its paths if it was moved or copied."""
    with _clear_errors(folder):
        _client(folder)


def register(folder: Path, name: str, policy: Path, *, alias: str) -> int:
    """Register the policy that a stage of its name logged last as the newest model version.

    Returns:
        The version; the existing one when that run's policy is registered already.

    Raises:
        StoreError: no run of that stage is in the store, or the store refuses.
    """
    from mlflow.exceptions import MlflowException

    with _clear_errors(folder):
        client, experiment = _client(folder)
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        runs = client.search_runs(
            [experiment],
            filter_string=f"tags.stage = '{policy.name}'",
            order_by=[f"tags.{_KEPT_AT} DESC"],
            max_results=1,
        )
        if not runs:
            raise StoreError(
                f"{folder / DATABASE}: no run of stage {policy.name} to register; run it first"
            )
        run = runs[0].info
        known = client.search_model_versions(f"name = '{name}' and run_id = '{run.run_id}'")
        version = (
            known[0]
            if known
            else client.create_model_version(
                name, source=f"{run.artifact_uri}/{_ARTIFACT}", run_id=run.run_id
            )
        )
        client.set_registered_model_alias(name, alias, version.version)
        return int(version.version)


def version_of(folder: Path, name: str, *, alias: str) -> Version | None:
    """Return the version that an alias points to; None without the alias.

    Raises:
        StoreError: the store refuses.
    """
    from mlflow.exceptions import MlflowException

    with _clear_errors(folder):
        client, _ = _client(folder)
        try:
            found = client.get_model_version_by_alias(name, alias)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            return None
    made = datetime.fromtimestamp(found.creation_timestamp / 1000, UTC)
    return Version(int(found.version), made.isoformat(timespec="seconds"))


def point(folder: Path, name: str, *, alias: str, version: int) -> None:
    """Move an alias to a version.

    Raises:
        StoreError: there is no such version, or the store refuses.
    """
    with _clear_errors(folder):
        client, _ = _client(folder)
        client.set_registered_model_alias(name, alias, str(version))


def bring(folder: Path, name: str, *, version: int, out: Path) -> None:
    """Copy the policy of a version into `out`, in place of its content.

    Raises:
        StoreError: there is no such version, its files are gone, or the store refuses.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    with _clear_errors(folder):
        client, _ = _client(folder)
        source = client.get_model_version(name, str(version)).source
        try:
            found = download_artifacts(artifact_uri=source)
        except (MlflowException, OSError) as error:
            raise StoreError(
                f"{name} version {version}: its files are gone ({source}): move the alias to "
                "another version, such as the one that the pipeline registered last"
            ) from error
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(found, out)


def note(folder: Path, name: str, *, version: int, tags: Mapping[str, object]) -> None:
    """Attach tags to a version, for people to read.

    Raises:
        StoreError: there is no such version, or the store refuses.
    """
    with _clear_errors(folder):
        client, _ = _client(folder)
        for key, value in tags.items():
            client.set_model_version_tag(name, str(version), key, str(value))


def notes(folder: Path, name: str, *, version: int) -> dict[str, str]:
    """Return the tags of a version.

    Raises:
        StoreError: there is no such version, or the store refuses.
    """
    with _clear_errors(folder):
        client, _ = _client(folder)
        return dict(client.get_model_version(name, str(version)).tags)


def _client(folder: Path) -> tuple[Any, str]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    for noisy in ("alembic", "mlflow", "mlflow.store.db.utils"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    store = f"sqlite:///{folder.resolve() / DATABASE}"
    client = MlflowClient(tracking_uri=store, registry_uri=store)
    location = (folder.resolve() / "mlruns").as_uri()
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        created = client.create_experiment(EXPERIMENT, artifact_location=location)
        moved_store.rename(folder / DATABASE, location, location)
        return client, created
    if found.artifact_location != location:
        moved_store.rename(folder / DATABASE, found.artifact_location, location)
        log.info("%s: moved or copied here; its policies are in %s", DATABASE, folder / "mlruns")
    return client, found.experiment_id


@contextmanager
def _clear_errors(folder: Path) -> Generator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, sqlite3.Error) as error:
        said = str(error).split("\n", 1)[0]
        remedy = (
            "another process holds it: stop it, or wait, and run again"
            if "locked" in said
            else "move the file away to start a new store, and run again"
        )
        raise StoreError(f"{folder / DATABASE}: MLflow cannot use it ({said}); {remedy}") from error
