"""Tests of the choice of the checkpoint from which a run continues."""

from __future__ import annotations

from pathlib import Path

from cudal1.train.checkpoints import latest_checkpoint


def make(work: Path, name: str, *files: str) -> Path:
    (work / name).mkdir()
    for file in files:
        (work / name / file).write_text("{}")
    return work / name


def test_a_folder_without_checkpoints_has_no_newest_one(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "missing") is None


def test_the_newest_is_the_highest_step_not_the_last_name(tmp_path: Path) -> None:
    make(tmp_path, "checkpoint-9", "trainer_state.json")
    newest = make(tmp_path, "checkpoint-10", "trainer_state.json")
    assert latest_checkpoint(tmp_path) == newest


def test_half_written_and_foreign_folders_are_ignored(tmp_path: Path) -> None:
    whole = make(tmp_path, "checkpoint-5", "trainer_state.json")
    make(tmp_path, "checkpoint-10", "model.safetensors")
    make(tmp_path, "checkpoint-best", "trainer_state.json")
    assert latest_checkpoint(tmp_path) == whole


def test_a_checkpoint_without_the_environments_state_is_incomplete_for_grpo(tmp_path: Path) -> None:
    whole = make(tmp_path, "checkpoint-5", "trainer_state.json", "cudal1.json")
    make(tmp_path, "checkpoint-10", "trainer_state.json")
    assert latest_checkpoint(tmp_path, last_file="cudal1.json") == whole
