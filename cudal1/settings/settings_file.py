"""A YAML file of ours as a record, or a one-line error that names the fault and its place.

The files are params.yaml (`cudal1.settings.params`) and protocols (`cudal1.settings.protocols`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cudal1.errors import ConfigError
from cudal1.files.text_file import read_yaml
from cudal1.record import Record

MAX_PROBLEMS_SAID = 3
SHORT = Repr()
"""Shows a value in one line, whatever its size: YAML makes large ones from few words."""
SHORT.maxstring = SHORT.maxother = 200
R = TypeVar("R", bound=Record)


def read_settings(
    path: Path, kind: type[R], *, remedy: str, over: Mapping[str, Any] | None = None
) -> R:
    """Return the file as a record of the given kind.

    Args:
        path: a YAML file.
        kind: the record; the file holds its keys, no more and no less.
        remedy: what to do when the file is missing, such as `run this in the project's folder`.
        over: values that replace the file's, key by key.

    Raises:
        ConfigError: the file is absent or not YAML, or a key is missing, unknown or wrong; the
            message gives its dotted path.
    """
    try:
        content = read_yaml(path)
    except ConfigError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise ConfigError(f"{error}; {remedy}") from error
    if over is not None and isinstance(content, dict):
        put_over(content, over)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_said(error)}") from error


def put_over(content: MutableMapping[str, Any], over: Mapping[str, Any]) -> None:
    """Set single keys at any depth; a mapping in place of null is set whole."""
    for key, value in over.items():
        there = content.get(key)
        if isinstance(value, Mapping) and isinstance(there, MutableMapping):
            put_over(there, value)
        else:
            content[key] = value


def _said(error: ValidationError) -> str:
    """Return the first faults with their dotted paths; one is too few for a misspelt key."""
    found = error.errors()
    inner = {problem["loc"][:-1] for problem in found}  # a list of wrong items is not a short list
    problems = [p for p in found if not (p["type"] == "too_short" and p["loc"] in inner)]
    said = [_problem(problem) for problem in problems[:MAX_PROBLEMS_SAID]]
    more = len(problems) - len(said)
    return "; ".join(said) + (f" (and {more} more)" if more else "")


def _problem(problem: ErrorDetails) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "the file"
    match problem["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key; remove it or correct its spelling"
        case "missing":
            return f"{where}: missing key; add it"
        case "union_tag_invalid" | "union_tag_not_found":
            return f"{where}.kind: must be rewriter, replay, openai, local or vllm"
        case "string_pattern_mismatch" if where.endswith("api_key_env"):
            # the value may be the key itself: it is not repeated
            return f"{where}: must be the name of an environment variable, not a key"
        case "string_pattern_mismatch" if where.endswith(("base_url", "vllm_server")):
            return f"{where}: must begin with http:// or https:// (it is {problem['input']!r})"
        case "string_pattern_mismatch":
            where = where.removesuffix(".[key]")
            return f"{where}: {problem['input']!r} may hold a to z, 0 to 9, - and _ only"
        case "value_error":  # one of our own errors, which names the contradiction
            said = problem["msg"].removeprefix("Value error, ")
            return f"{where}: {said}" if problem["loc"] else said
        case _:
            return f"{where}: {problem['msg']} (it is {SHORT.repr(problem['input'])})"
