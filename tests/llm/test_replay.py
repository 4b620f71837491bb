"""Tests of recorded completions: matching, order, exhaustion, bad files, and the shipped ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import ConfigError, ProviderError
from cudal1.extract.extract import extract
from cudal1.llm.provider import EXHAUSTED, Request, complete
from cudal1.llm.replay import Recording, ReplayProvider, load_recordings
from cudal1.settings.provider_settings import ReplaySettings

Ask = Callable[..., list[Request]]

LINE = {"suite": "toy", "level": 1, "number": 1, "name": "relu", "model": "m", "text": "first"}


def replay(path: Path | None) -> ReplayProvider:
    """Return a provider named `x`."""
    settings = ReplaySettings(kind="replay", path=None if path is None else str(path))
    return ReplayProvider("x", settings)


def write(path: Path, *lines: dict[str, object]) -> Path:
    """Write a recordings file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_attempt_k_gets_the_k_th_recording(tmp_path: Path, ask: Ask, kept: Any) -> None:
    provider = replay(write(tmp_path / "a.jsonl", LINE, {**LINE, "text": "second"}))
    texts = [completion.text for completion in complete(provider, ask(provider, attempts=2), kept)]
    assert texts == ["first", "second"]


def test_another_problem_s_recordings_are_not_used(tmp_path: Path, ask: Ask, kept: Any) -> None:
    provider = replay(write(tmp_path / "a.jsonl", {**LINE, "number": 2}, LINE))
    (completion,) = complete(provider, ask(provider), kept)
    assert completion.text == "first"


def test_a_problem_without_further_recordings_is_exhausted(
    tmp_path: Path, ask: Ask, kept: Any
) -> None:
    provider = replay(write(tmp_path / "a.jsonl", LINE))
    completions = list(complete(provider, ask(provider, attempts=2), kept))
    assert [completion.finish_reason for completion in completions] == ["stop", EXHAUSTED]


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", {**LINE, "text": "second"})
    write(tmp_path / "a.jsonl", LINE)
    assert [recording.text for recording in load_recordings(tmp_path)] == ["first", "second"]


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"\n{json.dumps(LINE)}\r\n\n", encoding="utf-8")
    assert len(load_recordings(path)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '"text"',
        "null",
        json.dumps({**LINE, "extra": 1}),
        json.dumps({"text": "x"}),
        json.dumps({**LINE, "level": "one"}),
        "\x00",
        '{"text": "\\ud800"}',
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(LINE)}\n{line}\n", encoding="utf-8")
    with pytest.raises(ProviderError, match=r"a\.jsonl, line 2: ") as caught:
        replay(path)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ProviderError, match="line 1"):
        replay(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match=r"provider x: .*none\.jsonl cannot be read"):
        replay(tmp_path / "none.jsonl")


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match=r"no \.jsonl file"):
        replay(tmp_path)


def test_other_recordings_make_another_provider(tmp_path: Path) -> None:
    one = replay(write(tmp_path / "a.jsonl", LINE))
    two = replay(write(tmp_path / "b.jsonl", {**LINE, "text": "second"}))
    assert one.fingerprint != two.fingerprint


def shipped() -> list[Recording]:
    """Return the recordings of the package."""
    return load_recordings(Path(str(files("cudal1") / "llm" / "recordings")))


def test_the_shipped_recordings_are_many_and_mixed() -> None:
    kinds = Counter(recording.expect for recording in shipped())
    assert kinds.total() >= 60
    assert kinds["correct"] >= 25
    assert kinds["wrong"] >= 8
    assert kinds["cheat"] >= 6
    assert kinds["needs_cuda"] >= 20


def test_every_shipped_recording_can_be_extracted_and_parses() -> None:
    for recording in shipped():
        source = extract(recording.text).source
        assert source is not None, recording.problem_key
        compile(source, recording.name, "exec")


def test_no_shipped_recording_is_repeated() -> None:
    texts = [(recording.problem_key, recording.text) for recording in shipped()]
    assert len(texts) == len(set(texts))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Make a checkout in the format of the CUDA-L1 release, with two GPU kinds."""
    folder = tmp_path / "optimized_cuda_code"
    folder.mkdir()
    row = {"level_id": 1, "task_id": 1, "ref_code": "class Model: ...", "score_default": 2.0}
    for kind in ("a100", "h100"):
        rows = [{**row, "custom_code": f"class ModelNew: '{kind}'"}, {**row, "task_id": 2}]
        (folder / f"{kind}.json").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return tmp_path


def test_kernels_of_each_gpu_kind_are_the_attempts_at_a_kernelbench_problem(
    release: Path, ask: Ask, kept: Any
) -> None:
    provider = replay(release)
    asked = ask(provider, attempts=3)
    of_kernelbench = [
        each.model_copy(
            update={"problem": each.problem.model_copy(update={"suite": "kernelbench"})}
        )
        for each in asked
    ]
    answers = list(complete(provider, of_kernelbench, kept))
    found = [extract(answer.text).source for answer in answers[:2]]
    assert found == ["class ModelNew: 'a100'\n", "class ModelNew: 'h100'\n"]
    assert answers[2].finish_reason == EXHAUSTED
    (other,) = complete(provider, ask(provider), kept)
    assert other.finish_reason == EXHAUSTED


def test_one_gpu_kind_s_file_is_read_alone_and_rows_without_code_are_left_out(
    release: Path,
) -> None:
    found = load_recordings(release / "optimized_cuda_code" / "h100.json")
    assert [(each.model, each.number) for each in found] == [("cuda-l1 h100", 1)]


def test_a_malformed_row_of_the_release_is_named(release: Path) -> None:
    file = release / "optimized_cuda_code" / "h100.json"
    file.write_text('{"level_id": 1}\n')
    with pytest.raises(ConfigError, match=r"h100.json:1: task_id: .*; give a whole checkout"):
        load_recordings(release)
