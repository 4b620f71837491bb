"""Verdicts as JSON lines, written as they come: a candidate in the file is not judged again.

A killed process may have left half a line, and a power failure NUL bytes. Either is cut off, and
the verdict is made again.
"""

from __future__ import annotations

import fcntl
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from pydantic import ValidationError

from cudal1.baseline import Baseline
from cudal1.errors import ConfigError
from cudal1.files.text_file import mode_of, open_named, refuse_packed
from cudal1.protocol import EvalProtocol
from cudal1.record import Record
from cudal1.verdict import Verdict

BEGINNING = b'{"suite":'
"""Beginning of each of our lines: half a line of something else is not ours to cut off."""


class Judged(Record):
    """One line."""

    suite: str
    revision: str
    """Revision of the suite, such as the checkout's commit."""
    level: int
    problem_id: int
    problem: str
    """The problem's key, for people."""
    note: str | None = None
    """Wrong outputs that the problem's check would let through, if a trial has looked."""
    baseline: Baseline | None = None
    """Baseline as which the candidate, which is the reference, was judged; None: a submitted
    candidate."""
    verdict: Verdict


class VerdictFile:
    """A file of verdicts, locked against other runs while it is open.

    Args:
        path: path of the file, which is made.
        device_kind: verdicts of other kinds, and under other protocols, stay in the file and are
            not found.
        protocol: the protocol that candidates are judged under.
        timing: whether candidates are timed.

    Raises:
        ConfigError: the file cannot be written, another run has it, or it holds something else.
    """

    def __init__(
        self, path: Path, device_kind: str, protocol: EvalProtocol, *, timing: bool
    ) -> None:
        self._path = path
        self._device_kind = device_kind
        # a failure holds under either; a success without timing is enough only if none is asked for
        self._protocol_ids = {protocol.id} if timing else {protocol.id, protocol.checks_only().id}
        self._judged: dict[tuple[str, str], Judged] = {}
        try:
            if path.exists() and not path.is_file():
                raise ConfigError(f"{path}: is no file; name another --out")
            # without a buffer: on a full disk, closing would write what is in it, and fail again
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
        try:
            self._lock()
            self._read()
        except ConfigError:
            self._file.close()
            raise
        except OSError as error:
            self._file.close()
            raise ConfigError(f"{path}: cannot be used ({error.strerror})") from error

    def add(self, judged: Judged) -> None:
        """Write a line that a power failure does not take away.

        Raises:
            ConfigError: the line cannot be written; the lines before it are whole.
        """
        self._remember(judged)  # first: a reader that sees it in the file may interrupt us
        end = self._file.seek(0, os.SEEK_END)
        try:
            rest = judged.model_dump_json().encode() + b"\n"
            while rest:  # a disk that is nearly full takes a part
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):  # if half a line stays, the next run cuts it off
                self._file.truncate(end)
            self._judged.pop((judged.verdict.problem_id, judged.verdict.candidate_id), None)
            raise ConfigError(
                f"{self._path}: cannot be written ({error.strerror}); when it can, run it again: "
                "what it holds is not judged anew"
            ) from error

    def find(self, problem_id: str, candidate_id: str) -> Judged | None:
        """Return the verdict on a candidate, if there is one."""
        return self._judged.get((problem_id, candidate_id))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{self._path}: another run writes it; wait for that one") from None
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be locked ({error.strerror})") from error

    def _read(self) -> None:
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as buffered:
            lines = list(_lines(buffered, self._path))
        for _, judged in lines:
            self._remember(judged)
        self._file.truncate(lines[-1][0] if lines else 0)

    def _remember(self, judged: Judged) -> None:
        verdict = judged.verdict
        is_alike = verdict.device_kind == self._device_kind
        if is_alike and verdict.protocol_id in self._protocol_ids:
            self._judged[verdict.problem_id, verdict.candidate_id] = judged


def read_judged(path: Path) -> list[Judged]:
    """Return the verdicts in a file that may still be written.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    if stat.S_ISDIR(mode_of(path)):
        raise ConfigError(f"{path}: is no file; give one that judge --candidates has written")
    try:
        with open_named(path) as file:
            return [judged for _, judged in _lines(file, path)]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, Judged]]:
    """Yield each whole line, with the place where it ends; leave out a cut-off last line."""
    end = 0
    for number, line in enumerate(file, start=1):
        if _is_cut_off(line, is_ours=end > 0) and next(file, None) is None:
            return
        if number == 1:
            _refuse_packed(line, path)
        end += len(line)
        try:
            judged = Judged.model_validate_json(line.removeprefix(BOM_UTF8))
        except ValidationError:
            raise ConfigError(
                f"{path}:{number}: not a verdict of this version; give a file of verdicts, or name "
                "another --out"
            ) from None
        yield end, judged


def _refuse_packed(line: bytes, path: Path) -> None:
    try:
        refuse_packed(line)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def _is_cut_off(line: bytes, *, is_ours: bool) -> bool:
    """Return whether a line may be what a kill or a power failure left of one.

    Such a line is half a line, or has NUL bytes where some or all of its blocks never reached the
    disk; JSON has none.

    Args:
        line: the line with its end, if it has one.
        is_ours: whether verdicts stand before it, so that the file is no stranger's.
    """
    is_whole = line.endswith(b"\n") and b"\0" not in line
    rest = line.strip(b"\0\n")
    return not is_whole and (
        BEGINNING.startswith(rest[: len(BEGINNING)]) or (is_ours and b"\0" in line)
    )
