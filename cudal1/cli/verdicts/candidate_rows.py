"""Reads a file of candidates from elsewhere: objects of level, problem_id and source.

The objects stand one a line, or in one JSON document: an array, an object with `candidates`, or
objects one after the other. A file of lines may be half written and hold anything. Each line that
is no row is named, and reading goes on. A document that is no JSON is one mistake.
"""

from __future__ import annotations

import io
import json
import re
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from cudal1.errors import ConfigError
from cudal1.files.text_file import mode_of, naming_utf8, open_named, refuse_packed

MAX_LINE_BYTES = 16 << 20
MAX_DOCUMENT_BYTES = 1 << 30
"""Most bytes of a file that is one JSON document, which is held whole."""
MAX_ALIKE = 3
"""Lines with the same mistake that are named one by one."""

Found = tuple[list["CandidateRow"], list[str]]
"""Rows, and a message on each line or item that is no row."""


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):  # to Python, and so to pydantic, true is 1
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def _level(value: object) -> object:
    """Return the number of a level that is named like KernelBench's folders, such as level1."""
    named = re.fullmatch(r"\s*level[ _-]?(\d+)\s*", value, re.I) if isinstance(value, str) else None
    return int(named[1]) if named else value


Number = Annotated[int, BeforeValidator(_no_boolean)]


class CandidateRow(BaseModel):
    """One row; further fields, such as the model's name, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    level: Annotated[Number, BeforeValidator(_level)]
    problem_id: Number
    """The problem's number in its level, as KernelBench calls it."""
    source: Annotated[str, Field(min_length=1), AfterValidator(naming_utf8)]


def read_rows(path: Path) -> Found:
    """Return the rows of a file, in its order, and a message on each other line or item.

    Raises:
        ConfigError: the file cannot be read, or holds no rows and no lines.
    """
    with _opened(path) as file:
        try:
            first, number = _first_line(file)
            refuse_packed(first)
            if _parsed(first) is not None:
                return _of_lines(file, path, first, number)
            document = first + file.read(MAX_DOCUMENT_BYTES)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    return _of_document(document, path, number)


def is_pipe(path: Path) -> bool:
    """Return whether something of that name exists that is neither a file nor a folder."""
    mode = mode_of(path)
    return mode != 0 and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def summed_up(complaints: Sequence[str]) -> list[str]:
    """Return the complaints; of many lines with one mistake, the first few and their number."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for complaint in complaints:
        of_a_line = re.fullmatch(r"(.*):(?:item )?\d+: (.*)", complaint, re.DOTALL)
        key = (of_a_line[1], of_a_line[2]) if of_a_line else ("", complaint)
        alike[key].append(complaint)
    said: list[str] = []
    for (path, mistake), each in alike.items():
        said += each[:MAX_ALIKE]
        if len(each) > MAX_ALIKE:
            said.append(f"{path}: {len(each) - MAX_ALIKE} more like these: {mistake}")
    return said


def _opened(path: Path) -> BinaryIO:
    if stat.S_ISDIR(mode_of(path)):
        raise ConfigError(f"{path}: is no file; give one of JSON lines")
    return open_named(path)


def _first_line(file: BinaryIO) -> tuple[bytes, int]:
    """Return the first line that is not blank, or its beginning, and its number."""
    number = 1
    while (line := file.readline(MAX_LINE_BYTES)) and not line.strip():
        number += 1
    return line, number


def _of_lines(file: BinaryIO, path: Path, first: bytes, number: int) -> Found:
    rows: list[CandidateRow] = []
    complaints: list[str] = []
    for line_number, line in _lines(file, first, number):
        try:
            rows.append(_row(_item(line)))
        except ValueError as error:
            complaints.append(f"{path}:{line_number}: {error}")
    return rows, complaints


def _of_document(document: bytes, path: Path, number: int) -> Found:
    """Return the rows of one JSON document; or of lines, if some of them are rows."""
    try:
        if len(document) > MAX_DOCUMENT_BYTES:
            raise ValueError(f"longer than {MAX_DOCUMENT_BYTES >> 30} GiB; give JSON lines")
        items = _items(document)
    except ValueError as error:
        file = io.BytesIO(document)
        rows, complaints = _of_lines(file, path, file.readline(MAX_LINE_BYTES), number)
        if rows:
            return rows, complaints
        raise ConfigError(f"{path}: no JSON lines and no JSON document: {error}") from error
    rows = []
    complaints = []
    for place, item in enumerate(items, start=1):
        try:
            rows.append(_row(item))
        except ValueError as error:
            complaints.append(f"{path}:item {place}: {error}")
    return rows, complaints


def _items(document: bytes) -> list[Any]:
    """Return the items of arrays and of objects with `candidates`, and other values themselves.

    Raises:
        ValueError: the document is no JSON; the message says where.
    """
    try:
        text = document.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    items: list[Any] = []
    decoder, at = json.JSONDecoder(), 0
    try:
        while (at := _after_space(text, at)) < len(text):
            value, at = decoder.raw_decode(text, at)
            inner = value.get("candidates") if isinstance(value, dict) else value
            items += inner if isinstance(inner, list) else [value]
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg.lower()}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return items


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; None if there is no object, or one with many candidates."""
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and "candidates" not in value else None


def _item(line: bytes | None) -> Any:
    if line is None:
        raise ValueError(f"longer than {MAX_LINE_BYTES >> 20} MiB: no source is")
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("not a line of JSON; was its writer stopped in the middle?") from error


def _row(item: Any) -> CandidateRow:
    if not isinstance(item, dict):
        raise ValueError("not an object with level, problem_id and source")
    try:
        return CandidateRow.model_validate(item)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg'].lower()}") from error


def _lines(file: BinaryIO, first: bytes, number: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield every line that is not blank, with its number; None for one too long to be held."""
    line = first
    while line:
        is_whole = line.endswith(b"\n") or len(line) < MAX_LINE_BYTES
        rest = line
        while not is_whole and rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)
        if not is_whole:
            yield number, None
        elif line.strip():
            yield number, line
        line, number = file.readline(MAX_LINE_BYTES), number + 1
