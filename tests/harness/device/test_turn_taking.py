"""Judges of one machine take turns on a device, whichever users they belong to."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.errors import DeviceError
from cudal1.harness.device import turn_taking
from cudal1.harness.device.turn_taking import turn

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is open to all users, the only shared one; it is the temporary one, too."""
    folder = tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(0o1777)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)  # another user passes through
    monkeypatch.setattr(turn_taking, "SHARED", (folder,))
    monkeypatch.setattr(turn_taking, "LOOK_S", 0.02)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def as_nobody(work: Callable[[], None], *, temporary: Path | None = None) -> int:
    """Run a function as another user in a process of its own; return its exit status, 0 for
    success."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.umask(0o077)
            if temporary is not None:
                tempfile.tempdir = str(temporary)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def hold() -> None:
    with turn("d", "cpu", wait_s=0):
        pass


def be_refused() -> None:
    with pytest.raises(DeviceError, match=r"in use by (process [0-9]+ of )?user root"):
        hold()


@as_root
def test_two_users_are_served_one_after_the_other(place: Path) -> None:
    for _ in range(2):
        hold()
        assert as_nobody(hold) == 0


@as_root
def test_two_users_are_served_in_either_order(place: Path) -> None:
    assert as_nobody(hold) == 0
    hold()


@as_root
def test_another_user_is_refused_meanwhile_and_told_the_owner(place: Path) -> None:
    with turn("d", "cpu", wait_s=0):
        assert as_nobody(be_refused) == 0
    assert as_nobody(hold) == 0


@as_root
def test_users_with_temporary_folders_of_their_own_still_exclude_each_other(
    place: Path, tmp_path: Path
) -> None:
    other = tmp_path / "nobodys"
    other.mkdir()
    os.chown(other, NOBODY, NOBODY)
    with turn("d", "cpu", wait_s=0):
        assert as_nobody(be_refused, temporary=other) == 0
    assert as_nobody(hold, temporary=other) == 0


@as_root
@pytest.mark.parametrize("has_own_folder", [False, True])
def test_another_user_waits_for_its_turn(place: Path, tmp_path: Path, has_own_folder: bool) -> None:
    other = tmp_path / "nobodys"
    other.mkdir()
    os.chown(other, NOBODY, NOBODY)
    held, end = os.pipe(), os.pipe()

    def hold_for_a_while() -> None:
        with turn("d", "cpu", wait_s=0):
            os.write(held[1], b".")
            os.read(end[0], 1)

    holder = threading.Thread(
        target=as_nobody,
        args=(hold_for_a_while,),
        kwargs={"temporary": other if has_own_folder else None},
    )
    holder.start()
    os.read(held[0], 1)
    threading.Timer(0.3, os.write, (end[1], b".")).start()
    begun = time.monotonic()
    with turn("d", "cpu", wait_s=60):
        assert time.monotonic() - begun >= 0.25
    holder.join()


@as_root
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to("nothing"),
        lambda path: os.mkfifo(path, 0o666),
        lambda path: path.mkdir(),
        lambda path: path.touch(0o000),
    ],
    ids=["link", "link to nothing", "fifo", "folder", "closed file"],
)
@pytest.mark.parametrize("name", ["cudal1-device-d.lock", "cudal1-device-d.users"])
def test_a_file_that_another_user_has_put_there_is_an_error_that_names_the_owner(
    place: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(place / name)

    def be_told() -> None:
        with pytest.raises(DeviceError, match=r"user root must remove it") as caught:
            hold()
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)

    assert as_nobody(be_told) == 0


def test_a_user_s_own_judges_with_different_folders_do_not_exclude_each_other(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with turn("d", "cpu", wait_s=0):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        hold()


def test_every_user_may_open_the_files(place: Path) -> None:
    before = os.umask(0o077)
    try:
        hold()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert modes == {"cudal1-device-d.lock": 0o666, "cudal1-device-d.users": 0o666}


def test_words_that_others_wrote_into_a_lock_are_not_shown(place: Path) -> None:
    with turn("d", "cpu", wait_s=0):
        (place / "cudal1-device-d.lock").write_text("\x1b[2J rm -rf")
        with pytest.raises(DeviceError, match="in use by process unknown: ") as caught:
            hold()
    assert "\x1b" not in str(caught.value)


def test_the_shared_folder_does_not_depend_on_a_variable(tmp_path: Path) -> None:
    code = "from cudal1.harness.device import turn_taking\nprint(turn_taking._meeting_place('d'))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TMPDIR": folder},
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for folder in (str(tmp_path), "/tmp")
    }
    assert len(said) == 1
