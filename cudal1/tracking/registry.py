"""MLflow's registry: the versions of our policies, and the aliases that name the best and champion.

One thing is read back: the version behind an alias, which a person may move.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cudal1.errors import StoreError
from cudal1.tracking.runs import ARTIFACT, HELDOUT, KEPT_AT, MARK, POLICY
from cudal1.tracking.store import DATABASE, clear_errors, client_of

MODEL_NAME = "cudal1"
"""Name of the registered model; its versions are our policies."""
BEST = "best"
"""The alias of the pipeline's policy with the best marks: the first champion."""
WHY_BEST = "why_best"
"""The tag of the version with that alias: what it was compared with."""
_ORIGIN = ("stage", "terms", "device", "dataset", "protocol", "git_commit")
"""Tags of a run that its registered policy has, too."""
_REWARD_TAG = MARK.replace("/", "_")
"""The tag of a version with its mark."""


@dataclass(frozen=True)
class Version:
    """A policy in the registry; it never changes."""

    number: int
    made_at: str
    """ISO 8601, UTC."""


def register(
    folder: Path, name: str, policy: Path, *, alias: str | None = None, why: str | None = None
) -> int:
    """Register the policy that a stage of its name logged last as the newest model version.

    Its description says what made it, its marks, and why it has its place.

    Args:
        folder: the folder of the store.
        name: of the registered model.
        policy: the folder of the policy, which has the name of its stage's item.
        alias: what the version is called from then on.
        why: the reason of its promotion, in one sentence.

    Returns:
        The version; the existing one when that run's policy is registered already.

    Raises:
        StoreError: no run of that stage is in the store, or the store refuses.
    """
    from mlflow.exceptions import MlflowException

    with clear_errors(folder):
        client, experiment = client_of(folder)
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        runs = client.search_runs(
            [experiment],
            filter_string=f"tags.{POLICY} = '{policy.name}'",
            order_by=[f"tags.{KEPT_AT} DESC"],
            max_results=1,
        )
        if not runs:
            raise StoreError(
                f"{folder / DATABASE}: no run has kept policy {policy.name}; run its stage first"
            )
        run, data = runs[0].info, runs[0].data
        known = client.search_model_versions(f"name = '{name}' and run_id = '{run.run_id}'")
        version = (
            known[0]
            if known
            else client.create_model_version(
                name, source=f"{run.artifact_uri}/{ARTIFACT}", run_id=run.run_id
            )
        )
        marks = {key: value for key, value in data.metrics.items() if key.startswith(HELDOUT)}
        for key, value in {
            **{key: value for key, value in data.tags.items() if key in _ORIGIN},
            **{key.replace("/", "_"): f"{value:.6g}" for key, value in marks.items()},
        }.items():
            client.set_model_version_tag(name, version.version, key, value)
        client.update_model_version(name, version.version, _described(run.run_name, marks, why))
        if alias is not None:
            client.set_registered_model_alias(name, alias, version.version)
        return int(version.version)


def point_to_best(folder: Path, name: str, *, stages: Sequence[str], terms: str) -> int | None:
    """Move the alias `best` to the version with the highest mean reward on held-out problems.

    The newest version of each stage counts; of equal ones the later stage's is the best.

    Args:
        folder: the folder of the store.
        name: of the registered model.
        stages: the stages of the pipeline that leave a policy, in their order.
        terms: the terms of the examination. Marks on other terms are not comparable.

    Returns:
        The version; None where no version was examined on these terms.
    """
    with clear_errors(folder):
        client, _ = client_of(folder)
        newest: dict[str, Any] = {}
        for version in client.search_model_versions(f"name = '{name}'"):
            stage = version.tags.get("stage", "")
            if version.tags.get("terms") != terms or _REWARD_TAG not in version.tags:
                continue
            if stage not in newest or int(newest[stage].version) < int(version.version):
                newest[stage] = version
        among = [newest[stage] for stage in stages if stage in newest]
        if not among:
            return None
        best = max(reversed(among), key=lambda version: float(version.tags[_REWARD_TAG]))
        listed = ", ".join(
            f"{version.tags['stage']} {float(version.tags[_REWARD_TAG]):.3f}" for version in among
        )
        why = f"the best of the pipeline's policies by mean reward on held-out problems: {listed}"
        for version in client.search_model_versions(f"name = '{name}'"):
            if WHY_BEST in version.tags and version.version != best.version:
                client.delete_model_version_tag(name, version.version, WHY_BEST)
        client.set_model_version_tag(name, best.version, WHY_BEST, why)
        client.set_registered_model_alias(name, BEST, best.version)
        return int(best.version)


def version_of(folder: Path, name: str, *, alias: str) -> Version | None:
    """Return the version that an alias points to; None without the alias.

    Raises:
        StoreError: the store refuses.
    """
    from mlflow.exceptions import MlflowException

    with clear_errors(folder):
        client, _ = client_of(folder)
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
    with clear_errors(folder):
        client, _ = client_of(folder)
        client.set_registered_model_alias(name, alias, str(version))


def bring(folder: Path, name: str, *, version: int, out: Path) -> None:
    """Copy the policy of a version into `out`, in place of its content.

    Raises:
        StoreError: there is no such version, its files are gone, or the store refuses.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    with clear_errors(folder):
        client, _ = client_of(folder)
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
    with clear_errors(folder):
        client, _ = client_of(folder)
        for key, value in tags.items():
            client.set_model_version_tag(name, str(version), key, str(value))


def notes(folder: Path, name: str, *, version: int) -> dict[str, str]:
    """Return the tags of a version.

    Raises:
        StoreError: there is no such version, or the store refuses.
    """
    with clear_errors(folder):
        client, _ = client_of(folder)
        return dict(client.get_model_version(name, str(version)).tags)


def _described(run_name: str, marks: Mapping[str, float], why: str | None) -> str:
    """Return a version's description: what made it, its marks with intervals, the reason."""
    parts = [f"{run_name}."]
    shown = [
        f"{key} {marks[HELDOUT + key]:.3f}{_between(marks, key)}"
        for key in ("success", "mean_reward")
        if HELDOUT + key in marks
    ]
    if shown:
        parts.append(f"On held-out problems: {', '.join(shown)}.".replace("_", " "))
    if why:
        parts.append(f"{why[0].upper()}{why[1:]}.")
    return "\n\n".join(parts)


def _between(marks: Mapping[str, float], key: str) -> str:
    low, high = (marks.get(f"{HELDOUT}{key}_{end}") for end in ("low", "high"))
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
