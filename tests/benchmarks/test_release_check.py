"""Tests of the plain check of a released source: the worker's comparisons, and the kept rows."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.release import check_worker as worker
from benchmarks.release.checking import Checking, Outcome, check, read_line
from benchmarks.release.rows import Entry, Which
from benchmarks.release.state import State, lines_of
from cudal1.problem import DeviceClass
from cudal1.protocol import Mode
from tests.benchmarks.release_checkout import (
    DIES,
    IN_EVAL,
    NORM,
    REFERENCE,
    RIGHT,
    WRONG,
    candidate,
)

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run the worker's check in this process; return its notes."""

    def ran(
        source: str, reference: str = REFERENCE, mode: str = Mode.CONSTRUCTED
    ) -> dict[str, Any]:
        files = {"reference": reference, "candidate": source}
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        job = {name: str(tmp_path / f"{name}.py") for name in files} | {
            "device": "cpu",
            "mode": mode,
        }
        noted: dict[str, Any] = {}
        with torch.no_grad():
            worker.check(job, lambda **news: noted.update(news))
        return noted

    yield ran
    for name in ("reference", "candidate"):
        sys.modules.pop(name, None)


def test_each_seed_has_its_own_inputs_and_a_right_source_agrees(run: Run) -> None:
    noted = run(RIGHT)
    assert noted["stage"] == "done"
    assert [(t["seed"], t["input"]) for t in noted["trials"]] == [
        (seed, index) for seed in worker.SEEDS for index in range(worker.NUM_INPUTS)
    ]
    assert {trial["relative_l2"] for trial in noted["trials"]} == {0.0}
    assert noted["leaves_inputs"]
    assert noted["fresh_outputs"]


def test_a_wrong_source_is_far_from_its_reference(run: Run) -> None:
    trials = run(WRONG)["trials"]
    assert all(trial["relative_l2"] > 0.1 for trial in trials)
    assert not any(any(trial["allclose"].values()) for trial in trials)


def test_a_reused_buffer_agrees_and_is_noted(run: Run) -> None:
    noted = run(
        candidate("return out.copy_(torch.relu(self.inner(x)))", before="out = torch.empty(8, 16)")
    )
    assert {trial["relative_l2"] for trial in noted["trials"]} == {0.0}
    assert not noted["fresh_outputs"]


def test_a_source_that_changes_its_inputs_agrees_and_is_noted(run: Run) -> None:
    noted = run(candidate("y = torch.relu(self.inner(x)); x.zero_(); return y"))
    assert {trial["relative_l2"] for trial in noted["trials"]} == {0.0}
    assert not noted["leaves_inputs"]


def test_the_reference_runs_before_the_source_is_read(run: Run) -> None:
    before = "import sys\nsys.modules['reference'].Model = None"
    assert run(candidate("return x", before=before))["stage"] == "done"


def test_a_source_that_draws_other_weights_does_not_agree(run: Run) -> None:
    noted = run(RIGHT.replace("super().__init__()", "super().__init__(); torch.rand(1)"))
    assert all(trial["relative_l2"] > 0.1 for trial in noted["trials"])


@pytest.mark.parametrize(("mode", "agrees"), [(Mode.CONSTRUCTED, False), (Mode.EVAL, True)])
def test_modules_run_in_the_requested_mode(run: Run, mode: str, agrees: bool) -> None:
    trials = run(IN_EVAL, NORM, mode)["trials"]
    assert all(trial["relative_l2"] < 1e-5 for trial in trials) is agrees


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return torch.relu(self.inner(x))[:4]", "shape (4, 16), not (8, 16)"),
        ("return torch.relu(self.inner(x)).double()", "torch.float64, not torch.float32"),
        ("return self.inner(x), x", "2 outputs, not 1"),
    ],
)
def test_an_output_of_another_kind_is_named(run: Run, body: str, problem: str) -> None:
    assert run(candidate(body))["trials"][0]["problem"] == problem


@pytest.mark.parametrize(
    ("output", "answer", "error"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1.0, 0.0], [0.0, 0.0], math.inf),
        ([math.nan, 4.0], [math.nan, 4.0], 0.0),
        ([math.nan, 4.0], [3.0, 4.0], math.inf),
        ([math.inf, 4.0], [math.inf, 4.0], 0.0),
        ([-math.inf, 4.0], [math.inf, 4.0], math.inf),
        ([3.0, 4.0], [math.nan, 4.0], math.inf),
    ],
)
def test_the_relative_error_is_infinite_where_only_one_output_is_finite(
    output: list[float], answer: list[float], error: float
) -> None:
    assert worker.relative_l2(torch.tensor(output), torch.tensor(answer)) == pytest.approx(error)


def test_the_relative_error_covers_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    output, answer = torch.randn(1000), torch.randn(1000)
    whole = worker.relative_l2(output, answer)
    monkeypatch.setattr(worker, "CHUNK", 7)
    assert worker.relative_l2(output, answer) == pytest.approx(whole)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.complex64])
def test_outputs_of_other_types_are_compared(dtype: torch.dtype) -> None:
    answer = torch.tensor([0, 1, 1]).to(dtype)
    other = torch.tensor([1, 1, 1]).to(dtype)
    assert worker.compared([answer], [answer])["relative_l2"] == 0.0
    found = worker.compared([other], [answer])
    assert found["relative_l2"] == pytest.approx(0.5**0.5)
    assert not any(found["allclose"].values())


# --- rows ------------------------------------------------------------------------------------

FAKE = """import json, os, sys
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text())
source = Path(job["candidate"]).read_text()
with Path(SEEN).open("a") as seen:
    print(source, job["mode"], file=seen)
error = float(source.split()[1]) if job["mode"] == "constructed" else 0.0
trial = {"problem": None, "relative_l2": error, "allclose": {"1e-4": error < 1e-4}}
result = {"stage": "done", "error": None, "trials": [trial]}
if "memory" in source and "alone" not in Path(SEEN).read_text():
    Path(SEEN).open("a").write("alone\\n")
    result |= {"stage": "call", "error": "CUDA out of memory"}
if "die" in source:
    result |= {"stage": "call"}
Path(job["result"]).write_text(json.dumps(result))
if "die" in source:
    os.abort()
"""


@pytest.fixture
def checking(tmp_path: Path) -> Checking:
    """Return rows checked by a script that reports what their sources tell it."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE.replace("SEEN", repr(str(tmp_path / "seen.txt"))))
    state = State(tmp_path / "out", tmp_path / "work")
    return Checking(
        state, Which.KERNELS, DeviceClass.CPU, beside=2, limit_s=60.0, threads=1, worker=script
    )


def entries(*sources: str | None) -> list[Entry]:
    return [Entry((1, number), "", source, None) for number, source in enumerate(sources, start=1)]


def seen(checking: Checking) -> list[str]:
    return (checking.state.folder.parent / "seen.txt").read_text().splitlines()


def outcomes(checking: Checking) -> dict[int, Outcome]:
    return {
        number: read_line(line)[Mode.CONSTRUCTED].outcome
        for (_, number), line in checking.known().items()
    }


def test_outcomes_follow_the_largest_error(checking: Checking) -> None:
    check(checking, entries("# 1e-3", "# 5e-3", "# 2e-2", "# 0 die", None), deadline=math.inf)
    assert outcomes(checking) == {
        1: Outcome.AGREES,
        2: Outcome.NEAR,
        3: Outcome.DISAGREES,
        4: Outcome.FAILS,
    }
    (died,) = (line for line in lines_of(checking.state.checks) if line["number"] == 4)
    assert "died of SIGABRT" in (read_line(died)[Mode.CONSTRUCTED].reason or "")


def test_only_rows_that_disagree_are_checked_in_evaluation_mode(checking: Checking) -> None:
    check(checking, entries("# 1e-3", "# 2e-2"), deadline=math.inf)
    assert sorted(seen(checking)) == ["# 1e-3 constructed", "# 2e-2 constructed", "# 2e-2 eval"]
    line = checking.known()[1, 2]
    assert read_line(line)[Mode.EVAL].outcome is Outcome.AGREES


def test_a_checked_row_is_not_checked_again(checking: Checking) -> None:
    both = entries("# 0 a", "# 0 b")
    check(checking, both[:1], deadline=math.inf)
    with checking.state.checks.open("a") as file:
        file.write('{"which": "kernels", "level": 1')  # as a kill leaves it
    check(checking, both, deadline=math.inf)
    assert seen(checking) == ["# 0 a constructed", "# 0 b constructed"]
    assert outcomes(checking) == {1: Outcome.AGREES, 2: Outcome.AGREES}


def test_no_check_begins_after_the_deadline(checking: Checking) -> None:
    check(checking, entries("# 0"), deadline=time.monotonic())
    assert checking.known() == {}


def test_a_row_that_lacks_memory_beside_others_is_checked_again_alone(checking: Checking) -> None:
    check(checking, entries("# 0 memory"), deadline=math.inf)
    assert outcomes(checking) == {1: Outcome.AGREES}


def test_a_failing_reference_is_not_the_sources_fault(checking: Checking) -> None:
    checking.worker.write_text("import sys; sys.exit(3)")
    check(checking, entries("# 0"), deadline=math.inf)
    assert outcomes(checking) == {1: Outcome.NO_REFERENCE}


@pytest.mark.slow
def test_the_worker_is_a_plain_process(checking: Checking) -> None:
    plain = Checking(
        checking.state, Which.KERNELS, DeviceClass.CPU, beside=2, limit_s=300.0, threads=1
    )
    rows = [
        Entry((1, number), REFERENCE, source, None)
        for number, source in enumerate((RIGHT, WRONG, DIES), start=1)
    ]
    check(plain, rows, deadline=math.inf)
    assert outcomes(plain) == {1: Outcome.AGREES, 2: Outcome.DISAGREES, 3: Outcome.FAILS}
    assert list(plain.state.work.iterdir()) == []
    assert RIGHT not in json.dumps(lines_of(plain.state.checks))
