"""A file of candidates from elsewhere: JSON lines of {level, problem_id, source}.

Whoever wrote it may have been killed at it, and may have put anything into it: each line that is no
row is named, and the rest goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from cudal1.errors import ConfigError

MAX_LINE_BYTES = 16 << 20


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):  # to Python, and so to pydantic, true is 1
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


Number = Annotated[int, BeforeValidator(_no_boolean)]


class CandidateRow(BaseModel):
    """One row; further fields, such as the model's name, are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    level: Number
    problem_id: Number
    """The problem's number in its level, as KernelBench calls it."""
    source: str = Field(min_length=1)


def read_rows(path: Path) -> tuple[list[CandidateRow], list[str]]:
    """The rows of a file, in its order, and what is wrong with its other lines.

    Raises:
        ConfigError: it cannot be read.
    """
    rows: list[CandidateRow] = []
    complaints: list[str] = []
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is no file; give one of JSON lines")
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file), start=1):
                try:
                    rows.append(_row(line))
                except ValueError as error:
                    complaints.append(f"{path}:{number}: {error}")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    return rows, complaints


def _row(line: bytes | None) -> CandidateRow:
    if line is None:
        raise ValueError(f"longer than {MAX_LINE_BYTES >> 20} MiB: no source is")
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start})") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("not a line of JSON; was its writer stopped in the middle?") from error
    if not isinstance(row, dict):
        raise ValueError("not an object with level, problem_id and source")
    try:
        return CandidateRow.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg'].lower()}") from error


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Every line that is not blank; None for one that is too long to be held."""
    while line := file.readline(MAX_LINE_BYTES):
        is_whole = line.endswith(b"\n") or len(line) < MAX_LINE_BYTES
        rest = line
        while not is_whole and rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)
        if not is_whole:
            yield None
        elif line.strip():
            yield line
