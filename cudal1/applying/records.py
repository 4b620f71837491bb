"""Read and write the records of kept versions, and find them in a folder.

A record and its version are two files, and a reader may come between them. So the version is
written first, and the record names the version's content: a record beside another version's file is
seen to be of another one. Each file is replaced whole or not at all.

Threat: a record is a file of a folder, which anybody may have written. It is parsed as JSON into a
closed record, and what it says decides nothing alone: files must have the content ids that it
names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from cudal1.candidate import Candidate
from cudal1.errors import StoreError, SuiteError
from cudal1.files.text_file import read_python, read_text
from cudal1.kept import MARK, SUFFIX, Kept, Proof, judged_source
from cudal1.record import content_id

SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders that hold no records of the folder's owner, beside hidden ones."""


def write(folder: Path, name: str, source: str, kept: Kept, *, header: Sequence[str] = ()) -> Path:
    """Write a version and its record into a folder, and return the record's path.

    Args:
        folder: the folder; it is there.
        name: name of the problem's file without its ending: `model` for `model.faster.json`.
        source: the version's source, as judged.
        kept: the record; it names the version's file and the content of `source`.
        header: lines that the version's file begins with, as comments.

    Raises:
        ValueError: the record is of another source.
        StoreError: a file cannot be written; the old one is still there.
    """
    if kept.candidate_source_id != content_id(source):
        raise ValueError(f"{name}: the record is of another source")
    _replace(folder / kept.version, with_header(source, header))
    path = folder / f"{name}{SUFFIX}"
    write_record(path, kept)
    return path


def write_record(path: Path, kept: Kept) -> None:
    """Replace a record whole.

    Raises:
        StoreError: it cannot be written; the old one is still there.
    """
    # indented: git shows what has changed
    text = json.dumps(kept.model_dump(mode="json"), indent=1, ensure_ascii=False)
    _replace(path, text + "\n")


def with_header(source: str, header: Sequence[str]) -> str:
    """Return a version's file: comments, and the source as judged."""
    if not header:
        return source
    comments = [f"# {' '.join(line.split())}".rstrip() for line in header]
    return "\n".join([*comments, MARK, source])


def read(path: Path) -> Kept:
    """Return the record in a file.

    Raises:
        StoreError: it cannot be read, or is no record of a kept version.
    """
    text = read_text(path, raising=StoreError)
    try:
        return Kept.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(each) for each in first["loc"])
        said = " ".join(str(first["msg"]).split())
        raise StoreError(
            f"{path}: no record of a kept version ({f'{place}: ' if place else ''}{said}); "
            "write it anew with this version of cudal1"
        ) from error


def find(folder: Path) -> list[Path]:
    """Return the records in a folder and the folders in it, or the one record that is named.

    Raises:
        StoreError: there is no such folder, or no record in it.
    """
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise StoreError(f"{folder}: there is no such folder; name one with *{SUFFIX} files")
    found: list[Path] = []
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            each for each in folders if not each.startswith(".") and each not in SKIPPED
        )
        found += [Path(where, file) for file in sorted(files) if file.endswith(SUFFIX)]
    if not found:
        raise StoreError(f"{folder}: holds no *{SUFFIX}; cudal1 optimize writes them")
    return found


def read_version(record: Path, kept: Kept) -> str:
    """Return the source of a record's version, as it is to be judged.

    Raises:
        SuiteError: it cannot be read.
    """
    path = beside(record, kept.version)
    return judged_source(read_python(path, raising=SuiteError, any_codec=True))


def beside(record: Path, relative: str) -> Path:
    """Return the path of a file that a record names.

    Raises:
        SuiteError: it is no relative path.
    """
    if Path(relative).is_absolute():
        raise SuiteError(f"{record}: names {relative}; name it relative to the record's folder")
    return record.parent / relative


def is_of(proof: Proof, problem_id: str, source: str) -> bool:
    """Return whether a proof's verdict is on this problem and this source."""
    candidate = Candidate(problem_id=problem_id, source=source)
    return proof.problem_id == problem_id and proof.verdict.candidate_id == candidate.id


def _replace(path: Path, text: str) -> None:
    """Replace a file's content, on the disk before it has its name."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error
