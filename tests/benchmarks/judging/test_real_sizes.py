"""Tests of judging KernelBench's references against themselves: choice, storage, counts, rates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judging import real_sizes as bench
from benchmarks.release.command import Files
from benchmarks.release.state import State
from cudal1.errors import ConfigError
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass
from cudal1.settings import protocols
from cudal1.verdict import Status
from tests.benchmarks.release_checkout import REFERENCE
from tests.benchmarks.test_release import verdict

ROOT = Path(__file__).parents[3]
WIDE = "width = 4096\n" + REFERENCE.replace("16", "width")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a folder of KernelBench's form, with four problems of two levels."""
    for level, number in ((1, 1), (1, 2), (1, 3), (2, 1)):
        file = tmp_path / "checkout" / "KernelBench" / f"level{level}" / f"{number}_some.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {level} {number}\n{WIDE}")
    return tmp_path / "checkout"


def way(tmp_path: Path, num_gpus: int = 1) -> bench.Way:
    device, protocol = find_device(DeviceClass.CPU), protocols.load("cpu")
    state = State(tmp_path / "state", tmp_path / "work")
    return bench.Bench(state, device, protocol).way(num_gpus)


def test_a_sample_is_reproducible_and_part_of_every_larger_sample(checkout: Path) -> None:
    def taken(sample: int | None) -> dict[str, str]:
        return bench.problems(checkout, levels=[1, 2], sample=sample, largest=None)

    assert len(taken(None)) == 4
    assert taken(2) == taken(2)
    assert taken(2).items() < taken(3).items() < taken(None).items()


def test_only_requested_levels_are_taken(checkout: Path) -> None:
    found = bench.problems(checkout, levels=[2], sample=None, largest=None)
    assert list(found) == ["level2/1_some.py"]


def test_a_rehearsal_cuts_sizes_and_other_runs_keep_them(checkout: Path) -> None:
    (small,) = bench.problems(checkout, levels=[2], sample=None, largest=64).values()
    (own,) = bench.problems(checkout, levels=[2], sample=None, largest=None).values()
    assert "width = 64\n" in small
    assert "width = 4096\n" in own


def test_a_folder_that_is_not_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a checkout"):
        bench.problems(tmp_path, levels=[1], sample=None, largest=None)


def test_problems_of_an_earlier_sample_are_removed(checkout: Path, tmp_path: Path) -> None:
    for levels in ([1], [2]):
        found = bench.problems(checkout, levels=levels, sample=None, largest=None)
        bench.write(found, tmp_path / "suite")
    files = (tmp_path / "suite").rglob("*.py")
    assert [f"{file.parent.name}/{file.name}" for file in files] == ["level2/1_some.py"]


def test_the_null_test_counts_outcomes_of_references_against_themselves() -> None:
    judged = [verdict(certified=each) for each in (1.0, 1.0, 1.02, 0.9)]
    found = bench.null_test([*judged, verdict(Status.CRASHED)])
    assert found == {"num_timed": 4, "num_not_correct": 1, "num_faster": 1, "num_slower": 1}


def test_two_gpus_are_compared_once_both_runs_are_complete() -> None:
    def ended(wall_s: float, *, is_complete: bool = True) -> dict[str, Any]:
        return {"wall_s": wall_s, "is_complete": is_complete}

    assert bench.times_faster({"1": ended(100.0), "2": ended(50.0)}) == 2.0
    assert bench.times_faster({"1": ended(100.0), "2": ended(50.0, is_complete=False)}) is None
    assert bench.times_faster({"1": ended(100.0)}) is None


def test_an_interrupted_run_has_no_rate_of_its_own(tmp_path: Path) -> None:
    cut = way(tmp_path)
    runs = [
        {"wall_s": 60.0, "first_verdict_s": 9.0, "code": 130, "is_cold": True, "complaints": []},
        {"wall_s": 40.0, "first_verdict_s": 5.0, "code": 0, "is_cold": False, "complaints": ["a"]},
    ]
    cut.files.folder.mkdir(parents=True)
    cut.runs_file.write_text("".join(json.dumps(each) + "\n" for each in runs))
    found = bench.outcome(cut)
    assert found["is_complete"]
    assert (found["wall_s"], found["first_verdict_s"]) == (100.0, 9.0)
    assert found["verdicts_a_second_judging"] is None
    assert found["refused"] == ["a"]


def test_each_number_of_gpus_has_its_own_cache(tmp_path: Path) -> None:
    caches = {way(tmp_path, each).environment()["XDG_CACHE_HOME"] for each in (1, 2)}
    assert len(caches) == 2


def test_the_answer_of_a_killed_command_has_no_complaints(tmp_path: Path) -> None:
    files = Files(tmp_path, tmp_path / "verdicts.jsonl")
    files.answer.write_text('{"compl')
    assert bench.complaints(files.answer) == []


@pytest.mark.slow
def test_references_are_judged_once_and_then_timed_with_warm_caches(
    checkout: Path, tmp_path: Path
) -> None:
    command = [
        *(sys.executable, "-m", "benchmarks.judging.real_sizes", "--checkout", str(checkout)),
        *("--state", str(tmp_path / "state"), "--out", str(tmp_path / "out"), "--device", "cpu"),
        *("--largest", "32", "--sample", "2", "--minutes", "10"),
    ]

    def ran() -> dict[str, Any]:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        text = (tmp_path / "out" / "real_sizes_cpu.json").read_text()
        return json.loads(text)["ways"]["1"]

    first, again = ran(), ran()
    assert first == again
    assert first["is_complete"]
    assert first["num_verdicts"] == 2
    assert (first["num_not_correct"], first["num_faster"]) == (0, 0)
    assert 0 < first["first_verdict_s"] <= first["wall_s"]
    assert first["first_verdict_warm_s"] > 0
