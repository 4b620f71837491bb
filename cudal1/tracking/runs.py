"""Runs in MLflow: curves and marks for people to look at, one run a training stage.

Runs are write-only. The stages' runs are drawn inside one that holds a whole pipeline, or a night.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cudal1.errors import StoreError
from cudal1.tracking.store import clear_errors, client_of

log = logging.getLogger("cudal1")

HELDOUT = "heldout/"
"""Prefix of the metrics of an examination on held-out problems, which are drawn together."""
VALIDATION = "validation/"
"""Prefix of the metrics of checkpoints on the problems that choose one of them."""
MARK = f"{HELDOUT}mean_reward"
"""The mark by which the best policy is chosen."""
MAX_PARAM_LETTERS = 500
MAX_METRICS = 1000
"""Points that MLflow takes in one call."""
ARTIFACT = "policy"
POLICY = "policy"
"""The tag with the name of the policy that a run has kept."""
KEPT_AT = "kept_at"
"""The tag with the time at which a run kept a whole policy; a continued run may have begun
earlier."""
_WHOLE = "whole"
"""The tag of a run that holds the runs of its stages: `pipeline`, or a night."""
_PARENT = "mlflow.parentRunId"
"""MLflow's tag of a run that is drawn inside another."""
_TEXT = "mlflow.note.content"
"""MLflow's tag with a run's or an experiment's description, in Markdown."""


class Run:
    """One MLflow run of one training stage.

    An unfinished run of the same stage and key (its process was killed or failed) is continued, so
    that the curve stays one; after a finished one a new run begins. So all work of a stage that may
    be killed and continued belongs inside.

    Args:
        folder: the folder of the store.
        stage: the stage that trains.
        key: id of the stage's parameters and input.
        params: settings of the training.
        name: what ran, for people; by default the stage.
        whole: the run that this one is drawn inside of: `pipeline`, or a night; None: inside none.
        tags: what the numbers depend on, such as commit and device.

    Attributes:
        last_step: the last step with numbers in the run; -1: none.
    """

    def __init__(
        self,
        folder: Path,
        stage: str,
        *,
        key: str,
        params: Mapping[str, object],
        name: str | None = None,
        whole: str | None = None,
        tags: Mapping[str, str] = {},
    ) -> None:
        self._folder = folder
        self._stage = stage
        self._key = key
        self._params = params
        self._name = name or stage
        self._whole = whole
        self._tags = tags
        self._run_id = ""
        self._client: Any = None
        self.last_step = -1

    def __enter__(self) -> Self:
        with clear_errors(self._folder):
            self._client, experiment = client_of(self._folder)
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
                        if not name.startswith((HELDOUT, VALIDATION))
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
            with clear_errors(self._folder):
                self._client.set_terminated(self._run_id, status=status)
        except StoreError as refused:
            if error is None:
                raise
            log.warning("%s", refused)  # the error that stopped the training matters more

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of one step, in one write; a number logged twice would stay twice."""
        self._write({step: values})
        self.last_step = max(step, self.last_step)

    def mark(self, marks: Mapping[str, float]) -> None:
        """Log a finished policy's marks on held-out problems, once, at the run's last step."""
        self._log_once({max(0, self.last_step): {f"{HELDOUT}{k}": v for k, v in marks.items()}})

    def mark_checkpoints(self, marks: Mapping[int, Mapping[str, float]]) -> None:
        """Log the marks on validation problems of checkpoints, by step, once."""
        self._log_once(
            {
                step: {f"{VALIDATION}{name}": value for name, value in each.items()}
                for step, each in marks.items()
            }
        )

    def _log_once(self, values: Mapping[int, Mapping[str, float]]) -> None:
        """Log marks by step, in one write, unless the run has them."""
        with clear_errors(self._folder):
            known = self._client.get_run(self._run_id).data.metrics
        if not any(numbers.keys() & known.keys() for numbers in values.values()):
            self._write(values)

    def _write(self, values: Mapping[int, Mapping[str, float]]) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        with clear_errors(self._folder):
            self._client.log_batch(
                self._run_id,
                metrics=[
                    Metric(name, float(value), now_ms, step)
                    for step, numbers in values.items()
                    for name, value in numbers.items()
                ],
            )

    def log_checkpoint(self, policy: Path) -> None:
        """Keep the finished policy as the run's artifact."""
        with clear_errors(self._folder):
            self._client.log_artifacts(self._run_id, str(policy), ARTIFACT)
            self._client.set_tag(self._run_id, POLICY, policy.name)
            self._client.set_tag(self._run_id, KEPT_AT, datetime.now(UTC).isoformat())

    def _start(self, experiment: str) -> None:
        from mlflow.entities import Param

        tags = {**self._tags, "key": self._key, "stage": self._stage}
        if self._whole is not None:
            tags[_PARENT] = _whole_run(self._client, experiment, self._whole, self._tags)
        run = self._client.create_run(experiment, run_name=self._name, tags=tags)
        self._run_id = run.info.run_id
        self._client.log_batch(
            self._run_id,
            params=[
                Param(name, str(value)[:MAX_PARAM_LETTERS]) for name, value in self._params.items()
            ],
        )


def close(
    folder: Path,
    whole: str,
    *,
    text: str,
    numbers: Mapping[str, float],
    by_stage: Sequence[Mapping[str, float]] = (),
    tags: Mapping[str, str],
    is_only: bool = False,
) -> None:
    """End the run that holds the stages' runs, with what it has shown as its description.

    Where no stage has begun one since the last was closed, one is made.

    Args:
        folder: the folder of the store.
        whole: `pipeline`, or a night.
        text: the description, in Markdown.
        numbers: metrics of the whole.
        by_stage: the marks of each stage's policy in their order, drawn as one curve.
        tags: what the numbers depend on.
        is_only: whether the name is that of one run alone; closing it again changes nothing.
    """
    from mlflow.entities import Metric, RunTag

    now_ms = int(time.time() * 1000)
    steps = [(0, numbers), *enumerate(by_stage)]
    metrics = [
        Metric(name, float(value), now_ms, step)
        for step, values in steps
        for name, value in values.items()
    ]
    said = [RunTag(name, value) for name, value in {**tags, _TEXT: text}.items()]
    with clear_errors(folder):
        client, experiment = client_of(folder)
        if is_only and client.search_runs(
            [experiment], f"tags.{_WHOLE} = '{whole}' and attributes.status = 'FINISHED'"
        ):
            return
        run_id = _whole_run(client, experiment, whole, tags)
        for first in range(0, len(metrics), MAX_METRICS):
            client.log_batch(run_id, metrics=metrics[first : first + MAX_METRICS])
        client.log_batch(run_id, tags=said)
        client.set_terminated(run_id, status="FINISHED")


def _whole_run(client: Any, experiment: str, whole: str, tags: Mapping[str, str]) -> str:
    """Return the open run of a whole; begin one where there is none."""
    found = client.search_runs(
        [experiment],
        filter_string=f"tags.{_WHOLE} = '{whole}' and attributes.status != 'FINISHED'",
        max_results=1,
    )
    if found:
        return str(found[0].info.run_id)
    begun = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    made = client.create_run(
        experiment, run_name=f"{whole} of {begun} UTC", tags={**tags, _WHOLE: whole}
    )
    return str(made.info.run_id)
