"""Problems and candidates as a caller gives them: a class, a source text, or a path.

Threat: a candidate is hostile. It is only read here, as text; where its class was imported, the
caller has run it already. What is judged runs in the sandbox, from the text.
"""

from __future__ import annotations

import os
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from cudal1.api.module_slice import Statement, joined, needed_by
from cudal1.errors import ConfigError

Given = type | str | os.PathLike[str]
"""A class of an imported module; a source text, which has an end of line; or a path of a file or
folder."""
NO_ARGUMENTS = "def get_init_inputs():\n    return []\n"


def problem_text(
    Model: type, get_inputs: Callable[[], Any], get_init_inputs: Callable[[], Any] | None = None
) -> str:
    """Return a problem's source: the class, the functions, and what they need of their modules.

    Args:
        Model: the class to make faster, of any name.
        get_inputs: a function that draws the tensors of one call and returns their list.
        get_init_inputs: a function that returns the list of the class's arguments; None: it has
            none.

    Raises:
        ConfigError: one is not at the top level of a file, or their modules contradict each other.
    """
    wanted = {"Model": Model, "get_inputs": get_inputs}
    if get_init_inputs is not None:
        wanted["get_init_inputs"] = get_init_inputs
    text = _text_of(wanted)
    return text if get_init_inputs is not None else f"{text}\n\n{NO_ARGUMENTS}"


def problem_or_path(
    Model: Given, get_inputs: Callable[[], Any] | None, get_init_inputs: Callable[[], Any] | None
) -> str | Path:
    """Return a problem's source, or the path that it is to be read from.

    Raises:
        ConfigError: as `problem_text`; or functions are missing, or are given twice.
    """
    if isinstance(Model, type):
        if get_inputs is None:
            raise ConfigError("get_inputs is missing: a class says nothing about its inputs")
        return problem_text(Model, get_inputs, get_init_inputs)
    if get_inputs is not None or get_init_inputs is not None:
        raise ConfigError("get_inputs goes with a class; a text or a path holds its own")
    return _text_or_path(Model, "Model")


def candidate_or_path(ModelNew: Given) -> str | Path:
    """Return a candidate's source, or the path that it is to be read from.

    Raises:
        ConfigError: it is a class that is not at the top level of a file.
    """
    if isinstance(ModelNew, type):
        return _text_of({"ModelNew": ModelNew})
    return _text_or_path(ModelNew, "ModelNew")


def _text_or_path(given: str | os.PathLike[str], name: str) -> str | Path:
    if isinstance(given, str) and "\n" in given:
        return given
    if isinstance(given, str | os.PathLike):
        path = Path(os.fspath(given)).expanduser()
        if not path.exists():
            raise ConfigError(f"{name}: there is no file {path}; give a class, a text or a path")
        return path.absolute()
    raise ConfigError(f"{name}: {type(given).__name__} given; give a class, a text or a path")


def _text_of(wanted: dict[str, Any]) -> str:
    """Return one source that defines the objects under the wanted names."""
    names: dict[Path, list[str]] = {}
    for name, given in wanted.items():
        names.setdefault(_file_of(name, given), []).append(given.__name__)
    statements: list[Statement] = []
    for path, roots in names.items():
        found = _needed(path, roots)
        _refuse_clashes(statements, found, path)
        statements += found
    aliases = [
        f"{name} = {given.__name__}" for name, given in wanted.items() if given.__name__ != name
    ]
    return "\n".join([joined(statements), *(f"{alias}\n" for alias in aliases)])


def _file_of(name: str, given: Any) -> Path:
    """Return the file in which a class or function stands.

    Raises:
        ConfigError: it has none, or is not at the top level.
    """
    if not isinstance(given, type | FunctionType):
        raise ConfigError(f"{name}: {type(given).__name__} given; give a class or a function")
    if given.__name__ == "<lambda>":
        raise ConfigError(f"{name} is a lambda: write it as a function, with def")
    if given.__qualname__ != given.__name__:
        raise ConfigError(
            f"{name}: {given.__qualname__} is defined inside a function or class, and its source "
            "lacks their variables: move it to the top level of its file, or give its source as "
            "text"
        )
    module = sys.modules.get(given.__module__)
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        raise ConfigError(
            f"{name}: {given.__name__} is defined at a prompt or in a notebook and has no file: "
            "write it to a file (in a notebook, %%writefile model.py) and give the path, or give "
            "its source as text"
        )
    return Path(file)


def _needed(path: Path, roots: list[str]) -> list[Statement]:
    try:
        with tokenize.open(path) as stream:
            found = needed_by(stream.read(), roots)
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as Python ({error})") from error
    defined = {name for each in found for name in each.binds}
    for root in roots:
        if root not in defined:
            raise ConfigError(
                f"{path}: defines no {root} at its top level; give its source as text"
            )
    for each in found:
        if each.text.startswith("from ."):
            raise ConfigError(
                f"{path}: `{each.text}` is a relative import, which a source alone cannot do: give "
                "a folder with all its files, which import each other by their names"
            )
    return found


def _refuse_clashes(before: list[Statement], found: list[Statement], path: Path) -> None:
    known = {name: each.text for each in before for name in each.binds}
    for each in found:
        for name in each.binds:
            if known.get(name, each.text) != each.text:
                raise ConfigError(
                    f"{path}: {name} is something else than in the other module; define the class "
                    "and its functions in one file"
                )
