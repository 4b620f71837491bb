"""Tests of judging a file of candidates from the command line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.cli.judging import many
from cudal1.cli.options.settings import choose
from cudal1.harness.device.device import find_device
from cudal1.harness.schedule.ahead import WINDOW
from cudal1.harness.schedule.device_processes import processes_here
from cudal1.problem import DeviceClass, Problem
from cudal1.suite.loader import load_suite
from tests.cli.conftest import complaints, environment_in, run_in

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SILU, RELU = (1, 8), (1, 14)
PASSES = (
    "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x"
)
ASKED = ("judge", "--candidates", "answers.jsonl", "--device", "cpu", "--checks-only")


def _null(place: tuple[int, int], comment: str = "") -> dict[str, Any]:
    (problem,) = [p for p in load_suite(DeviceClass.CPU) if (p.level, p.number) == place]
    return _row(place, problem.null_source + comment)


def _row(place: tuple[int, int], source: str) -> dict[str, Any]:
    return {"level": place[0], "problem_id": place[1], "source": source}


@pytest.fixture
def answers(tmp_path: Path) -> Callable[..., Path]:
    def written(*rows: dict[str, Any], end: str = "\n") -> Path:
        path = tmp_path / "answers.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows) + end)
        return path

    return written


@pytest.fixture
def verdicts(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    def read() -> list[dict[str, Any]]:
        lines = (tmp_path / "answers.verdicts.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    return read


class Recorder:
    """A builder that records what it should begin, and begins nothing."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.begun: list[str] = []

    def takes(self, candidate: Candidate) -> bool:
        return "cpp_extension" in candidate.source

    def begin(self, problem: Problem, candidate: Candidate) -> None:
        self.begun.append(candidate.source)


def test_the_first_builds_fill_the_window_and_no_more() -> None:
    problem = load_suite(DeviceClass.CPU)[0]
    sources = [f"# {word}\n# {i}" for i in range(40) for word in ("cpp_extension", "nothing")]
    work = [(problem, Candidate(problem_id=problem.id, source=source)) for source in sources]
    builder: Any = Recorder(num_workers=3)
    many.begin_first(builder, work)
    assert builder.begun == [f"# cpp_extension\n# {i}" for i in range(WINDOW + 2 * 3)]


def test_each_candidate_gets_one_verdict_and_is_not_judged_again(
    run: Run, answers: Callable[..., Path], verdicts: Callable[[], list[dict[str, Any]]]
) -> None:
    first = [_null(SILU), _row(RELU, PASSES), _null(SILU)]
    answers(*first)
    done = run(*ASKED)
    assert (done.returncode, complaints(done)) == (0, [])
    found = {row["problem"]: row["verdict"]["status"] for row in verdicts()}
    assert found == {"cudal1/L1/08_silu": "correct", "cudal1/L1/14_relu": "incorrect"}
    assert "2 candidates: 2 judged now, 0 before" in done.stdout
    answers(*first, _null(RELU))
    again = run(*ASKED, "--json")
    assert again.returncode == 0, again.stderr
    said = json.loads(again.stdout)
    assert (said["num_new"], said["num_candidates"], said["num_rows"]) == (1, 3, 4)
    assert len(verdicts()) == 3
    assert all(row["revision"] for row in verdicts())


def test_rows_without_a_verdict_are_named_and_the_others_are_judged(
    run: Run, answers: Callable[..., Path], verdicts: Callable[[], list[dict[str, Any]]]
) -> None:
    answers(
        _row((4, 99), PASSES),
        _row(RELU, "a\0b"),
        _row(RELU, "#" * (2 << 20)),
        _null(RELU),
        end='\n{"level": 1, "prob',
    )
    done = run(*ASKED)
    assert done.returncode == 1
    first, second = complaints(done)
    assert first.startswith("answers.jsonl:5: not a line of JSON")
    assert second == "level 4 problem 99: not in the suite; 1 rows"
    assert sorted(row["verdict"]["status"] for row in verdicts()) == [
        "correct",
        "no_build",
        "no_build",
    ]
    assert "2 of 5 rows" in done.stdout


def test_a_stopped_run_resumes_where_it_stopped(
    command: list[str],
    environment: dict[str, str],
    tmp_path: Path,
    run: Run,
    answers: Callable[..., Path],
    verdicts: Callable[[], list[dict[str, Any]]],
) -> None:
    answers(*(_null(SILU, f"# {number}\n") for number in range(400)))
    child = subprocess.Popen(
        [*command, *ASKED],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out = tmp_path / "answers.verdicts.jsonl"
    deadline = time.monotonic() + 600
    while not (out.exists() and out.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    said, complained = child.communicate(timeout=300)
    done = subprocess.CompletedProcess(command, child.returncode, said, complained)
    assert (done.returncode, complaints(done)) == (130, ["interrupted"])
    assert "PARTIAL, interrupted" in said
    num_before = len(verdicts())
    assert 0 < num_before < 400
    answers(*(_null(SILU, f"# {number}\n") for number in range(num_before + 2)))
    again = json.loads(run(*ASKED, "--json").stdout)
    assert again["num_candidates"] == num_before + 2
    assert again["num_new"] <= num_before + 2
    names = [row["verdict"]["candidate_id"] for row in verdicts()]
    assert len(set(names)) == len(names)


def test_a_busy_device_gives_one_line_and_the_other_devices_judge(
    answers: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # locks lie there
    monkeypatch.setattr(tempfile, "tempdir", None)
    cpu = find_device(DeviceClass.CPU)
    held, free = (cpu.model_copy(update={"id": f"{cpu.id}-{name}"}) for name in ("held", "free"))
    path = answers(_null(SILU), _null(RELU))
    with held.locked(), processes_here([held, free]) as device_processes:
        outcome = many.judge_many(
            path,
            load_suite(DeviceClass.CPU),
            tmp_path / "out.jsonl",
            choose(None, "cpu", "cpu", None),
            device_processes,
            timing=False,
            baselines=[],
            wait_s=0,
        )
    assert (outcome.stopped, outcome.num_without) == ("", 0)
    assert {each.verdict.device_id for each in outcome.judged} == {free.id}
    (line,) = outcome.complaints
    assert line.startswith(f"device cpu {held.id} is in use by process")
    assert line.endswith("; others took its candidates over")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("judge",), "give a PROBLEM and a CANDIDATE, or --candidates FILE"),
        (("judge", "model.py"), "give a PROBLEM and a CANDIDATE, or --candidates FILE"),
        (("judge", "model.py", "--candidates", "a.jsonl"), "not both"),
        (("judge", "model.py", "faster.py", "--suite", "shipped"), "go with --candidates"),
        (("judge", "model.py", "faster.py", "--baselines", "all"), "go with --candidates"),
        (("judge", "--baselines", "eager,fast"), "--baselines fast: must be all, none, or of"),
        (("judge", "--baselines", "cuda_graph"), "cuda_graph: needs a GPU"),
        (("judge", "--baselines", "all", "--checks-only"), "leave out --checks-only"),
        (("judge", "--candidates", "none.jsonl"), "none.jsonl: cannot be read"),
        (("judge", "--candidates", "."), ".: is no file"),
        (("judge", "--candidates", "rows.jsonl", "--out", "/dev/null"), "/dev/null: is no file"),
        (("judge", "--candidates", "model.py", "--suite", "x"), "--suite x: must be"),
        (("judge", "--candidates", "rows.jsonl", "--sizes", "s.yaml"), "shipped has its own"),
        (("null-test", "model.py", "--sizes", "s.yaml"), "or a --suite with its --sizes"),
    ],
)
def test_a_request_that_cannot_be_met_gives_one_line(
    run: Run, arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(_null(SILU)) + "\n")
    done = run(*arguments, "--device", "cpu")
    assert (done.returncode, len(complaints(done))) == (2, 1)
    assert said in done.stderr


def test_timed_candidates_come_with_their_null_test_and_make_a_table(
    run: Run, answers: Callable[..., Path], verdicts: Callable[[], list[dict[str, Any]]]
) -> None:
    answers(_row(SILU, PASSES), _null(RELU))
    timed = [argument for argument in ASKED if argument != "--checks-only"]
    done = run(*timed, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["num_candidates"], said["num_new"]) == (2, 2)
    assert said["statuses"] == {"incorrect": 1, "correct": 1}
    assert sorted((row["problem_id"], row["baseline"] or "") for row in verdicts()) == [
        (8, ""),
        (8, "eager"),
        (14, ""),
        (14, "eager"),
    ]
    assert said["baselines"] == {"eager": {"correct": 2}}
    assert json.loads(run(*timed, "--json").stdout)["num_new"] == 0
    assert len(verdicts()) == 4
    mistaken = run("report", "answers.jsonl")
    assert (mistaken.returncode, len(complaints(mistaken))) == (2, 1)
    table = run("report", "answers.verdicts.jsonl", "--suite", "shipped")
    assert (table.returncode, complaints(table)) == (0, [])
    lines = [line for line in table.stdout.splitlines() if line.startswith("| ")]
    counts = {line.split(" | ")[0].strip("| "): line.split(" | ")[1] for line in lines}
    assert counts["All"] == str(len(load_suite(DeviceClass.CPU)))
    assert counts["Null test"] == "2"
    assert counts["answers"] == "2"


@pytest.fixture
def checkout(tmp_path: Path, problem_source: str) -> Path:
    """Make a checkout of KernelBench: one problem too large for a CPU, and sizes that fit one."""
    level = tmp_path / "bench" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "1_Swish.py").write_text(problem_source.replace("N = 64", "N = 1 << 40"))
    (tmp_path / "sizes.yaml").write_text("cpu: {level1/1_Swish: {N: 64}}\n")
    return tmp_path


def test_problems_of_a_checkout_are_judged_in_given_sizes(
    run: Run, answers: Callable[..., Path], faster_source: str, checkout: Path
) -> None:
    answers(_row((1, 1), faster_source))
    suite = ("--suite", f"kernelbench:{checkout / 'bench'}")
    done = run(*ASKED, *suite, "--sizes", "sizes.yaml", "--json")
    assert (done.returncode, json.loads(done.stdout)["statuses"]) == (0, {"correct": 1})
    counted = ("report", "answers.verdicts.jsonl", *suite)
    assert run(*counted, "--sizes", "sizes.yaml").returncode == 0
    refused = run(*counted)
    assert (refused.returncode, len(complaints(refused))) == (2, 1)
    assert "--sizes" in refused.stderr


def test_problems_that_cannot_be_judged_give_one_line_each_and_cost_only_their_own_rows(
    run: Run,
    answers: Callable[..., Path],
    faster_source: str,
    problem_source: str,
    checkout: Path,
    verdicts: Callable[[], list[dict[str, Any]]],
) -> None:
    level = checkout / "bench" / "KernelBench" / "level1"
    (level / "2_Swish.py").write_text(problem_source.replace("return x *", "return x.tolist() *"))
    (level / "3_Swish.py").write_text(problem_source)
    numbers = (1, 2, 3)  # the first is too large
    answers(*(_row((1, n), f"{faster_source}# {i}\n") for n in numbers for i in range(3)))
    done = run(*ASKED, "--suite", f"kernelbench:{checkout / 'bench'}", "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert (said["statuses"], said["num_without"]) == ({"correct": 3}, 6)
    large, odd = sorted(complaints(done))
    assert large.startswith("kernelbench/L1/01_swish: cannot be judged: ")
    assert odd.startswith("kernelbench/L1/02_swish: cannot be judged: raises ")
    assert [large.count("01_swish"), odd.count("02_swish")] == [1, 1]
    assert {row["problem_id"] for row in verdicts()} == {3}


@dataclass(frozen=True)
class Twice:
    """Two runs, each with a new candidate of the same problem."""

    done: list[subprocess.CompletedProcess[str]]
    kept: list[dict[str, int]]
    """The time at which each result of a reference was written, after each run."""
    baselines: list[str | None]


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Twice:
    """Judge one candidate, then another one; the null test is omitted."""
    folder = tmp_path_factory.mktemp("twice")
    environment = {**environment_in(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    asked = [*(word for word in ASKED if word != "--checks-only"), "--baselines", "none", "--json"]
    done: list[subprocess.CompletedProcess[str]] = []
    kept: list[dict[str, int]] = []
    for number in (1, 2):
        (folder / "answers.jsonl").write_text(json.dumps(_null(SILU, f"# {number}\n")) + "\n")
        done.append(run_in(folder, *asked, environment=environment))
        results = (folder / "cache" / "cudal1" / "references").glob("*.json")
        kept.append({path.name: path.stat().st_mtime_ns for path in results})
    lines = (folder / "answers.verdicts.jsonl").read_text().splitlines()
    return Twice(done, kept, [json.loads(line)["baseline"] for line in lines])


def test_the_next_run_reuses_the_results_of_a_reference(twice: Twice) -> None:
    for done in twice.done:
        assert (done.returncode, json.loads(done.stdout)["num_new"]) == (0, 1), done.stderr
    first, second = twice.kept
    assert first.keys()
    assert first == second


def test_the_null_test_can_be_omitted(twice: Twice) -> None:
    assert twice.baselines == [None, None]


@pytest.mark.skipif(not shutil.which("c++"), reason="torch.compile needs one on a CPU")
def test_references_are_judged_as_baselines_without_any_candidate(
    run: Run, checkout: Path, tmp_path: Path
) -> None:
    suite = ("--suite", f"kernelbench:{checkout / 'bench'}", "--sizes", "sizes.yaml")
    asked = ("judge", *suite, "--baselines", "all", "--device", "cpu", "--json")
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["baselines"] == {
        "eager": {"correct": 1},
        "compile": {"correct": 1},
    }
    before = (tmp_path / "baselines.verdicts.jsonl").read_text()
    assert run(*asked).returncode == 0
    assert (tmp_path / "baselines.verdicts.jsonl").read_text() == before
    table = run("report", "baselines.verdicts.jsonl")
    assert table.returncode == 0, table.stderr
    rows = [line.split(" | ")[0].strip("| ") for line in table.stdout.splitlines()]
    assert {"compile", "reference as candidate"} <= set(rows)


def test_a_reference_that_cannot_be_judged_leaves_a_run_of_baselines_incomplete(
    run: Run, checkout: Path
) -> None:
    suite = ("--suite", f"kernelbench:{checkout / 'bench'}")
    done = run("judge", *suite, "--baselines", "eager", "--device", "cpu", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["num_references_without"] == 1


def test_an_absent_cluster_is_named(run: Run, answers: Callable[..., Path]) -> None:
    answers(_null(SILU))
    done = run(*ASKED, "--cluster", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--cluster 127.0.0.1:1: no Ray cluster answers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_that_cannot_hold_builds_is_named_and_costs_no_verdict(
    run: Run,
    answers: Callable[..., Path],
    verdicts: Callable[[], list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    answers(_null(SILU, "\n# as torch.utils.cpp_extension would\n"))
    cache.write_text("")
    done = run(*ASKED, XDG_CACHE_HOME=str(cache))
    assert done.returncode == 0
    assert "cannot keep what is compiled there" in done.stderr
    assert "set XDG_CACHE_HOME" in done.stderr
    assert [row["verdict"]["status"] for row in verdicts()] == ["correct"]
    assert cache.read_text() == ""
