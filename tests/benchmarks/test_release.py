"""Tests of the audit of a release: its questions, files, counts and texts."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.release import figures, summary
from benchmarks.release.causes import cause, kind_of_refusal, one_line
from benchmarks.release.checking import Checked, Outcome
from benchmarks.release.children import Children, side_by_side
from benchmarks.release.command import Files, busy, cut_off, run, seen_by
from benchmarks.release.evaluating import Evaluating, evaluate
from benchmarks.release.findings import Finding, wants_eval
from benchmarks.release.judging import protocol_of
from benchmarks.release.rows import Entry, Which
from benchmarks.release.state import State, lines_of
from benchmarks.release.tables import markdown
from cudal1.baseline import Baseline
from cudal1.errors import ConfigError
from cudal1.measurement import Doubt, Measurement
from cudal1.problem import DeviceClass
from cudal1.protocol import Contract, Mode, PrecisionClass
from cudal1.verdict import Correctness, FlagSource, HackFlag, Status, Verdict
from tests.benchmarks.release_checkout import REFERENCE, RIGHT, ROWS, WRONG, candidate, row, write

ROOT = Path(__file__).parents[2]


def verdict(status: Status = Status.CORRECT, *, certified: float = 1.5, **others: Any) -> Verdict:
    is_correct = status is Status.CORRECT
    measured = Measurement(
        baseline=Baseline.EAGER,
        speedup=certified + 0.1,
        certified=certified,
        alpha=0.01,
        num_quads=9,
        bucket_medians=(certified,),
        bucket_variance=0.0,
        is_stable=True,
        reference_us=10.0,
        candidate_us=5.0,
    )
    content: dict[str, Any] = {
        "problem_id": "p",
        "candidate_id": "c",
        "protocol_id": "x",
        "device_kind": "cpu",
        "device_id": "d",
        "status": status,
        "reason": None if is_correct else "no",
        "measurement": measured if is_correct else None,
        "judged_at": "now",
        "judge_s": 1.0,
    }
    return Verdict.model_validate(content | others)


def checked(precision: PrecisionClass | None, mismatch: str | None = None) -> Correctness:
    return Correctness(num_inputs=3, stage=1, precision=precision, first_mismatch=mismatch)


def flag(kind: str) -> HackFlag:
    return HackFlag(kind=kind, source=FlagSource.GUARD, evidence="seen")


def plain(outcome: Outcome = Outcome.AGREES) -> Checked:
    return Checked(outcome, 1e-6, {"1e-4": True}, None, True, False)


def finding(
    number: int = 1,
    claim: float | None = 2.0,
    *,
    judged: Verdict | None = None,
    outcome: Outcome | None = Outcome.AGREES,
    **others: Any,
) -> Finding:
    checks = {} if outcome is None else {Mode.CONSTRUCTED: plain(outcome)}
    entry = Entry((1, number), REFERENCE, RIGHT, claim)
    found = Finding(entry, judged, None, None, checks, None)
    return replace(found, **others)


# --- causes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        (verdict(), None),
        (verdict(Status.NO_BUILD), "does not build"),
        (verdict(Status.CRASHED), "crashes"),
        (verdict(Status.TIMED_OUT), "times out"),
        (verdict(Status.HACKED, flags=(flag("early_done"),)), "hacked: early_done"),
        (verdict(Status.INCORRECT, flags=(flag("reused_buffer"),)), "reused buffer"),
        (
            verdict(Status.INCORRECT, correctness=checked(None, "input 0 (own): element 3")),
            "wrong on its own inputs",
        ),
        (
            verdict(Status.INCORRECT, correctness=checked(None, "input 5 (large): element 3")),
            "wrong only on a family: large",
        ),
        (verdict(Status.INCORRECT), "outputs of another kind"),
        (
            verdict(
                Status.INCORRECT,
                reason="wrong output: … (of its weights its worker says: no such name)",
                correctness=checked(None, "input 0 (own): element 3"),
            ),
            "wrong, with weights that are not the reference's",
        ),
    ],
)
def test_a_verdict_has_one_kind_of_cause(judged: Verdict, said: str | None) -> None:
    assert cause(judged) == said


def test_a_reason_is_one_line_without_folders() -> None:
    said = one_line("error in\n /there/cuda.cu(3): no\nsuch thing")
    assert said == "error in cuda.cu(3): no such thing"
    assert len(one_line("x" * 1000)) == 200


def test_refusals_are_grouped_without_their_numbers() -> None:
    assert kind_of_refusal("takes 1200.5 ms") == kind_of_refusal("takes 90 ms")


# --- counts ----------------------------------------------------------------------------------


def test_claims_stand_beside_the_certified_speedups_of_correct_rows() -> None:
    wrong = verdict(Status.INCORRECT)
    level, whole = summary.summarise(
        [finding(1, 4.0, judged=verdict(certified=1.5)), finding(2, 10.0, judged=wrong)]
    )["levels"]
    assert level | {"level": "all"} == whole
    assert level["claimed"]["mean"] == 7.0
    assert level["claimed_of_correct"]["mean"] == 4.0
    assert level["certified_of_correct"]["mean"] == 1.5
    assert level["num_certified_at_least"] == {"1.01": 1, "1.05": 1, "1.2": 1, "2.0": 0}
    assert level["num_certified_as_claimed"] == 0


def test_a_row_correct_in_a_class_is_correct_in_every_looser_class() -> None:
    strict, tf32 = PrecisionClass.STRICT, PrecisionClass.TF32
    answers = ({strict: True}, {strict: False, tf32: True}, {strict: False, tf32: False})
    found = [finding(judged=verdict(), in_classes=each) for each in answers]
    level = summary.summarise(found)["levels"][0]
    assert level["num_correct_in_class"] == {"strict": 1, "tf32": 2, "half": 3}
    assert level["num_of_unknown_class"] == 0


def test_the_narrowest_class_is_unknown_until_every_class_was_judged() -> None:
    strict = PrecisionClass.STRICT
    for answers in ({}, {strict: False}):
        asked = finding(judged=verdict(), in_classes=answers)
        assert asked.precision is None
        found = summary.summarise([asked])
        assert found["levels"][0]["num_of_unknown_class"] == 1
        assert not found["is_complete"]
    wrong = finding(judged=verdict(Status.INCORRECT), in_classes={strict: True})
    assert wrong.precision is None
    assert summary.summarise([wrong])["is_complete"]


def test_rows_without_code_are_named_and_not_counted() -> None:
    empty = finding(2, entry=Entry((1, 2), REFERENCE, None, 9.0))
    strict = {PrecisionClass.STRICT: True}
    found = summary.summarise([finding(judged=verdict(), in_classes=strict), empty])
    assert found["without_code"] == ["1:2"]
    assert found["claims_without_code"] == {"1:2": 9.0}
    assert found["levels"][0]["claimed"]["mean"] == 2.0
    assert found["levels"][0]["num_with_code"] == 1
    assert found["is_complete"]


def test_a_refused_reference_settles_the_row_and_is_not_the_sources_fault() -> None:
    found = summary.summarise([finding(refusal="takes 1200 ms")])
    assert found["refused"] == [
        {"what": "takes N ms", "count": 1, "by_level": {"1": 1}, "rows": ["1:1"]}
    ]
    assert found["causes"] == []
    assert found["agreement"]["share_of_agreeing_called_correct"] == 0.0
    assert found["agreement"]["share_of_agreeing_and_judged"] is None


def test_rows_with_a_weak_reference_are_correct_and_in_no_mean() -> None:
    measured = verdict(certified=1.0).measurement
    assert measured is not None
    weak = verdict(measurement=measured.model_copy(update={"doubt": Doubt.REFERENCE}))
    rows = [finding(1, 9.0, judged=weak), finding(2, 3.0, judged=verdict(certified=1.5))]
    found = summary.summarise(rows)
    (level, _) = found["levels"]
    assert (found["weak"], level["num_correct"]) == (["1:1"], 2)
    assert level["certified_of_correct"]["mean"] == 1.5
    assert level["claimed_of_correct"]["mean"] == 3.0
    assert found["agreement"]["num_agree_called_correct"] == 2


def test_the_largest_claims_are_listed_with_their_share() -> None:
    claims = [100.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    found = summary.largest_claims([finding(i, c, judged=verdict()) for i, c in enumerate(claims)])
    assert found is not None
    assert found["share_of_claimed"] == 104.0 / 105.0
    assert found["mean_claimed_without"] == 1.0
    assert found["rows"][0]["row"] == "1:0"


def test_agreement_counts_both_directions_and_names_disputed_rows() -> None:
    wrong = verdict(Status.INCORRECT)
    found = summary.agreement(
        [
            finding(1, judged=verdict()),
            finding(2, judged=wrong),
            finding(3, judged=verdict(), outcome=Outcome.DISAGREES),
            finding(4, judged=wrong, outcome=Outcome.DISAGREES),
            finding(5, judged=wrong, outcome=Outcome.NEAR),
            finding(6, judged=wrong, outcome=Outcome.NO_REFERENCE),
            finding(7, outcome=Outcome.AGREES),
        ]
    )
    assert found["table"]["agrees"] == {"correct": 1, "incorrect": 1}
    assert (found["num_agree"], found["num_agree_called_correct"]) == (2, 1)
    assert (found["num_disagree"], found["num_disagree_called_correct"]) == (2, 1)
    assert [row["row"] for row in found["disputed"]] == ["1:2", "1:3"]


def test_a_row_that_agrees_in_evaluation_mode_alone_is_judged_in_that_mode() -> None:
    wrong = finding(judged=verdict(Status.INCORRECT), outcome=Outcome.DISAGREES)
    both = {Mode.CONSTRUCTED: plain(Outcome.DISAGREES), Mode.EVAL: plain(Outcome.AGREES)}
    assert not wants_eval(wrong)
    assert wants_eval(replace(wrong, checks=both))
    assert not wants_eval(finding(judged=verdict(), checks=both))
    judged = replace(wrong, checks=both, eval_verdict=verdict())
    assert summary.summarise([judged])["levels"][0]["num_correct_in_eval_only"] == 1


def test_a_row_that_is_correct_in_evaluation_mode_only_has_that_cause() -> None:
    wrong = finding(judged=verdict(Status.INCORRECT), eval_verdict=verdict())
    (found,) = summary.causes([wrong])
    assert found["what"] == "right in evaluation mode only"


def test_properties_are_counted_for_correct_verdicts() -> None:
    found = summary.properties(
        [finding(judged=verdict()), finding(judged=verdict(Status.INCORRECT))]
    )
    assert found["plain_check"] == {"leaves_inputs": {"yes": 1}, "fresh_outputs": {"no": 1}}


# --- wall times ------------------------------------------------------------------------------


def evaluated(wall_s: float, *, correct: bool = True) -> dict[str, Any]:
    return {"compiled": True, "correct": correct, "reason": "", "wall_s": wall_s}


RUNS = [
    {"wall_s": 1.5, "first_verdict_s": 0.7, "code": 130, "is_cold": True, "busy": 0.5},
    {"wall_s": 0.51, "first_verdict_s": 0.3, "code": 0, "is_cold": False, "busy": None},
]


def test_half_of_their_side_gives_a_bound_and_no_ratio() -> None:
    found = [finding(1, judged=verdict(), evaluation=evaluated(7.0)), finding(2, judged=verdict())]
    walls = summary.walls(RUNS, [], found, [], [])
    assert walls["times_faster"] is None
    assert walls["times_faster_at_least"] == 7.0 / 2.01
    assert walls["first_verdict_s"] == 0.7
    whole = summary.walls(RUNS, [], [found[0]], [], [])
    assert whole["times_faster"] == 7.0 / 2.01


def test_there_is_no_ratio_while_our_rows_are_missing() -> None:
    found = [finding(1, judged=verdict(), evaluation=evaluated(7.0)), finding(2)]
    assert summary.walls(RUNS, [], found, [], [])["times_faster_at_least"] is None


def test_a_first_verdict_with_warm_caches_does_not_count_as_cold() -> None:
    found = [finding(judged=verdict())]
    assert summary.walls(RUNS[1:], [], found, [], [])["first_verdict_s"] is None


def test_time_for_all_rows_is_estimated_from_a_sample() -> None:
    assert summary.whole_s([3.0] * 9, 20) == (None, None)
    assert summary.whole_s([3.0] * 10, 20) == (60.0, 0.0)
    assert summary.whole_s([1.0, 2.0], 2) == (3.0, 0.0)
    draw = random.Random(1)
    everything = [draw.expovariate(1.0) for _ in range(200)]
    num_within = 0
    for _ in range(400):
        estimate_s, off_s = summary.whole_s(draw.sample(everything, 60), 200)
        assert estimate_s is not None
        assert off_s is not None
        num_within += abs(estimate_s - sum(everything)) <= off_s
    assert 0.9 < num_within / 400 < 0.99


def test_the_busy_share_counts_the_gpus_that_the_command_sees() -> None:
    readings = {"0": [0, 0, 80, 60], "1": [0, 0, 0, 0]}
    assert busy(seen_by("0", readings), after=0.0) == 0.35
    assert busy(seen_by(None, readings), after=0.5) == 0.35
    assert busy(seen_by("GPU-5f", readings), after=0.0) is None
    assert busy([], after=0.0) is None


def test_an_unknown_figure_neither_keeps_nor_breaks_its_bound() -> None:
    side = {**summary.summarise([finding()]), "walls": summary.walls([], [], [finding()], [], [])}
    assert {each.is_met for each in figures.of_release(side)} == {None}


def test_figures_are_compared_with_their_bounds() -> None:
    beyond = finding(2, judged=verdict(), outcome=Outcome.DISAGREES)
    found = [finding(1, judged=verdict(), evaluation=evaluated(50.0)), beyond]
    walls = summary.walls(RUNS, [{"first_verdict_s": 11.0}], found, [], [])
    figured = figures.of_release({**summary.summarise(found), "walls": walls})
    assert {each.name: each.is_met for each in figured} == {
        "agree, called correct": True,
        "disagree beyond every class, called correct": False,
        "first verdict, cold": True,
        "first verdict, warm": False,
        "all rows, cold": True,
        "KernelBench's time over ours, at least (1 rows)": True,
        "KernelBench's time over ours, estimated": None,
        "GPU busy while there is work": False,
    }


def test_a_bound_is_not_rounded_up_and_a_share_is_not_rounded_to_all() -> None:
    rows = [finding(i, judged=verdict(), evaluation=evaluated(0.01)) for i in range(999)]
    rows += [finding(999, judged=verdict(Status.INCORRECT)), finding(1000, None, judged=verdict())]
    found = {
        "kind": "h100",
        "machine": {"device": "cpu"},
        "harness_version": "0",
        "protocol_id": "x",
        "revision": "r",
        "sources": {
            "kernels": {
                **summary.summarise(rows),
                "walls": summary.walls([{"wall_s": 2.0, "first_verdict_s": 1.0}], [], rows, [], []),
            }
        },
    }
    said = markdown(found)
    assert "at least 4.9 times ours" in said
    assert "of 1001 rows that agree, cudal1 calls 1000 correct (99.9 %" in said.replace("Of", "of")
    assert "| 1:999 | incorrect | no | agrees | 1.0e-06 |  | no |" in said


# --- programs --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_that_hangs_is_ended_with_the_processes_that_it_started(tmp_path: Path) -> None:
    script, job = tmp_path / "hang.py", tmp_path / "job.json"
    script.write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    limit_s = 1.0
    while not (tmp_path / "pid").exists():  # a busy machine has hardly started it by then
        limit_s *= 2
        with Children() as children:
            ended = children.run(script, job, limit_s=limit_s, environment={})
        assert ended.code is None
        assert "did not end in" in ended.why
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 60
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_inherits_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    script = tmp_path / "tell.py"
    script.write_text("import os; print(sorted(os.environ)); print(os.environ['HOME'])")
    with Children() as children:
        said = children.run(script, tmp_path / "job.json", limit_s=60.0, environment={}).said
    assert "SOME_API_KEY" not in said
    assert str(tmp_path) in said


def test_an_error_in_one_task_ends_the_others(tmp_path: Path) -> None:
    script = tmp_path / "hang.py"
    script.write_text("import time; time.sleep(600)")

    def do(number: int, children: Children) -> None:
        if number:
            raise KeyError(number)
        children.run(script, tmp_path / "job.json", limit_s=600.0, environment={})

    with pytest.raises(KeyError):
        side_by_side([1, 0], do, beside=2, deadline=math.inf)


# --- the command -----------------------------------------------------------------------------

COMMAND = """import json, sys, time
from pathlib import Path
verdicts = Path(sys.argv[1])
try:
    with verdicts.open("a") as file:
        print("a verdict", file=file)
    time.sleep(float(sys.argv[2]))
except KeyboardInterrupt:
    print(json.dumps({"complaints": ["stopped"]}))
    sys.exit(130)
sys.exit(int(sys.argv[3]))
"""
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, tmp_path / "verdicts.jsonl")


@pytest.fixture
def ask(files: Files) -> Ask:
    """Run a command in the place of `cudal1 judge`."""

    def asked(sleep_s: float, code: int = 0, **options: Any) -> dict[str, Any]:
        words = [str(files.verdicts), str(sleep_s), str(code)]
        with (files.folder / "lock").open("a") as lock:
            return run(
                [sys.executable, "-c", COMMAND, *words],
                files,
                environment={},
                keep_open=lock.fileno(),
                **{"deadline": math.inf, **options},
            )

    return asked


def test_a_run_reports_the_time_of_its_first_verdict(ask: Ask) -> None:
    told = ask(0.3)
    assert told["code"] == 0
    assert 0 < told["first_verdict_s"] <= told["wall_s"]


def test_a_run_that_stops_at_its_first_verdict_writes_its_answer(ask: Ask, files: Files) -> None:
    told = ask(600, only_first=True)
    assert told["code"] == 130
    assert told["first_verdict_s"] is not None
    assert json.loads(files.answer.read_text()) == {"complaints": ["stopped"]}


def test_a_run_is_interrupted_at_the_deadline(ask: Ask) -> None:
    assert ask(600, deadline=time.monotonic())["code"] != 0


def test_a_command_that_cannot_judge_is_an_error(ask: Ask) -> None:
    with pytest.raises(ConfigError, match="cudal1 judge ended with 2"):
        ask(0, code=2)


def test_a_killed_run_is_counted_once(files: Files) -> None:
    files.beat.write_text('{"wall_s": 12.5}')
    assert cut_off(files) == {"wall_s": 12.5}
    assert cut_off(files) is None


def test_the_loosest_class_is_the_default_and_the_only_one_with_timing() -> None:
    protocol = protocol_of("cpu", contract=Contract.KERNELBENCH)
    assert (protocol.precision, protocol.timing) == (PrecisionClass.HALF, True)
    strict = protocol_of("cpu", contract=Contract.DROP_IN, precision=PrecisionClass.STRICT)
    assert (strict.precision, strict.timing) == (PrecisionClass.STRICT, False)
    assert strict.contract is Contract.DROP_IN


# --- KernelBench's evaluator -----------------------------------------------------------------

EVALUATOR = """from types import SimpleNamespace

import openai
import torch

from . import helpers


def eval_kernel_against_ref(original_model_src, custom_model_src, num_correct_trials,
                            num_perf_trials, measure_performance, timing_method, build_dir,
                            device, backend, precision):
    assert (num_correct_trials, num_perf_trials) == (5, 100)
    assert "class Model(" in original_model_src
    if "abort" in custom_model_src:
        import os
        os.abort()
    return SimpleNamespace(
        compiled=True, correctness="clamp" in custom_model_src, runtime=2.0, ref_runtime=5.0,
        metadata={"hardware": "secret", "note": "said\\nso"},
    )
"""


@pytest.fixture
def kernelbench(tmp_path: Path) -> Path:
    """Make a checkout with an evaluator that reports at once what a source tells it."""
    folder = tmp_path / "kernelbench" / "src" / "kernelbench"
    folder.mkdir(parents=True)
    for name, text in (("__init__", ""), ("helpers", ""), ("eval", EVALUATOR)):
        (folder / f"{name}.py").write_text(text)
    return tmp_path / "kernelbench"


def evaluating(tmp_path: Path, checkout: Path, **options: Any) -> Evaluating:
    state = State(tmp_path / "out", tmp_path / "work")
    limit_s = options.pop("limit_s", math.inf)
    return Evaluating(state, Which.KERNELS, DeviceClass.CPU, checkout, limit_s, **options)


@pytest.mark.slow
def test_evaluations_stop_once_their_time_is_spent(tmp_path: Path, kernelbench: Path) -> None:
    script = tmp_path / "fake.py"
    script.write_text("import time; time.sleep(1.0)")
    asked = evaluating(tmp_path, kernelbench, limit_s=1.0, worker=script)
    rows = [Entry((1, number), REFERENCE, RIGHT, None) for number in (1, 2)]
    evaluate(asked, rows, deadline=math.inf)
    evaluate(asked, rows, deadline=math.inf)
    (line,) = asked.known().values()
    assert not line["correct"]
    assert line["reason"].startswith("ended with exit code 0")


def test_a_checkout_without_an_evaluator_is_refused_with_the_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --kernelbench a checkout of https"):
        evaluate(evaluating(tmp_path, tmp_path), [], deadline=math.inf)


@pytest.mark.slow
def test_the_evaluator_gives_the_results_of_its_own_script(
    tmp_path: Path, kernelbench: Path
) -> None:
    asked = evaluating(tmp_path, kernelbench)
    sources = (RIGHT, WRONG, "import os; os.abort()")
    rows = [Entry((1, n), REFERENCE, source, None) for n, source in enumerate(sources, start=1)]
    evaluate(asked, rows, deadline=math.inf)
    right, wrong, died = (asked.known()[row.place] for row in rows)
    assert right["correct"]
    assert right["reason"] == "note: said so"
    assert (wrong["compiled"], wrong["correct"]) == (True, False)
    assert "died of SIGABRT" in died["reason"]


# --- the whole -------------------------------------------------------------------------------


IMPATIENT = "from benchmarks.release import __main__ as it; it.GRACE_S = 2.0; it.main()"
"""The program with little time for running work to end by itself."""


def audit(
    tmp_path: Path, *options: str, program: tuple[str, str] = ("-m", "benchmarks.release")
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        *program,
        "--checkout",
        str(tmp_path / "release"),
        "--out",
        str(tmp_path / "out"),
        "--device",
        "cpu",
        "--minutes",
        "15",
        "--beside",
        "2",
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_an_interrupted_audit_continues_and_asks_nothing_twice(
    tmp_path: Path, kernelbench: Path
) -> None:
    write(tmp_path / "release", ROWS, {(1, 1): REFERENCE})
    protocol = protocol_of("cpu", contract=Contract.KERNELBENCH).checks_only()
    (tmp_path / "protocol.json").write_text(protocol.model_dump_json())  # may be YAML, too
    options = (
        "--protocol",
        str(tmp_path / "protocol.json"),
        "--kernelbench",
        str(kernelbench),
        "--sources",
        "kernels",
    )
    first = audit(tmp_path, *options, "--rows", "1:1", "--only", "judge")
    assert first.returncode == 0, first.stderr
    assert "Partial" in first.stdout
    second = audit(tmp_path, *options)
    assert second.returncode == 0, second.stderr
    state = State(tmp_path / "out", tmp_path / "out" / "work")
    text = (tmp_path / "out" / "release_h100.json").read_text()
    third = audit(tmp_path, *options)
    assert third.returncode == 0, third.stderr
    assert "judging kernels" not in third.stdout
    assert "checking kernels" not in third.stdout
    folders = {
        each: state.judging(Which.KERNELS, Mode.CONSTRUCTED, each) for each in PrecisionClass
    }
    for file in (folders[PrecisionClass.HALF] / "verdicts.jsonl", state.checks, state.evaluations):
        assert len(lines_of(file)) == 3
    # a row that is correct in the strictest class is judged in no other
    assert len(lines_of(folders[PrecisionClass.STRICT] / "verdicts.jsonl")) == 1
    assert not folders[PrecisionClass.TF32].exists()
    found = json.loads(text)["sources"]["kernels"]
    assert json.loads((tmp_path / "out" / "release_h100.json").read_text())["sources"] == {
        "kernels": found
    }
    assert Counter(row["called"] for row in found["rows"]) == {
        "correct": 1,
        "incorrect": 1,
        "crashed": 1,
    }
    assert found["is_complete"]
    assert found["without_code"] == ["1:4"]
    assert found["agreement"]["disputed"] == []
    assert found["walls"]["num_runs"] == 2
    assert found["walls"]["first_verdict_warm_s"] > 0
    assert found["levels"][0]["num_correct_in_class"] == {"strict": 1, "tf32": 1, "half": 1}
    assert "first verdict, warm" in second.stdout
    assert found["kernelbench"]["both_correct"] == 1
    assert "self.inner" not in text
    assert str(tmp_path) not in text


@pytest.mark.slow
def test_a_check_that_outlasts_the_time_is_ended_and_not_recorded(tmp_path: Path) -> None:
    hangs = candidate("import time; time.sleep(3600)")
    write(tmp_path / "release", [row(1, 1, hangs)], {})
    options = ("--sources", "kernels", "--only", "check", "--row-limit-s", "3600")
    ended = audit(tmp_path, *options, "--minutes", "0.1", program=("-c", IMPATIENT))
    assert ended.returncode == 0, ended.stderr
    assert "time is over" in ended.stdout
    assert "Partial" in ended.stdout
    assert not lines_of(State(tmp_path / "out", tmp_path / "work").checks)


def test_results_of_another_release_are_refused(tmp_path: Path) -> None:
    state = State(tmp_path / "out", tmp_path / "work")
    with state.held({"release": "a"}):
        pass
    with (
        pytest.raises(ConfigError, match="is of another release; name another --out"),
        state.held({"release": "b"}),
    ):
        pass


def test_a_folder_in_use_by_another_run_is_refused(tmp_path: Path) -> None:
    state = State(tmp_path / "out", tmp_path / "work")
    with (
        state.held({"release": "a"}),
        pytest.raises(ConfigError, match="another run is at work there"),
        state.held({"release": "a"}),
    ):
        pass
