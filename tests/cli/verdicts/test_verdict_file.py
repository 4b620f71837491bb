"""Tests that verdicts in a file outlive the process that wrote them."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from cudal1.cli.verdicts.verdict_file import Judged, VerdictFile, read_judged
from cudal1.errors import ConfigError
from cudal1.settings import protocols
from cudal1.verdict import Status, Verdict

PROTOCOL = protocols.load("cpu")


def _judged(candidate: str, protocol_id: str = PROTOCOL.id, kind: str = "cpu") -> Judged:
    verdict = Verdict(
        problem_id="p",
        candidate_id=candidate,
        protocol_id=protocol_id,
        device_kind=kind,
        device_id="d",
        status=Status.CRASHED,
        reason="no",
        judged_at="now",
        judge_s=1.0,
    )
    return Judged(
        suite="own", revision="r", level=1, problem_id=1, problem="own/L1/01_x", verdict=verdict
    )


def _opened(path: Path, *, timing: bool = True) -> VerdictFile:
    return VerdictFile(path, "cpu", PROTOCOL, timing=timing)


class Slow(FileIO):
    """A file that takes seven bytes at a time."""

    def write(self, data: Any, /) -> int:
        return super().write(data[:7])


@contextmanager
def _full_at(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_next_run_finds_earlier_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    with _opened(path) as verdicts:
        verdicts.add(_judged("a"))
    with _opened(path) as verdicts:
        assert verdicts.find("p", "a") == _judged("a")
        assert verdicts.find("p", "b") is None


def test_a_truncated_line_is_cut_off_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    with _opened(path) as verdicts:
        verdicts.add(_judged("a"))
        verdicts.add(_judged("b"))
    path.write_bytes(path.read_bytes()[:-20])
    with _opened(path) as verdicts:
        assert verdicts.find("p", "b") is None
        verdicts.add(_judged("c"))
    with _opened(path) as verdicts:
        assert [verdicts.find("p", name) is not None for name in "abc"] == [True, False, True]


def test_a_full_disk_is_one_error_and_costs_only_the_verdict_without_room(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    verdicts = _opened(path)
    verdicts.add(_judged("a"))
    whole = path.read_bytes()
    # closing has no room, either
    with (
        _full_at(len(whole) + 20),
        pytest.raises(ConfigError, match="; when it can, run"),
        verdicts,
    ):
        verdicts.add(_judged("b"))
    assert verdicts.find("p", "b") is None
    assert path.read_bytes() == whole


def test_the_same_run_may_continue_after_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    with _opened(path) as verdicts:
        with _full_at(20), pytest.raises(ConfigError):
            verdicts.add(_judged("a"))
        verdicts.add(_judged("b"))
    with _opened(path) as verdicts:
        assert [verdicts.find("p", name) is not None for name in "ab"] == [False, True]


def test_a_disk_that_takes_a_line_in_parts_gets_the_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verdicts.jsonl"
    with _opened(path) as verdicts:
        monkeypatch.setattr(verdicts, "_file", Slow(path, "ab"))
        verdicts.add(_judged("a"))
    assert path.read_bytes() == _judged("a").model_dump_json().encode() + b"\n"


@pytest.mark.parametrize(
    "tail",
    [
        b"\0" * 5000,
        b'{"suite":"own","rev' + b"\0" * 50,
        b"\0" * 50 + b'"judge_s":1.0}}\n',  # its first block is lost, its last one is not
        b'{"suite":"own","rev' + b"\0" * 50 + b'"judge_s":1.0}}\n',
    ],
    ids=["all", "end", "beginning", "middle"],
)
def test_bytes_left_by_a_power_failure_are_cut_off_and_the_next_line_is_whole(
    tmp_path: Path, tail: bytes
) -> None:
    path = tmp_path / "verdicts.jsonl"
    with _opened(path) as verdicts:
        verdicts.add(_judged("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert read_judged(path) == [_judged("a")]
    with _opened(path) as verdicts:
        assert path.read_bytes() == whole
        verdicts.add(_judged("b"))
    assert read_judged(path) == [_judged("a"), _judged("b")]


def test_a_file_without_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(b"\0" * 700)
    with _opened(path) as verdicts:
        verdicts.add(_judged("a"))
    assert read_judged(path) == [_judged("a")]


def test_verdicts_behind_nul_bytes_are_not_cut_off_with_them(tmp_path: Path) -> None:
    line = _judged("a").model_dump_json().encode() + b"\n"
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(line + b"\0" * 50 + line + line)
    with pytest.raises(ConfigError, match=r"verdicts\.jsonl:2: not a verdict"):
        _opened(path)
    assert path.read_bytes().endswith(line + line)


def test_verdicts_of_other_protocols_and_devices_stay_and_answer_nothing(tmp_path: Path) -> None:
    path, unlike = tmp_path / "verdicts.jsonl", [("a", "other", "cpu"), ("b", PROTOCOL.id, "GPU")]
    with _opened(path) as verdicts:
        for each in unlike:
            verdicts.add(_judged(*each))
            assert verdicts.find("p", each[0]) is None
    assert path.read_bytes().count(b"\n") == 2


def test_an_untimed_success_answers_only_an_untimed_request(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    with _opened(path, timing=False) as verdicts:
        verdicts.add(_judged("a", PROTOCOL.checks_only().id))
        assert verdicts.find("p", "a")
    with _opened(path) as verdicts:
        assert verdicts.find("p", "a") is None


def test_two_runs_cannot_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    with _opened(path), pytest.raises(ConfigError, match="another run writes it"):
        _opened(path)
    with _opened(path):
        pass


@pytest.mark.parametrize("content", ["dear diary\n", "dear diary", '{"level": 1', "PK\0\0"])
def test_a_file_of_another_kind_is_refused_and_left_unchanged(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"notes\.txt:1: not a verdict"):
        _opened(path)
    assert path.read_text() == content


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        _opened(tmp_path / "none" / "verdicts.jsonl")


def test_a_file_saved_by_an_editor_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    lines = [_judged(name).model_dump_json() + "\r\n" for name in "ab"]
    path.write_bytes("".join(lines).encode("utf-8-sig"))
    assert read_judged(path) == [_judged("a"), _judged("b")]
    with _opened(path) as verdicts:
        assert verdicts.find("p", "a") == _judged("a")
        verdicts.add(_judged("c"))
    assert len(read_judged(path)) == 3


def test_verdicts_are_read_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = _judged("a").model_dump_json() + "\n"
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    assert read_judged(pipe) == [_judged("a")]
    writer.join()


def test_verdicts_in_another_encoding_give_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(_judged("a").model_dump_json().encode("utf-16"))
    for read in (read_judged, _opened):
        with pytest.raises(ConfigError, match="save it as UTF-8"):
            read(path)
