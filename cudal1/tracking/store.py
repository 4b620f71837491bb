"""The store of MLflow: `data/mlflow.db`, with artifacts under `data/mlruns`.

It is found again after the checkout was moved or copied. MLflow is imported when it is needed, with
its telemetry off.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cudal1.errors import StoreError
from cudal1.tracking import moved_store

log = logging.getLogger("cudal1")

EXPERIMENT = "cudal1"
DATABASE = "mlflow.db"


def settle(folder: Path) -> None:
    """Make the store if it is missing; correct its paths if it was moved or copied."""
    with clear_errors(folder):
        client_of(folder)


def client_of(folder: Path) -> tuple[Any, str]:
    """Return a client of the store in a folder, and the id of the experiment.

    Both are made where they are missing.
    """
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
def clear_errors(folder: Path) -> Generator[None]:
    """Translate what MLflow and its database raise into one line with the remedy.

    Raises:
        StoreError: the store refuses.
    """
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
