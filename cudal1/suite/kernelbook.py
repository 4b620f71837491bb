"""Rows of KernelBook (GPU MODE), from the hub or a file, as problems.

A row's `python_code` defines a module named by `entry_point`, `get_inputs()`, and a
`get_init_inputs()` that returns positional arguments and keyword arguments. The problem has the
module as `Model`, and all arguments by their places. The row's Triton code is not used.

All rows are level 1, for training, with their place in the dataset as their number. What needs the
dataset's own helpers (`_paritybench_helpers`) is rejected by admission, which names the import.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cudal1.errors import SuiteError
from cudal1.files.text_file import naming_utf8
from cudal1.problem import DeviceClass, Problem, Split, Unreadable
from cudal1.record import content_id
from cudal1.suite.hub import from_home, rows
from cudal1.suite.loader import number_and_name
from cudal1.suite.signatures import constructor, function, in_order, parsed

SUITE = "kernelbook"
DATASET = "GPUMODE/KernelBook"
COLUMNS = ("entry_point", "python_code")
FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}


def load(
    path: Path | None, *, revision: str | None, device_class: DeviceClass, named: str
) -> list[Problem]:
    """Return the rows of a file or, without one, of the hub dataset at `revision`.

    Args:
        path: a Parquet or JSON file, or a folder of Parquet files; `~` is the user's home.
        revision: revision of the hub dataset; None takes the newest.
        device_class: of the problems.
        named: the option or key that gave the path, for remedies.

    Raises:
        SuiteError: the path is absent or holds no such rows, or the dataset cannot be had.
    """
    found = _rows(path and from_home(path), revision, named)
    revision = revision or content_id(*(str(row["python_code"]) for row in found))
    return [
        _problem(row, number, revision, device_class) for number, row in enumerate(found, start=1)
    ]


def _rows(path: Path | None, revision: str | None, named: str) -> list[dict[str, Any]]:
    remedy = f"give {named} a file of its rows"
    asked: dict[str, Any] = {"columns": COLUMNS, "owner": "KernelBook"}
    if path is None:
        return rows(DATASET, revision, remedy=f"check the network, or {remedy}", **asked)
    if path.is_dir():
        files = sorted(map(str, path.glob("**/*.parquet")))
        if not files:
            raise SuiteError(f"{path}: no Parquet file in it; {remedy}")
        return rows("parquet", None, remedy=remedy, files=files, **asked)
    if not path.is_file():
        raise SuiteError(f"{path}: no such file or folder; {remedy}")
    if path.suffix not in FORMATS:
        raise SuiteError(f"{path}: is no Parquet or JSON file; {remedy}")
    return rows(FORMATS[path.suffix], None, remedy=remedy, files=[str(path)], **asked)


def _problem(
    row: Mapping[str, Any], number: int, revision: str, device_class: DeviceClass
) -> Problem:
    entry = str(row["entry_point"])
    place: dict[str, Any] = {
        "suite": SUITE,
        "level": 1,
        "number": number,
        "name": number_and_name(f"{number}_{entry}")[1] or "unnamed",
        "split": Split.TRAIN,
        "revision": revision,
        "device_class": device_class,
    }
    try:
        return Problem(**place, source=as_problem(naming_utf8(str(row["python_code"])), entry))
    except SuiteError as error:
        text = f"# {SUITE}, row {number}: {error}\n"
        return Unreadable(**place, source=text, flaw=str(error))


def as_problem(source: str, entry: str) -> str:
    """Return a row's module with `Model` and with arguments by their places.

    Raises:
        SuiteError: the source has no such class, or its arguments are no literals.
    """
    tree = parsed(source)
    made = constructor(tree, entry)
    asked = function(tree.body, "get_init_inputs")
    if asked is None:
        raise SuiteError("has no get_init_inputs")
    given, by_name = _arguments(asked.body)
    arguments = in_order(made, by_name, given=given)
    assert asked.end_lineno is not None
    lines = source.split("\n")
    kept = [*lines[: asked.lineno - 1], *lines[asked.end_lineno :]]
    alias = "" if entry == "Model" else f"\n\nModel = {entry}"
    body = "\n".join(kept).rstrip()
    return f"{body}{alias}\n\n\ndef get_init_inputs():\n    return {arguments!r}\n"


def _arguments(body: Sequence[ast.stmt]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a `get_init_inputs` returns: `[[…], {…}]`, or a list as in KernelBench."""
    try:
        match body:
            case [ast.Return(value=ast.expr() as value)]:
                found = ast.literal_eval(value)
            case _:
                raise SuiteError("get_init_inputs does more than return something")
    except ValueError as error:
        raise SuiteError("get_init_inputs returns no literals") from error
    match found:
        case [[*given], {**by_name}]:
            return tuple(given), {str(name): value for name, value in by_name.items()}
        case [*given]:
            return tuple(given), {}
        case _:
            raise SuiteError("get_init_inputs returns no list")
