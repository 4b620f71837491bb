"""Tests of repeated verdicts: their choice, their turns, and their summary."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.timing import repeats
from cudal1.candidate import Candidate
from cudal1.harness.device.device import Device
from cudal1.ledger import Ledger
from cudal1.problem import Admission, DeviceClass
from cudal1.protocol import EvalProtocol
from cudal1.settings import protocols
from cudal1.settings.params import Params
from tests.tasks.played import PlayedPool, judged, toys

SHIPPED = Path(__file__).parents[3] / "params.yaml"
PROBLEMS = toys("slight", "large", "none")
CERTIFIED = {"slight": 1.2, "large": 4.0, "none": 1.0}


@pytest.fixture
def of(tmp_path: Path) -> Path:
    """Make a run with a correct candidate for each problem, two faster, and a wrong null test."""
    folder, protocol = tmp_path / "run", Params.load(SHIPPED).protocol
    folder.mkdir()
    shutil.copy(SHIPPED, folder)
    with Ledger.open(folder / "data") as ledger:
        ledger.begin("problems", run="r")
        for problem in PROBLEMS:
            ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        ledger.export()
        ledger.write_product("problems", folder / "data" / "problems.parquet")
    with Ledger.open(folder / "data") as ledger:
        ledger.begin("rl", run="r")
        ledger.add_protocol(protocol)
        for problem in PROBLEMS:
            candidate = Candidate(problem_id=problem.id, source="class ModelNew: ...\n")
            verdict = judged(candidate, protocol, "cpu").verdict
            assert verdict.measurement is not None
            said = verdict.measurement.model_copy(update={"certified": CERTIFIED[problem.name]})
            ledger.add_candidate(candidate)
            ledger.add_verdict(verdict.model_copy(update={"measurement": said}), [])
        ledger.export()
    with Ledger.open(folder / "data") as ledger:
        ledger.begin("report", run="r")
        for problem in PROBLEMS:
            null = Candidate(problem_id=problem.id, source=problem.null_source)
            ledger.add_candidate(null)
            ledger.add_verdict(judged(null, protocol, "cpu").verdict, [])
        ledger.export()
    return folder


@pytest.mark.slow
def test_only_gains_are_repeated_and_the_largest_comes_first(of: Path) -> None:
    assert [problem.name for problem, _ in repeats.winners(of)] == ["large", "slight"]


@pytest.mark.slow
def test_both_protocols_take_turns_on_the_same_candidates(
    of: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[float, float]] = []

    class Played(PlayedPool):
        def __init__(self, device: Device, protocol: EvalProtocol) -> None:
            super().__init__(device, protocol, wait_s=0)
            opened.append((protocol.max_bucket_variance, protocol.confirm_within))

    monkeypatch.setattr(repeats, "Pool", Played)
    asked = ["--of", str(of), "--times", "3", "--most", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["repeats", *asked])
    repeats.main()
    found = json.loads((tmp_path / "repeats_cpu.json").read_text())
    cpu, paper = protocols.load("cpu"), (0.005, 0.1)
    shipped = (cpu.max_bucket_variance, cpu.confirm_within)
    assert opened == [shipped, paper, paper, shipped]
    assert (found["times"], found["rounds"], found["is_complete"]) == (3, 2, True)
    for said in found["summary"].values():
        assert (said["num_candidates"], said["num_verdicts"], said["num_references"]) == (1, 6, 2)
    assert len(found["verdicts"]) == 2 * 2 * (3 + 1)


def _rows(*certified: float, candidate: str = "c", is_null: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "protocol": "p",
            "candidate": candidate,
            "is_null": is_null,
            "judge_s": 1.0,
            "measurement": {"certified": each, "num_quads": 9},
        }
        for each in certified
    ]


def test_a_gain_that_is_missing_once_is_lost_and_its_candidate_has_both_outcomes() -> None:
    rows = [
        *_rows(4.0, 1.0, candidate="a"),
        *_rows(2.0, 3.0, candidate="b"),
        *_rows(0.9, 1.0, candidate="c"),
    ]
    said = repeats.summary(rows, "p")
    assert (said["num_candidates"], said["num_verdicts"]) == (3, 6)
    assert (said["num_lost"], said["num_both_ways"]) == (3, 1)
    assert said["spread_median"] == said["spread_max"] == 1.5
    assert said["geometric_mean"] == pytest.approx(24 ** (1 / 6))


def test_references_do_not_count_as_candidates_and_their_gains_are_reported() -> None:
    said = repeats.summary(_rows(1.0, 1.01, 1.02, is_null=True), "p")
    assert (said["num_references"], said["num_candidates"]) == (3, 0)
    assert (said["num_null_above_100"], said["num_null_above_101"]) == (2, 1)
    assert said["geometric_mean"] is said["spread_max"] is said["quads"] is None


def test_incorrect_verdicts_and_other_protocols_are_left_out() -> None:
    rows = _rows(2.0)
    rows[0]["measurement"] = None
    assert repeats.summary([*rows, *_rows(3.0)], "q")["num_verdicts"] == 0
    assert repeats.summary(rows, "p")["num_verdicts"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--rounds", "0"], "--rounds, --times, --most: at least 1"),
        (["--times", "0"], "--rounds, --times, --most: at least 1"),
        (["--most", "-1"], "--rounds, --times, --most: at least 1"),
        (["--of", "nowhere"], "--of nowhere: no run is there"),
        (["--protocol", "cuda"], "--protocol: has the paper's gates already"),
        (["--device", "cuda", "--protocol", "cuda-quick"], "is a run for cpu"),
    ],
)
def test_a_run_that_cannot_be_compared_gives_one_line(
    of: Path,
    asked: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    device = Device(device_class=DeviceClass.CPU, kind="cpu", id="0", worker_core=None)
    monkeypatch.setattr("benchmarks.common.find_device", lambda _: device)
    monkeypatch.setattr(sys, "argv", ["repeats", "--of", str(of), *asked])
    with pytest.raises(SystemExit):
        repeats.main()
    assert said in capsys.readouterr().err
