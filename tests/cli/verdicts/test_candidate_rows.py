"""Tests of reading a file of candidates, by any writer, also one that was killed."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path

import pytest

from cudal1.cli.verdicts import candidate_rows as module
from cudal1.cli.verdicts.candidate_rows import CandidateRow, is_pipe, read_rows, summed_up
from cudal1.errors import ConfigError

ROW = {"level": 1, "problem_id": 8, "source": "class ModelNew: pass"}


def _written(path: Path, *lines: bytes) -> Path:
    file = path / "answers.jsonl"
    file.write_bytes(b"\n".join(lines))
    return file


def test_rows_keep_their_order_and_other_fields_are_ignored(tmp_path: Path) -> None:
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
def test_a_line_that_is_not_a_row_is_named_and_the_rest_is_read(
    tmp_path: Path, line: bytes, said: str
) -> None:
    good = json.dumps(ROW).encode()
    file = _written(tmp_path, good, line, good)
    found, complaints = read_rows(file)
    assert len(found) == 2
    (complaint,) = complaints
    assert complaint.startswith(f"{file}:2: {said}")
    assert "\n" not in complaint


def test_a_line_too_long_for_memory_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1 << 10)
    good = json.dumps(ROW).encode()
    file = _written(tmp_path, good, b"x" * 5000, good, b"y" * 1024, good)
    found, complaints = read_rows(file)
    assert len(found) == 3
    assert [complaint.split(":")[1] for complaint in complaints] == ["2", "4"]


def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path: Path) -> None:
    file = _written(tmp_path, b"\xef\xbb\xbf" + json.dumps(ROW).encode())
    assert read_rows(file) == ([CandidateRow(**ROW)], [])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        read_rows(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rows(tmp_path / "none.jsonl")


THREE = [{**ROW, "problem_id": number} for number in (3, 1, 2)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(THREE),
        json.dumps(THREE, indent=2),
        "\ufeff" + json.dumps(THREE, indent=1).replace("\n", "\r\n"),
        json.dumps({"candidates": THREE}),
        json.dumps({"model": "m", "candidates": THREE}, indent=1),
        "\n".join(json.dumps(row, indent=2) for row in THREE),
        "\n\n[\n" + ",\n".join(map(json.dumps, THREE)) + "\n]\n",
        "\r\n".join(map(json.dumps, THREE)),
        "\n".join(json.dumps({**row, "level": "level1"}) for row in THREE),
        "\n".join(json.dumps({**row, "problem_id": str(row["problem_id"])}) for row in THREE),
    ],
)
def test_one_document_is_read_like_lines(tmp_path: Path, text: str) -> None:
    file = _written(tmp_path, text.encode())
    assert read_rows(file) == ([CandidateRow.model_validate(row) for row in THREE], [])


def test_one_object_over_several_lines_is_one_candidate(tmp_path: Path) -> None:
    file = _written(tmp_path, json.dumps(ROW, indent=2).encode())
    assert read_rows(file) == ([CandidateRow.model_validate(ROW)], [])


def test_items_of_an_array_that_are_not_rows_are_named(tmp_path: Path) -> None:
    file = _written(tmp_path, json.dumps([ROW, {"level": 1}, ROW], indent=1).encode())
    rows, complaints = read_rows(file)
    assert len(rows) == 2
    assert complaints == [f"{file}:item 2: problem_id: field required"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (json.dumps([ROW, ROW], indent=1).encode()[:-20], "no JSON document: line "),
        (b"level,problem_id,source\n1,2,x\n" * 100, "no JSON document: line 1"),
        (b"import torch\n\nclass ModelNew: pass\n", "no JSON document: line 1"),
        (b"[" * 100_000, "nested too deeply"),
        (gzip.compress(b"{}", mtime=0), "but gzip; unpack it first"),
        (json.dumps(ROW).encode("utf-16"), "but UTF-16; save it as UTF-8"),
        (b'[{"x": "\xfc"}]', "not UTF-8 text (byte 8); save it as UTF-8"),
    ],
)
def test_a_file_without_any_row_is_one_mistake(tmp_path: Path, data: bytes, said: str) -> None:
    file = _written(tmp_path, data)
    with pytest.raises(ConfigError) as raised:
        read_rows(file)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_truncated_first_line_costs_no_other(tmp_path: Path) -> None:
    good = json.dumps(ROW).encode()
    file = _written(tmp_path, b"", good[:20], b"", good)
    rows, complaints = read_rows(file)
    assert len(rows) == 1
    assert complaints == [f"{file}:2: not a line of JSON; was its writer stopped in the middle?"]


def test_the_same_mistake_in_many_lines_is_summed_up() -> None:
    alike = [f"a:b.jsonl:{number}: source: field required" for number in range(1, 1001)]
    others = ["a:b.jsonl:7: level: x", "level 1 problem 99: not in the suite; 1 rows"]
    assert summed_up([*alike[:5], *others, *alike[5:]]) == [
        *alike[:3],
        "a:b.jsonl: 997 more like these: source: field required",
        *others,
    ]


def test_a_source_is_kept_in_its_utf8_form(tmp_path: Path) -> None:
    source = "\ufeff# coding: latin-1\nclass ModelNew: 'é'\n"
    file = _written(tmp_path, json.dumps({**ROW, "source": source}).encode())
    assert read_rows(file)[0][0].source == "# coding: utf-8\nclass ModelNew: 'é'\n"


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "\n".join(map(json.dumps, THREE))
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    assert len(read_rows(pipe)[0]) == 3
    writer.join()
    assert is_pipe(pipe)
    assert not any(is_pipe(path) for path in (tmp_path, tmp_path / "none", Path(__file__)))
