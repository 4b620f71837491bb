"""Findings about references are found again under the same circumstances, or cost nothing."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

import pytest

from cudal1.harness.admission import known_references
from cudal1.harness.admission.known_references import (
    Circumstances,
    KnownReferences,
    TrialCircumstances,
)
from cudal1.harness.device.device import Device, find_device
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass
from cudal1.record import Record
from cudal1.settings import protocols

PROTOCOL = protocols.load("cpu")
DEVICE = find_device(DeviceClass.CPU)
SOURCE = "import torch\n"


class Found(Record):
    words: str


def problem_of(source: str = SOURCE, name: str = "toy") -> Problem:
    return Problem(
        suite="toy",
        level=1,
        number=1,
        name=name,
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source=source,
    )


def about(source: str = SOURCE, device: Device = DEVICE, **changes: object) -> TrialCircumstances:
    protocol = EvalProtocol.model_validate(PROTOCOL.model_copy(update=changes))
    return TrialCircumstances.of(problem_of(source), protocol, device)


@pytest.fixture
def known(tmp_path: Path) -> KnownReferences:
    return KnownReferences(tmp_path / "cudal1" / "references")


def only_file(known: KnownReferences) -> Path:
    (file,) = known.folder.iterdir()
    return file


def test_another_cache_of_the_folder_finds_a_kept_record(known: KnownReferences) -> None:
    known.keep(about(), Found(words="one"))
    assert KnownReferences(known.folder).find(about(), Found) == Found(words="one")
    known.keep(about(), Found(words="later"))
    assert known.find(about(), Found) == Found(words="later")
    assert known.size().num_records == 1


def test_the_folder_and_its_records_are_this_user_s_alone(known: KnownReferences) -> None:
    known.keep(about(), Found(words="one"))
    assert known.folder.stat().st_mode & 0o777 == 0o700
    assert only_file(known).stat().st_mode & 0o777 == 0o600


def test_a_problem_is_known_by_its_source_whatever_its_name() -> None:
    one, same = (
        Circumstances.of(problem_of(name=name), PROTOCOL, DEVICE) for name in ("one", "two")
    )
    assert one == same


@pytest.mark.parametrize(
    "other",
    [
        about(SOURCE + " "),
        about(SOURCE[:-1] + "\r"),
        about(precision=PrecisionClass.HALF),
        about(mode=Mode.EVAL),
        about(seed=PROTOCOL.seed + 1),
        about(contract=Contract.DROP_IN),
        about(correctness_stages=(3, 16)),
        about(device=DEVICE.model_copy(update={"kind": "another"})),
        about(device=DEVICE.model_copy(update={"driver": "1.2.3"})),
    ],
    ids=[
        "a byte more",
        "another byte",
        "precision",
        "mode",
        "seed",
        "contract",
        "stages",
        "device",
        "driver",
    ],
)
def test_findings_under_other_circumstances_are_not_known(
    known: KnownReferences, other: TrialCircumstances
) -> None:
    known.keep(other, Found(words="other"))
    assert known.find(about(), Found) is None
    assert known.find(other, Found) == Found(words="other")


@pytest.mark.parametrize(
    "changes",
    [{"burst_us": 17}, {"alpha": 0.001}, {"max_quads": 99}, {"slow_factor": 3.0}],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_of_timing_are_no_circumstance(
    known: KnownReferences, changes: dict[str, object]
) -> None:
    known.keep(about(), Found(words="one"))
    assert known.find(about(**changes), Found) == Found(words="one")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HARNESS_VERSION", "another"),
        ("_our_code", lambda: "another"),
        ("_packages", lambda: "another"),
        ("processor", lambda: "another"),
    ],
    ids=["harness", "code", "packages", "processor"],
)
def test_findings_of_another_version_are_not_known(
    known: KnownReferences, name: str, value: object
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_references, name, value)
        known.keep(about(), Found(words="theirs"))
        assert known.find(about(), Found) == Found(words="theirs")
    assert known.find(about(), Found) is None


def test_a_change_of_our_own_code_is_a_circumstance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("harness/admission/x.py", "harness/oracle/oracle.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("one")
    here = tmp_path / "harness" / "admission" / "x.py"
    monkeypatch.setattr(known_references, "__file__", str(here))
    before = known_references._our_code.__wrapped__()
    assert known_references._our_code.__wrapped__() == before
    (tmp_path / "harness" / "oracle" / "oracle.py").write_text("two")
    assert known_references._our_code.__wrapped__() != before


def test_an_installed_package_is_a_circumstance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    (folder / "einops-1.0.dist-info").mkdir(parents=True)
    before = known_references._packages.__wrapped__()
    monkeypatch.syspath_prepend(folder)
    assert known_references._packages.__wrapped__() != before


# --- what is no record ---------------------------------------------------------------------------


def test_records_of_two_kinds_are_kept_apart(known: KnownReferences) -> None:
    class Other(Record):
        number: int

    known.keep(about(), Found(words="one"))
    assert known.find(about(), Other) is None
    known.keep(about(), Other(number=1))
    assert (known.find(about(), Found), known.find(about(), Other)) == (
        Found(words="one"),
        Other(number=1),
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"[1", b"null", b"[]", b"{}", b'{"about": 1, "found": 2}', b"\xff\x00", b"[" * 100_000],
    ids=["nothing", "no JSON", "null", "a list", "empty", "numbers", "no text", "deep"],
)
def test_a_file_that_holds_no_record_is_ignored_and_replaced(
    known: KnownReferences, content: bytes
) -> None:
    known.keep(about(), Found(words="one"))
    only_file(known).write_bytes(content)
    assert known.find(about(), Found) is None
    known.keep(about(), Found(words="again"))
    assert known.find(about(), Found) == Found(words="again")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_record_that_was_cut_off_is_ignored(known: KnownReferences, share: float) -> None:
    known.keep(about(), Found(words="one"))
    file = only_file(known)
    os.truncate(file, int(share * file.stat().st_size))
    assert known.find(about(), Found) is None


def test_a_record_under_the_name_of_another_is_ignored(known: KnownReferences) -> None:
    known.keep(about(), Found(words="one"))
    name = only_file(known)
    known.keep(about("other"), Found(words="other"))
    (other,) = set(known.folder.iterdir()) - {name}
    other.rename(name)
    assert known.find(about(), Found) is None


@pytest.mark.parametrize("found", [{}, {"words": 1}, {"words": "one", "more": 2}, "one", None])
def test_a_record_with_a_content_of_another_form_is_ignored(
    known: KnownReferences, found: object
) -> None:
    known.keep(about(), Found(words="one"))
    record = json.loads(only_file(known).read_text())
    only_file(known).write_text(json.dumps({**record, "found": found}))
    assert known.find(about(), Found) is None


def test_no_link_is_followed(known: KnownReferences, tmp_path: Path) -> None:
    known.keep(about(), Found(words="one"))
    file, elsewhere = only_file(known), tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert known.find(about(), Found) is None
    known.keep(about(), Found(words="again"))
    assert not file.is_symlink()
    assert "one" in elsewhere.read_text()
    linked = tmp_path / "linked"
    linked.symlink_to(known.folder)
    assert KnownReferences(linked).find(about(), Found) is None


def test_a_pipe_is_ignored_at_once(known: KnownReferences) -> None:
    known.keep(about(), Found(words="one"))
    file = only_file(known)
    file.unlink()
    os.mkfifo(file)
    assert known.find(about(), Found) is None
    assert known.size() == known.forget() == (0, 0)


def test_a_record_that_is_too_large_is_neither_kept_nor_read(
    known: KnownReferences, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.keep(about(), Found(words="x" * 2000))
    monkeypatch.setattr(known_references, "RECORD_BYTES", 1000)
    assert known.find(about(), Found) is None
    known.keep(about("other"), Found(words="x" * 2000))
    assert known.size().num_records == 1


# --- folders and disks ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o710])
def test_a_folder_that_is_open_to_others_is_not_used_and_causes_one_warning(
    known: KnownReferences, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    known.keep(about(), Found(words="one"))
    known.folder.chmod(mode)
    known_references._warn.cache_clear()
    with caplog.at_level(logging.WARNING, "cudal1"):
        assert known.find(about(), Found) is None
        known.keep(about("other"), Found(words="other"))
    assert known.size() == (0, 0)
    (said,) = caplog.messages
    assert said.startswith(f"{known.folder}: ")
    assert "remove it, or set XDG_CACHE_HOME" in said
    known.folder.chmod(0o700)
    assert known.size().num_records == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_neither_read_nor_written(
    known: KnownReferences, caplog: pytest.LogCaptureFixture
) -> None:
    known.keep(about(), Found(words="theirs"))
    os.chown(known.folder, 65534, 65534)
    known_references._warn.cache_clear()
    assert known.find(about(), Found) is None
    known.keep(about("other"), Found(words="ours"))
    assert len(list(known.folder.iterdir())) == 1
    assert "not this user's alone" in caplog.text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_record_of_another_user_is_not_read(known: KnownReferences) -> None:
    known.keep(about(), Found(words="theirs"))
    os.chown(only_file(known), 65534, 65534)
    assert known.find(about(), Found) is None


@pytest.mark.parametrize("where", ["rename", "open", "listdir"])
def test_a_full_disk_forgets_and_leaves_nothing_behind(
    known: KnownReferences, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.keep(about(), Found(words="before"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(known_references.os, where, full)
    known.keep(about("other"), Found(words="other"))
    monkeypatch.undo()
    assert known.find(about(), Found) == Found(words="before")
    assert all(file.suffix == ".json" for file in known.folder.iterdir())


def test_a_folder_that_cannot_exist_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    known = KnownReferences(tmp_path / "file" / "references")
    known.keep(about(), Found(words="one"))
    assert known.find(about(), Found) is None
    assert known.size() == known.forget() == (0, 0)


def test_two_processes_that_write_at_once_leave_whole_records(known: KnownReferences) -> None:
    long = ["a" * 50_000, "b" * 50_000]
    children: list[int] = []
    for words in long:
        child = os.fork()
        if child == 0:
            for number in range(60):
                known.keep(about(), Found(words=words))
                known.keep(about(f"{words[0]} {number}"), Found(words=words))
            os._exit(0)
        children.append(child)
    seen: set[str] = set()
    while children:
        found = known.find(about(), Found)
        seen.add(found.words if found else "")
        children = [each for each in children if os.waitpid(each, os.WNOHANG)[0] == 0]
    assert seen <= {"", *long}
    assert known.find(about(), Found) in [Found(words=words) for words in long]
    assert known.size().num_records == 1 + 2 * 60
    assert all(file.suffix == ".json" for file in known.folder.iterdir())


def test_the_oldest_records_are_removed_when_there_are_too_many(
    known: KnownReferences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_references, "KEPT_BYTES", 20_000)
    for number in range(40):
        known.keep(about(str(number)), Found(words="x" * 1000))
        newest = max(known.folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, (number, number))  # however coarse the clock of the disk is
    assert 10_000 < known.size().num_bytes <= 20_000
    assert known.find(about("39"), Found) is not None
    assert known.find(about("0"), Found) is None


def test_unfinished_files_of_another_process_are_removed_in_time(known: KnownReferences) -> None:
    known.keep(about(), Found(words="one"))
    old, young, not_ours = (
        known.folder / name for name in ("old.json.1.part", "young.json.2.part", "notes.txt")
    )
    for file in (old, young, not_ours):
        file.write_text("{")
    then = time.time() - 2 * known_references.FORGOTTEN_S
    for file in (old, not_ours):
        os.utime(file, (then, then))
    known.keep(about("other"), Found(words="other"))
    assert (old.exists(), young.exists(), not_ours.exists()) == (False, True, True)


def test_all_records_can_be_forgotten_and_nothing_else(known: KnownReferences) -> None:
    for source in ("one", "other"):
        known.keep(about(source), Found(words=source))
    (known.folder / "notes.txt").write_text("mine")
    assert known.forget().num_records == 2
    assert known.find(about("one"), Found) is None
    assert [file.name for file in known.folder.iterdir()] == ["notes.txt"]


def test_records_are_kept_in_the_user_s_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = known_references.of_this_user()
    assert known is not None
    assert known.folder == tmp_path / "cudal1" / "references"
    assert not known.folder.exists()
