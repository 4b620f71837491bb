"""The files that a person names: read, and refused with a remedy when they are other files."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass, Problem
from cudal1.suite.loader import load_file, read_source

REMEDIES = {
    "Model": "name the class to make faster Model",
    "get_inputs": "add get_inputs(), which draws the tensors for one call and returns their list",
    "get_init_inputs": "add get_init_inputs(), which returns the list of Model's own arguments",
    "ModelNew": "name the faster class ModelNew",
}
PROBLEM_NAMES = ("Model", "get_inputs", "get_init_inputs")


def read_problem(path: Path, device_class: DeviceClass) -> Problem:
    """A person's own problem file.

    Raises:
        SuiteError: it cannot be read, or lacks a name that every problem has.
    """
    _refuse_what_lacks(PROBLEM_NAMES, path, _read(path))
    return load_file(path, device_class=device_class)


def read_candidate(path: Path) -> str:
    """The source of a candidate. It is searched, not parsed: nothing of it is trusted.

    Raises:
        SuiteError: it cannot be read, or holds no `ModelNew`.
    """
    source = _read(path)
    _refuse_what_lacks(("ModelNew",), path, source)
    return source


def refuse_swapped(problem: Path, candidate: Path) -> None:
    """Nothing, when the files come in the right order.

    Raises:
        SuiteError: each looks like the other.
    """
    first, second = _read(problem), _read(candidate)
    if (
        _lacking(PROBLEM_NAMES, first)
        and not _lacking(PROBLEM_NAMES, second)
        and not _lacking(("ModelNew",), first)
        and _lacking(("ModelNew",), second)
    ):
        raise SuiteError(
            f"{problem}: is the candidate, and {candidate} the problem, which comes first: "
            f"cudal1 judge {candidate} {problem}"
        )


def _refuse_what_lacks(names: tuple[str, ...], path: Path, source: str) -> None:
    for name in _lacking(names, source):
        raise SuiteError(f"{path}: has no {name}; {REMEDIES[name]}")


def _lacking(names: tuple[str, ...], source: str) -> list[str]:
    return [name for name in names if not re.search(rf"\b{name}\b", source)]


def _read(path: Path) -> str:
    try:
        return read_source(path)
    except SuiteError as error:
        siblings = [file.name for file in path.absolute().parent.glob("*.py")]
        similar = difflib.get_close_matches(path.name, siblings, n=1)
        if path.exists() or not similar:
            raise
        raise SuiteError(f"{error}; did you mean {path.with_name(similar[0])}?") from error
