"""Reads the files that a person names, once, and refuses wrong files with a remedy.

Hints here refuse only files that surely lack a name. Running a module decides whether it defines
the name: the prober runs a problem, a sandbox runs a candidate.
"""

from __future__ import annotations

import difflib
import re
import stat
import unicodedata
from pathlib import Path
from typing import Annotated

import typer

from cudal1.errors import SuiteError
from cudal1.files.source_folder import read_each, read_folder
from cudal1.files.text_file import mode_of, read_python
from cudal1.harness.screen.screen import syntax_error
from cudal1.problem import PROBLEM_NAMES, DeviceClass, Problem
from cudal1.suite.loader import problem_of
from cudal1.suite.modules import is_module, load_module

REMEDIES = {
    "Model": "name the class to make faster Model",
    "get_inputs": "add get_inputs(), which draws the tensors for one call and returns their list",
    "get_init_inputs": "add get_init_inputs(), which returns the list of Model's own arguments",
    "ModelNew": "name the faster class ModelNew",
}
CANDIDATE_NAME = "ModelNew"
MAKES_NAMES = re.compile(
    r"""import\s*\(?\s*\*
    |\b(
        exec|eval|compile|code|globals|locals|vars|[gs]etattr|modules|builtins
        |importlib|runpy|inspect|gc|f_\w+|pickle|marshal|ctypes|loads?(_\w+)?
        |__(?!(init|name|main|future|all|file|call|doc)__)\w+
    )\b""",
    re.VERBOSE,
)
"""Words by which a module may define a name that does not stand in it."""


InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="With package.module:Class: a Python file with get_inputs, and get_init_inputs",
    ),
]
PathOption = Annotated[
    Path | None,
    typer.Option(
        "--path",
        metavar="FOLDER",
        help="With package.module:Class: the folder that holds the package, if not installed",
    ),
]


def read_pair(problem: Path, candidate: Path, device_class: DeviceClass) -> tuple[Problem, str]:
    """Return a person's own problem, and the source of a candidate for it.

    Raises:
        SuiteError: a file cannot be read or surely lacks a name, or the two files are swapped.
    """
    first = _read(problem, PROBLEM_NAMES)
    second = _read(candidate, (CANDIDATE_NAME,), any_codec=True)
    if (
        _lacking(PROBLEM_NAMES, first)
        and not _lacking(PROBLEM_NAMES, second)
        and not _lacking((CANDIDATE_NAME,), first)
        and _lacking((CANDIDATE_NAME,), second)
    ):
        raise SuiteError(
            f"{problem}: is the candidate, and {candidate} the problem, which comes first: "
            f"cudal1 judge {candidate} {problem}"
        )
    _refuse_what_lacks(PROBLEM_NAMES, problem, first)
    _refuse_what_lacks((CANDIDATE_NAME,), candidate, second)
    return problem_of(first, problem, device_class=device_class), second


def read_problem(
    typed: Path,
    device_class: DeviceClass,
    *,
    inputs: Path | None = None,
    folder: Path | None = None,
) -> Problem:
    """Return a person's own problem.

    Args:
        typed: a file, a folder with one problem, or `package.module:Class`.
        device_class: the class of devices that it is judged on.
        inputs: of a class: the Python file with `get_inputs`.
        folder: of a class: the folder that holds its package; None where that is installed.

    Raises:
        SuiteError: it cannot be read, or surely lacks a name that every problem has.
    """
    if is_module(typed):
        return load_module(typed, inputs=inputs, folder=folder, device_class=device_class)
    refuse_inputs(typed, inputs, folder)
    source = _read(typed, PROBLEM_NAMES)
    _refuse_what_lacks(PROBLEM_NAMES, typed, source)
    return problem_of(source, typed, device_class=device_class)


def read_problems(
    typed: Path,
    device_class: DeviceClass,
    *,
    inputs: Path | None = None,
    folder: Path | None = None,
) -> list[Problem]:
    """Return a person's problems: one, or each of a folder of one module's sets of shapes.

    In such a folder several files define `Model`, `get_inputs` and `get_init_inputs`, as `cudal1
    capture` writes them. A candidate is one for all of them. The arguments are those of
    `read_problem`.

    Raises:
        SuiteError: as `read_problem`.
    """
    if stat.S_ISDIR(mode_of(typed)):
        refuse_inputs(typed, inputs, folder)
        sources = read_each(typed, PROBLEM_NAMES)
        if len(sources) > 1:
            return [
                problem_of(source, typed / path, device_class=device_class)
                for path, source in sources.items()
            ]
    return [read_problem(typed, device_class, inputs=inputs, folder=folder)]


def refuse_inputs(typed: Path, inputs: Path | None, folder: Path | None) -> None:
    """Refuse the options of a class, for a problem that is a file or folder.

    Raises:
        SuiteError: one is given.
    """
    for option, given in (("--inputs", inputs), ("--path", folder)):
        if given is not None:
            raise SuiteError(
                f"{option} {given}: goes with package.module:Class; {typed} has inputs of its own"
                if mode_of(typed)
                else f"{typed}: is no file and no package.module:Class"
            )


def read_candidate(path: Path) -> str:
    """Return the source of a candidate. It is searched, not parsed: nothing of it is trusted.

    Raises:
        SuiteError: it cannot be read.
    """
    return _read(path, (CANDIDATE_NAME,), any_codec=True)


def _refuse_what_lacks(names: tuple[str, ...], path: Path, source: str) -> None:
    for name in _lacking(names, source):
        if said := syntax_error(source):
            raise SuiteError(f"{path}: is no Python ({said}); name a Python file that has {name}")
        raise SuiteError(f"{path}: has no {name}; {REMEDIES[name]}")


def _lacking(names: tuple[str, ...], source: str) -> list[str]:
    """Return the names that a module of this source surely does not define."""
    if MAKES_NAMES.search(source):
        return []
    text = unicodedata.normalize("NFKC", source)  # as Python does with names
    return [name for name in names if not re.search(rf"\b{name}\b", text)]


def _read(path: Path, names: tuple[str, ...], *, any_codec: bool = False) -> str:
    try:
        if stat.S_ISDIR(mode_of(path)):
            return read_folder(path, names, any_codec=any_codec)
        source = read_python(path, raising=SuiteError, any_codec=any_codec)
    except SuiteError as error:
        raise SuiteError(f"{error}{_remedy(path)}") from error
    if not source.strip():
        raise SuiteError(f"{path}: is empty")
    return source


def _remedy(path: Path) -> str:
    """Return what a missing path may have stood for, as a part of a message; else an empty text."""
    try:
        if path.exists() or path.is_symlink():
            return ""
        siblings = [file.name for file in path.absolute().parent.glob("*.py")]
    except OSError:
        return ""
    if str(path) == "-":
        return "; did you mean /dev/stdin?"
    similar = difflib.get_close_matches(path.name, siblings, n=1)
    return f"; did you mean {path.with_name(similar[0])}?" if similar else ""
