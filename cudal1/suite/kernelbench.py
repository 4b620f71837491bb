"""KernelBench's problems, from a checkout or from its hub dataset. None of its code ships here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass, Problem, Split, resize
from cudal1.record import content_id
from cudal1.suite.loader import load_file, load_sizes

DATASET = "ScalingIntelligence/KernelBench"


def load(
    path: Path | None, *, revision: str | None, sizes: Path | None, device_class: DeviceClass
) -> list[Problem]:
    """All problems of a checkout's folder or, without one, of the hub dataset at `revision`.

    `sizes` is a file like the shipped suite's `sizes.yaml`, with keys such as `level1/19_ReLU`.

    Raises:
        SuiteError: the folder is absent or holds no problems, a file is malformed, or the dataset
            cannot be had.
    """
    constants: Mapping[str, Mapping[str, object]] = (
        load_sizes(sizes).get(device_class.value, {}) if sizes else {}
    )
    if path is None:
        return _from_hub(revision, constants, device_class)
    return _from_checkout(path, constants, device_class)


def _from_checkout(
    path: Path, constants: Mapping[str, Mapping[str, object]], device_class: DeviceClass
) -> list[Problem]:
    if not path.is_dir():
        raise SuiteError(f"{path}: no such folder; give problems.path a checkout of KernelBench")
    root = path / "KernelBench" if (path / "KernelBench").is_dir() else path
    files = [
        file
        for folder in sorted(root.glob("level*"))
        for file in sorted(folder.glob("*.py"), key=_position)
        if file.name[0].isdigit()
    ]
    if not files:
        raise SuiteError(f"{path}: no level*/N_name.py in it; is it a checkout of KernelBench?")
    revision = _commit(path) or content_id(*(file.read_text(encoding="utf-8") for file in files))
    return [
        load_file(
            file, suite="kernelbench", level=int(re.sub(r"\D", "", file.parent.name) or 0),
            split=Split.TRAIN, device_class=device_class, revision=revision,
            sizes=constants.get(f"{file.parent.name}/{file.stem}", {}),
        )
        for file in files
    ]  # fmt: skip


def _from_hub(
    revision: str | None, constants: Mapping[str, Mapping[str, object]], device_class: DeviceClass
) -> list[Problem]:
    import datasets

    try:
        splits: Any = datasets.load_dataset(DATASET, revision=revision)
    except Exception as error:  # noqa: BLE001 (the hub client raises a dozen unrelated kinds)
        raise SuiteError(
            f"{DATASET} cannot be loaded from the hub ({str(error).splitlines()[0]}): check the "
            "network, or give problems.path a checkout"
        ) from error
    return [
        problem_of_row(row, constants, device_class, revision or "newest")
        for split in splits.values()
        for row in split
    ]


def problem_of_row(
    row: Mapping[str, Any], constants: Mapping[str, Mapping[str, object]],
    device_class: DeviceClass, revision: str,
) -> Problem:  # fmt: skip
    """One row of the hub dataset: `level`, `problem_id`, `name`, `code`."""
    name = str(row["name"]).removesuffix(".py")
    where = f"level{row['level']}/{name}"
    return Problem(
        suite="kernelbench", level=int(row["level"]), number=int(row["problem_id"]),
        name=re.sub(r"\W+", "_", re.sub(r"^\d+_", "", name)).lower(), split=Split.TRAIN,
        device_class=device_class, revision=revision,
        source=resize(str(row["code"]), constants.get(where, {}), where=where),
    )  # fmt: skip


def _position(path: Path) -> tuple[int, str]:
    return int(re.match(r"\d*", path.name).group() or 0), path.name  # pyright: ignore[reportOptionalMemberAccess]


def _commit(path: Path) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(path), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
