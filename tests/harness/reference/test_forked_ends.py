"""An answer or an end is all that a forked process gives its parent, whatever its object does."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cudal1.errors import WorkerError
from cudal1.harness.reference.forked import Ended, Forked


class Odd:
    """An object that does in its process what a problem may do."""

    def say(self, word: str) -> str:
        return word

    def crash(self) -> None:
        os.abort()

    def leave(self, note: Path) -> None:
        """Leave a process in a session of its own behind, and end."""
        if os.fork() == 0:
            os.setsid()
            note.write_text(f"{os.getpid()}")
            time.sleep(600)
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        os._exit(3)

    def kill_parent(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    def write(self, content: bytes) -> None:
        """Write to each open descriptor except the standard streams."""
        for number in range(3, 256):
            try:
                os.write(number, len(content).to_bytes(4, "big") + content)
            except OSError:
                continue

    def fail(self) -> None:
        raise LookupError("word")

    def open_files(self) -> list[int]:
        """Return the descriptors of open files, `/dev/null` aside."""
        found: list[int] = []
        for number in range(3, 256):
            try:
                info = os.fstat(number)
            except OSError:
                continue
            if info.st_rdev != Path(os.devnull).stat().st_rdev:
                found.append(number)
        return found


INHERITED: list[socket.socket] = []


class Heir:
    """An object that frees what its process has inherited."""

    def num_closed(self) -> int:
        """Open files, free all that is inherited, and return how many of the files are closed."""
        files = [os.open("/", os.O_RDONLY) for _ in range(256)]
        INHERITED.clear()
        gc.collect()
        return sum(not Path(f"/proc/self/fd/{file}").exists() for file in files)


@pytest.fixture
def odd() -> Iterator[Forked]:
    forked = Forked(Odd)
    yield forked
    forked.close()


def test_a_crash_is_named(odd: Forked) -> None:
    assert odd.ask("say", "word") == "word"
    with pytest.raises(Ended, match=r"crashes \(SIGABRT\)"):
        odd.ask("crash")
    with pytest.raises(Ended, match="SIGABRT"):
        odd.ask("say", "word")


def test_no_process_that_the_object_started_outlives_it(odd: Forked, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(Ended, match="exit status 3"):
        odd.ask("leave", note)
    left = int(note.read_text())
    assert not psutil.pid_exists(left)


def test_an_object_that_kills_its_parent_costs_only_itself(odd: Forked) -> None:
    with pytest.raises(Ended, match=r"crashes \(SIGKILL\)"):
        odd.ask("kill_parent")


def test_an_answer_that_cannot_be_read_ends_the_process(odd: Forked) -> None:
    with pytest.raises(Ended, match="gives no answer that can be read"):
        odd.ask("write", b"no pickle")
    with pytest.raises(Ended):
        odd.ask("say", "word")


def test_an_answer_of_another_form_ends_the_process(odd: Forked) -> None:
    with pytest.raises(Ended, match="gives no answer that can be read"):
        odd.ask("write", pickle.dumps(3))


def test_descriptors_that_are_not_kept_are_closed_in_the_process() -> None:
    kept, other = os.pipe()
    forked = Forked(Odd, keeps=[kept])
    try:
        is_open = forked.ask("open_files")
    finally:
        forked.close()
        os.close(kept)
        os.close(other)
    assert kept in is_open
    assert other not in is_open


def test_an_inherited_object_that_is_freed_closes_no_file_of_the_process() -> None:
    INHERITED.extend(socket.socketpair())
    try:
        forked = Forked(Heir)
    finally:
        INHERITED.clear()
    try:
        assert forked.ask("num_closed") == 0
    finally:
        forked.close()


def test_inherited_garbage_closes_no_file_of_the_process() -> None:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        garbage: list[object] = [*socket.socketpair()]
        garbage.append(garbage)
        del garbage
        forked = Forked(Heir)
    finally:
        if was_enabled:
            gc.enable()
    try:
        assert forked.ask("num_closed") == 0
    finally:
        forked.close()


def test_an_error_of_the_object_is_raised_here_and_says_where(odd: Forked) -> None:
    with pytest.raises(WorkerError, match="LookupError: word") as caught:
        odd.ask("fail")
    (note,) = caught.value.__notes__
    assert f'{Path(__file__).name}", line' in note
    assert "in fail" in note
