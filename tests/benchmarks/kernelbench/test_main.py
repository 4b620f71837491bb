"""Tests of the comparison with KernelBench's batch evaluation, on a small checkout made here."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.kernelbench import __main__ as driver
from benchmarks.kernelbench import table as table
from benchmarks.kernelbench.candidates import Entry, Expected, Kind, Place, entries
from benchmarks.kernelbench.setup import Bench, problems_of
from cudal1.candidate import Candidate
from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.errors import ConfigError
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass
from cudal1.protocol import PrecisionClass
from cudal1.settings import protocols
from cudal1.verdict import Correctness, Status, Verdict

PLACE = Place(1, 7, "double")
PROBLEM = """import torch
import torch.nn as nn

size = 64


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.rand(size, size)]


def get_init_inputs():
    return []
"""
SCRIPT = '''"""In the place of KernelBench's script: a candidate is right if its source says so."""

import json
import multiprocessing
import time
from pathlib import Path


class EvalConfig:
    num_correct_trials, build_cache = 5, False


def set_gpu_arch(names):
    assert names == ["Hopper"]


def construct_kernelbench_dataset(level, source):
    return (level, source)


def evaluate(kernel, seen):
    with Path(seen).open("a") as stream:
        print(kernel.parent.name, file=stream)
    text = kernel.read_text()
    if "slow" in text and not Path(seen).with_name("hurry").exists():
        time.sleep(60.0)
    time.sleep(0.5 * ("nap" in text))
    return {"compiled": True, "correctness": "right" in text, "metadata": {}, "runtime": 1.5}


def batch_eval(work, config, dataset, run_dir, results):
    assert dataset == (config.level, "local") and config.num_correct_trials == 5
    ((problem_id, sample),) = work
    kernel = Path(run_dir) / f"level_{config.level}_problem_{problem_id}_sample_{sample}_kernel.py"
    if "lock" in kernel.read_text():
        raise AttributeError("'NoneType' object has no attribute 'compiled'")
    with multiprocessing.Pool(1) as pool:
        said = pool.apply(evaluate, (kernel, str(Path(config.runs_dir).parent / "seen.txt")))
    Path(results).write_text(json.dumps({str(problem_id): [said]}))
'''


def entry(name: str, text: str) -> Entry:
    return Entry(name, PLACE, Kind.PYTORCH, f"# {name} {text}\n")


FIVE = [entry(str(number), "right") for number in range(5)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for name, text in (
        ("KernelBench/level1/7_Double.py", PROBLEM),
        ("scripts/eval_from_generations.py", SCRIPT),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def make(tmp_path: Path, checkout: Path) -> Callable[..., Bench]:
    def made(candidates: Sequence[Entry] = FIVE, protocol: str = "cpu") -> Bench:
        return Bench(
            checkout,
            tmp_path / "state",
            find_device(DeviceClass.CPU),
            {"own": protocols.load(protocol).checks_only()},
            candidates,
        )

    return made


def go_on(bench: Bench, *, minutes: float = 1.0) -> None:
    with driver.alone(bench) as lock:
        driver.go_on(bench, minutes=minutes, keep_open=lock)


def judge(bench: Bench, *correct: str, wall_s: float = 2.0) -> None:
    """Write the files of our side as a finished run leaves them."""
    bench.verdicts_file("own").parent.mkdir(parents=True)
    lines: list[str] = []
    for each in bench.candidates:
        problem = problems_of(bench)[each.name]
        is_right = each.name in correct
        verdict = Verdict(
            problem_id=problem.id,
            protocol_id=bench.protocols["own"].id,
            device_kind="cpu",
            candidate_id=Candidate(problem_id=problem.id, source=each.source).id,
            device_id="d",
            status=Status.CORRECT if is_right else Status.CRASHED,
            reason=None if is_right else "no",
            judged_at="now",
            judge_s=1.0,
            correctness=Correctness(
                num_inputs=100,
                stage=3,
                precision=PrecisionClass.STRICT,
                max_relative_l2=0.0,
                max_scaled_error=0.0,
            )
            if is_right
            else None,
        )
        judged = Judged(
            suite=problem.suite,
            revision=problem.revision,
            level=1,
            problem_id=7,
            problem=problem.key,
            verdict=verdict,
        )
        lines.append(judged.model_dump_json() + "\n")
    bench.verdicts_file("own").write_text("".join(lines))
    bench.ours_file("own").write_text(json.dumps({"wall_s": wall_s, "said": ""}))


def seen(bench: Bench) -> Counter[str]:
    """Return how often each candidate's process ran."""
    return Counter((bench.state / "theirs" / "seen.txt").read_text().split())


def test_there_are_forty_distinct_candidates_and_half_of_them_are_inline_cuda() -> None:
    found = entries()
    assert len(found) == len({each.source for each in found}) == len({e.name for e in found}) == 40
    assert Counter(each.kind is Kind.CUDA for each in found) == {True: 20, False: 20}
    assert len({each.place for each in found}) >= 10
    assert sum(each.expected is Expected.CORRECT for each in found) == 34


@pytest.mark.parametrize("each", entries(), ids=lambda each: each.name)
def test_each_candidate_is_python_and_defines_the_module(each: Entry) -> None:
    compile(each.source, each.name, "exec")
    assert "class ModelNew(nn.Module):" in each.source
    assert ("load_inline(" in each.source) == (each.kind is Kind.CUDA)


def test_a_place_that_holds_another_problem_is_refused(make: Callable[..., Bench]) -> None:
    bench = make([Entry("a", Place(1, 7, "triple"), Kind.PYTORCH, "")])
    with pytest.raises(ConfigError, match="level 1 problem 7 is double, not triple"):
        problems_of(bench)


def test_a_state_of_another_protocol_is_refused(make: Callable[..., Bench]) -> None:
    with driver.alone(make()):
        pass
    with (
        pytest.raises(ConfigError, match="is of another protocol; name another --state"),
        driver.alone(make(protocol="cuda-quick")),
    ):
        pass


@pytest.mark.slow
def test_a_run_in_several_pieces_evaluates_each_candidate_once(make: Callable[..., Bench]) -> None:
    bench = make([entry(str(number), "right nap") for number in range(5)])
    judge(bench)
    pieces, minutes = 0, 0.03
    while (known := len(bench.theirs())) < len(FIVE):
        go_on(bench, minutes=minutes)
        if len(bench.theirs()) == known:  # a busy machine only starts its processes in that time
            minutes *= 2
        pieces += 1
    assert pieces > 1
    assert set(seen(bench).values()) == {1}
    assert len(seen(bench)) == len(FIVE)


@pytest.mark.slow
def test_a_killed_run_is_waited_for_and_its_candidate_is_evaluated_again(
    make: Callable[..., Bench],
) -> None:
    bench = make([entry("a", "right"), entry("b", "right slow")])
    judge(bench)
    code = "\n".join(
        (
            "import pickle, sys",
            "from tests.benchmarks.kernelbench.test_main import go_on",
            "go_on(pickle.load(sys.stdin.buffer))",
        )
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as killed:
        assert killed.stdin is not None
        pickle.dump(bench, killed.stdin)
        killed.stdin.close()
        place = bench.state / "theirs" / "seen.txt"
        deadline = time.monotonic() + 300
        while not place.exists() or len(seen(bench)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (peer,) = psutil.Process(killed.pid).children()
        workers = peer.children()
        os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(ConfigError, match="another run is at work"):
        go_on(bench)
    for process in (peer, *workers):
        process.kill()
    peer.wait()
    (place.parent / "hurry").touch()
    go_on(bench)
    assert sorted(bench.theirs()) == ["a", "b"]
    assert sorted(seen(bench).values()) == [1, 2]


def test_an_evaluation_that_meets_a_busy_lock_stops_no_other(make: Callable[..., Bench]) -> None:
    bench = make([entry("a", "lock"), entry("b", "right")])
    judge(bench)
    go_on(bench)
    rows = {row["candidate"]: row["theirs"] for row in table.collect(bench)["candidates"]}
    assert rows["a"]["status"] == "not compiled"
    assert "NoneType" in rows["a"]["reason"]
    assert rows["b"]["status"] == "correct"


def test_the_table_marks_partial_results(
    make: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make()
    found = table.collect(bench)
    table.show(found)
    assert not found["is_complete"]
    assert "PARTIAL" in capsys.readouterr().out


def test_half_of_their_side_gives_a_bound_and_no_ratio(
    make: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make()
    judge(bench, "0", wall_s=2.01)
    result = {"compiled": True, "correctness": True, "metadata": {}, "runtime": 1.0}
    line = {"name": "0", "wall_s": 7.0, "result": result, "error": None}
    bench.theirs_file.write_text(f'{{"start_s": 1.0}}\n{json.dumps(line)}\n')
    found = table.collect(bench)
    table.show(found)
    assert found["theirs"] == {"wall_s": 8.0, "start_s": 1.0, "num_evaluated": 1}
    assert not found["is_complete"]
    assert found["ours"]["own"]["times_faster"] is None
    assert found["ours"]["own"]["times_faster_at_least"] == 8.0 / 2.01
    assert "at least 3.9 times faster" in capsys.readouterr().out


def test_the_ratio_compares_whole_runs_and_differing_verdicts_are_named(
    make: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make([entry("a", "right"), entry("b", "wrong"), entry("c", "right")])
    judge(bench, "a", "b", wall_s=2.0)
    lines: list[dict[str, Any]] = [{"start_s": 4.0}, {"start_s": 40.0}]
    for name, is_right in (("a", True), ("b", False), ("c", True)):
        result = {"compiled": True, "correctness": is_right, "metadata": {}, "runtime": 1.0}
        lines.append({"name": name, "wall_s": 7.0, "result": result, "error": None})
    bench.theirs_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = table.collect(bench)
    table.show(found)
    assert found["is_complete"]
    assert found["ours"]["own"]["times_faster"] == (4.0 + 3 * 7.0) / 2.0
    assert found["ours"]["own"]["min_inputs_of_correct"] == 100
    assert {row["candidate"]: row["notes"] for row in found["candidates"]} == {
        "a": [],
        "b": ["DISAGREE", "theirs unexpected"],
        "c": ["DISAGREE", "ours unexpected"],
    }
    said = capsys.readouterr().out
    assert said.count("DISAGREE") == 2
    assert "12.5 times faster" in said


def test_there_is_no_ratio_while_our_verdicts_are_missing(
    make: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make([entry("a", "right"), entry("b", "right")])
    judge(bench, "a", "b", wall_s=2.0)
    first, _ = bench.verdicts_file("own").read_text().splitlines()
    bench.verdicts_file("own").write_text(first + "\n")
    result = {"compiled": True, "correctness": True, "metadata": {}, "runtime": 1.0}
    lines = [{"start_s": 4.0}] + [
        {"name": name, "wall_s": wall_s, "result": result, "error": None}
        for name, wall_s in (("a", 7.0), ("b", 100.0))
    ]
    bench.theirs_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = table.collect(bench)
    table.show(found)
    assert found["ours"]["own"]["num_judged"] == 1
    assert found["ours"]["own"]["times_faster_at_least"] is None
    assert found["is_complete"]
    said = capsys.readouterr().out
    assert "2.0 s for 1 of 2" in said
    assert "times faster" not in said


@pytest.mark.parametrize(("code", "is_written", "is_kept"), [(1, 1, 1), (1, 0, 0), (2, 1, 0)])
def test_a_missing_verdict_ends_nothing_and_a_failed_command_ends_the_run(
    make: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    is_written: int,
    is_kept: int,
) -> None:
    bench = make()

    def run(command: Sequence[str], log: Path, **_: object) -> int:
        log.write_text("said")
        bench.verdicts_file("own").write_text("{}\n" * is_written)
        return code

    monkeypatch.setattr(driver, "_run", run)
    with driver.alone(bench) as lock:
        if not is_kept:
            with pytest.raises(ConfigError, match=f"ended with {code}: said"):
                driver.judge_ours(bench, "own", deadline=time.monotonic() + 9, keep_open=lock)
        else:
            driver.judge_ours(bench, "own", deadline=time.monotonic() + 9, keep_open=lock)
    assert bench.ours_file("own").exists() == bool(is_kept)


@pytest.mark.slow
def test_our_side_runs_the_command_and_gives_every_candidate_a_verdict(
    make: Callable[..., Bench],
) -> None:
    written = (
        "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x {}\n"
    )
    bench = make(
        [Entry(name, PLACE, Kind.PYTORCH, written.format(name)) for name in ("+ x", "* 3.0")]
    )
    with driver.alone(bench) as lock:
        driver.judge_ours(bench, "own", deadline=time.monotonic() + 300, keep_open=lock)
    rows = {row["candidate"]: row["ours"]["own"] for row in table.collect(bench)["candidates"]}
    assert [rows[name]["status"] for name in ("+ x", "* 3.0")] == ["correct", "incorrect"]
    assert {row["revision"] for row in rows.values()} == {problems_of(bench)["+ x"].revision}


def test_our_side_writes_no_result_when_its_time_is_over(make: Callable[..., Bench]) -> None:
    bench = make()
    with driver.alone(bench) as lock:
        driver.judge_ours(bench, "own", deadline=time.monotonic() + 0.5, keep_open=lock)
    assert not bench.ours_file("own").exists()
