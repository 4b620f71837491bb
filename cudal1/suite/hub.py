"""Rows of a dataset of the hub, or of a copy of it on disk."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from cudal1.errors import SuiteError


def from_home(path: Path) -> Path:
    """Return the path with `~` expanded: no shell does so after a colon or in params.yaml."""
    with suppress(RuntimeError):  # the home of a user unknown to this machine
        return path.expanduser()
    return path


def rows(
    dataset: str,
    revision: str | None,
    *,
    columns: Collection[str],
    owner: str,
    remedy: str,
    files: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Return all rows of a dataset.

    Args:
        dataset: its id on the hub, or a folder; with `files`, the format, such as `parquet`.
        revision: of the hub; None is the newest.
        columns: the columns that a row must have.
        owner: the name of the dataset that it should be, for the message.
        remedy: the advice where it cannot be had.
        files: files that hold the rows.

    Raises:
        SuiteError: it cannot be loaded, or lacks a column.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    shown = dataset if files is None else files[0]
    try:
        splits: Any = datasets.load_dataset(dataset, revision=revision, data_files=files)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise SuiteError(f"{shown}: the dataset cannot be loaded ({said}); {remedy}") from error
    found = [dict(row) for split in splits.values() for row in split]
    if lacking := sorted(set(columns).difference(*found[:1])):
        raise SuiteError(f"{shown}: lacks {', '.join(lacking)}; is it {owner}'s dataset?")
    return found
