"""A file of candidates that anybody may have written, and died at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudal1.cli import candidate_rows as module
from cudal1.cli.candidate_rows import CandidateRow, read_rows
from cudal1.errors import ConfigError

ROW = {"level": 1, "problem_id": 8, "source": "class ModelNew: pass"}


def _written(path: Path, *lines: bytes) -> Path:
    file = path / "answers.jsonl"
    file.write_bytes(b"\n".join(lines))
    return file


def test_answers_come_in_their_order_and_other_fields_are_left_alone(tmp_path: Path) -> None:
    rows = [{**ROW, "problem_id": number, "model": "m"} for number in (3, 1, 2)]
    file = _written(tmp_path, *(json.dumps(row).encode() for row in rows), b"", b"  ")
    found, complaints = read_rows(file)
    assert found == [CandidateRow(**{**ROW, "problem_id": number}) for number in (3, 1, 2)]
    assert complaints == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (json.dumps(ROW).encode()[:-9], "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b"[1]", "not an object"),
        (b"\xff", "not UTF-8 text (byte 0)"),
        (json.dumps({**ROW, "level": "easy"}).encode(), "level: "),
        (json.dumps({**ROW, "level": True}).encode(), "level: input should be a valid integer"),
        (json.dumps({**ROW, "problem_id": False}).encode(), "problem_id: input should be a valid"),
        (json.dumps({"level": 1, "source": "x"}).encode(), "problem_id: field required"),
        (json.dumps({**ROW, "source": ""}).encode(), "source: "),
    ],
)
def test_a_line_that_is_no_answer_is_named_and_the_rest_goes_on(
    tmp_path: Path, line: bytes, said: str
) -> None:
    good = json.dumps(ROW).encode()
    file = _written(tmp_path, good, line, good)
    found, complaints = read_rows(file)
    assert len(found) == 2
    (complaint,) = complaints
    assert complaint.startswith(f"{file}:2: {said}")
    assert "\n" not in complaint


def test_a_line_too_long_to_be_held_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1 << 10)
    good = json.dumps(ROW).encode()
    file = _written(tmp_path, good, b"x" * 5000, good, b"y" * 1024, good)
    found, complaints = read_rows(file)
    assert len(found) == 3
    assert [complaint.split(":")[1] for complaint in complaints] == ["2", "4"]


def test_a_mark_at_the_beginning_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    file = _written(tmp_path, b"\xef\xbb\xbf" + json.dumps(ROW).encode())
    assert read_rows(file) == ([CandidateRow(**ROW)], [])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        read_rows(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rows(tmp_path / "none.jsonl")
