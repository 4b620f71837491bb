"""Tests of the table of baselines: its denominators, and the sum over several runs."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judging import baselines
from benchmarks.judging.baselines import at_most, earlier_runs, of_all_levels, summary
from cudal1.baseline import Baseline
from cudal1.cli.verdicts.outcome import Outcome
from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.suite import loader
from cudal1.verdict import Status, Verdict


def judged(problem: str, baseline: Baseline, speedup: float | None) -> Judged:
    """Return a verdict: correct with the speedup, or crashed."""
    measurement = (
        None
        if speedup is None
        else Measurement(
            baseline=Baseline.EAGER,
            speedup=speedup,
            certified=1.0,
            alpha=0.01,
            num_quads=9,
            bucket_medians=(speedup,),
            bucket_variance=0.0,
            is_stable=True,
            reference_us=100.0,
            candidate_us=100.0 / speedup,
        )
    )
    verdict = Verdict(
        problem_id=problem,
        candidate_id=f"{problem} {baseline}",
        protocol_id="p",
        device_kind="cpu",
        device_id="cpu-0",
        measurement=measurement,
        status=Status.CRASHED if speedup is None else Status.CORRECT,
        reason="operation not permitted when stream is capturing" if speedup is None else None,
        judged_at="2026-11-24T00:00:00+00:00",
        judge_s=2.0,
    )
    return Judged(
        suite="s",
        revision="r",
        level=1,
        problem_id=1,
        problem=problem,
        baseline=baseline,
        verdict=verdict,
    )


def test_a_reference_that_cannot_be_captured_is_named_and_left_out_of_the_denominator() -> None:
    found = summary(
        Baseline.CUDA_GRAPH,
        [
            judged(name, Baseline.CUDA_GRAPH, speedup)
            for name, speedup in (("a", 4.0), ("b", None), ("c", 1.0))
        ],
    )
    assert (found["num_judged"], found["num_correct"]) == (3, 2)
    assert found["median"] == pytest.approx(2.5)
    assert found["geometric_mean"] == pytest.approx(2.0)
    assert found["judge_s"] == pytest.approx(6.0)
    assert found["without"] == {"b": "crashed: operation not permitted when stream is capturing"}


def test_a_summary_of_no_verdicts_has_no_median() -> None:
    found = summary(Baseline.COMPILE, [])
    assert (found["num_judged"], found["median"], found["without"]) == (0, None, {})


def test_a_part_of_a_suite_has_problems_of_each_level_in_their_order() -> None:
    suite = loader.load_suite(DeviceClass.CPU)
    part = of_all_levels(suite, 7)
    assert [problem.level for problem in part] == [1, 1, 1, 2, 2, 3, 3]
    assert [each for each in suite if each in part] == part
    assert of_all_levels(suite, None) == suite


def test_the_time_limit_interrupts_its_own_run_only() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt), at_most(0.05 / 60):
        time.sleep(60)
    with at_most(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with at_most(None):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


def test_seconds_of_runs_without_verdicts_do_not_count(tmp_path: Path) -> None:
    result, verdicts = tmp_path / "baselines_cpu.json", tmp_path / "baselines_cpu.verdicts.jsonl"
    assert earlier_runs(result, verdicts) == []
    result.write_text(json.dumps({"runs": [{"wall_s": 3.0}]}))
    assert earlier_runs(result, verdicts) == []
    verdicts.write_text("")
    assert earlier_runs(result, verdicts) == [{"wall_s": 3.0}]


@pytest.mark.slow
def test_a_second_run_continues_and_adds_its_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[Problem]] = []

    def judges(_: None, problems: list[Problem], out: Path, *__: Any, **___: Any) -> Outcome:
        asked.append(problems)
        out.touch()
        outcome = Outcome("cpu", 0, ["a complaint"])
        outcome.stopped = "interrupted" if len(asked) == 1 else ""
        for problem in problems[: len(asked)]:
            outcome.baselines.append(judged(problem.key, Baseline.EAGER, 1.0))
        outcome.num_references_without = len(problems) - len(asked)
        return outcome

    monkeypatch.setattr(baselines, "judge_many", judges)
    command = ["baselines", "--problems", "2", "--names", "eager", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    baselines.main()
    baselines.main()
    kept = json.loads((tmp_path / "baselines_cpu.json").read_text())
    assert [run["num_verdicts"] for run in kept["runs"]] == [1, 1]
    assert [run["stopped"] for run in kept["runs"]] == ["interrupted", ""]
    assert kept["wall_s"] == pytest.approx(sum(run["wall_s"] for run in kept["runs"]))
    assert kept["num_without"] == 0
    assert len(kept["verdicts"]) == kept["num_problems"] == 2
    assert "2 problems on cpu" in capsys.readouterr().out
