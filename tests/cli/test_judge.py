"""Tests of a verdict from the command line, for a user with two files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.cli.judging import one
from cudal1.cli.judging.asks import Asks
from cudal1.cli.options.settings import choose
from cudal1.cli.terminal.ending import GOOD
from cudal1.cli.terminal.waiting import Waiting
from cudal1.harness.builds import builder
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass
from cudal1.verdict import Status, Verdict
from tests.cli.conftest import FASTER, PROBLEM, complaints, environment_in, run_in

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_module_and_a_variant_get_a_verdict_without_configuration(
    run: Run, tmp_path: Path
) -> None:
    home = tmp_path / "locks" / "home"
    home.mkdir()
    done = run("judge", "model.py", "faster.py", "--device", "cpu", HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("verdict    CORRECT")
    assert complaints(done) == []
    assert list(home.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"locks", "model.py", "faster.py"}


def test_a_verdict_follows_the_protocol_of_a_params_file(run: Run) -> None:
    done = run("judge", "model.py", "faster.py", "--params", str(ROOT / "params.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "correct"
    assert verdict["measurement"] is not None


PROMISES = "torch.tril(torch.randn(N, N)), torch.randint(0, 2, (N, 1)).float() * 2 - 1"
HELD = ("input 0: lower triangular", "input 1: values in {-1, 1}")


@pytest.fixture(scope="module")
def promising(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a problem of two invariants, and a candidate."""
    folder = tmp_path_factory.mktemp("promising")
    text = PROBLEM.replace("torch.randn(N, N)", PROMISES).replace("(self, x)", "(self, x, y)")
    (folder / "model.py").write_text(text.replace("(x)\n", "(x) * y\n"))
    faster = FASTER.replace("(self, x)", "(self, x, y)")
    (folder / "faster.py").write_text(faster.replace("silu(x)", "silu(x) * y"))
    return folder


@pytest.fixture(scope="module")
def checked(promising: Path) -> subprocess.CompletedProcess[str]:
    """Ask for the checks alone, and for invariants."""
    asked = ("judge", "model.py", "faster.py", "--device", "cpu", "--checks-only", "--invariants")
    return run_in(promising, *asked, "--json", environment=environment_in(promising))


@pytest.mark.parametrize(
    ("as_json", "said"),
    [([], "".join(f"inputs  {line}\n" for line in HELD)), (["--json"], {"invariants": [*HELD]})],
)
def test_invariants_of_a_problem_s_inputs_are_shown_on_request(
    as_json: list[str], said: object, run: Run, promising: Path
) -> None:
    done = run("judge", str(promising / "model.py"), "--device", "cpu", "--invariants", *as_json)
    assert (done.returncode, done.stderr) == (0, "")
    assert (json.loads(done.stdout) if as_json else done.stdout) == said


def test_invariants_beside_a_verdict_for_machines_are_notes(
    checked: subprocess.CompletedProcess[str],
) -> None:
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["status"] == "correct"
    assert checked.stderr.splitlines() == [f"note: {line}" for line in HELD]


def test_invariants_beside_a_verdict_follow_it(
    checked: subprocess.CompletedProcess[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdict = Verdict.model_validate_json(checked.stdout)
    monkeypatch.setattr(one, "_verdict", lambda *_: (verdict, HELD))
    asks = Asks(timing=False, wait_s=0.0, as_json=False, invariants=True)
    settings = choose(None, "cpu", "cpu", None)
    assert one.judge_one(Path("model.py"), Path("faster.py"), settings, asks) == GOOD
    first, *_, last, latest = capsys.readouterr().out.splitlines()
    assert first.startswith("verdict")
    assert tuple(line.split(maxsplit=1)[1] for line in (last, latest)) == HELD


def test_random_inputs_have_no_invariants(run: Run) -> None:
    done = run("judge", "model.py", "--device", "cpu", "--invariants")
    assert done.stdout == "inputs  nothing is known to hold of them in every draw\n"


def test_a_run_with_checks_only_measures_no_time(checked: subprocess.CompletedProcess[str]) -> None:
    verdict = json.loads(checked.stdout)
    assert (verdict["status"], verdict["measurement"]) == ("correct", None)


def test_a_looser_precision_can_be_requested(run: Run, faster_source: str, tmp_path: Path) -> None:
    rough = faster_source.replace("silu(x)", "silu(x.half()).float()")
    (tmp_path / "rough.py").write_text(rough)
    arguments = ("judge", "model.py", "rough.py", "--device", "cpu", "--checks-only", "--json")
    strict, half = run(*arguments), run(*arguments, "--precision", "half")
    assert (strict.returncode, half.returncode) == (1, 0), strict.stderr + half.stderr
    assert json.loads(strict.stdout)["protocol_id"] != json.loads(half.stdout)["protocol_id"]


def test_files_of_any_kind_are_judged_and_standard_output_holds_the_verdict_alone(
    command: list[str],
    environment: dict[str, str],
    problem_source: str,
    faster_source: str,
    tmp_path: Path,
) -> None:
    noisy = problem_source.replace("N = 64", "N = 64\nprint('loading')").replace(
        "        return", "        print('called')\n        return"
    )
    (tmp_path / "model.py").write_bytes(b"\xef\xbb\xbf" + noisy.replace("\n", "\r\n").encode())
    done = subprocess.run(
        [*command, "judge", "model.py", "/dev/stdin", "--device", "cpu", "--checks-only", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=200,
        check=False,
        input="# coding: latin-1\n# schön\n".encode("latin-1") + faster_source.encode(),
    )
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "correct"), done.stderr


ONLY_IF_BUILT = """
# cpp_extension
import os
from pathlib import Path

import torch
import torch.nn as nn

made = Path(os.environ["TORCH_EXTENSIONS_DIR"], "ours")
was_made = made.exists()
made.parent.mkdir(parents=True, exist_ok=True)
made.touch()


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x) if was_made else x
"""


def test_an_extension_is_compiled_while_its_reference_is_tried(
    tmp_path: Path, problem_source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "num_idle", lambda _: 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    problem, candidate = tmp_path / "model.py", tmp_path / "faster.py"
    problem.write_text(problem_source)
    candidate.write_text(ONLY_IF_BUILT)
    settings = choose(None, "cpu", "cpu", None)
    asks = Asks(timing=False, wait_s=60.0, as_json=False, invariants=False)
    verdict, _ = one._verdict(problem, candidate, settings, asks, Waiting())
    assert verdict is not None
    assert verdict.status is Status.CORRECT, verdict.reason
    assert (tmp_path / "cache" / "cudal1" / "builds").is_dir()


@pytest.mark.parametrize(
    ("problem", "candidate", "said"),
    [
        ("absent.py", "faster.py", "absent.py: cannot be read"),
        ("model.py", "absent.py", "absent.py: cannot be read"),
        (
            "modle.py",
            "faster.py",
            "modle.py: cannot be read (No such file or directory); did you mean model.py?",
        ),
        ("model.py", "locks", "locks: a folder in which no file has ModelNew; name another"),
        ("faster.py", "model.py", "faster.py: is the candidate, and model.py the problem"),
        ("faster.py", "faster.py", "faster.py: has no Model; name the class"),
        ("model.py", "model.py", "model.py: has no ModelNew; name the faster class"),
        ("no_inputs.py", "faster.py", "no_inputs.py: has no get_inputs; add get_inputs()"),
    ],
)
def test_files_that_cannot_be_used_are_named_in_one_line(
    problem: str, candidate: str, said: str, run: Run, problem_source: str, tmp_path: Path
) -> None:
    (tmp_path / "no_inputs.py").write_text(problem_source.replace("get_inputs", "inputs"))
    done = run("judge", problem, candidate, "--device", "cpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_a_gain_over_a_constant_output_does_not_count_and_a_note_says_why(
    run: Run, problem_source: str, tmp_path: Path
) -> None:
    many = "sum(torch.sin(x + i) for i in range(9))"
    constant = problem_source.replace("x * torch.sigmoid(x)", f"0.0 * {many}")
    (tmp_path / "constant.py").write_text(constant)
    (tmp_path / "zeros.py").write_text(
        "import torch\n\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.zeros_like(x)\n"
    )
    done = run("judge", "constant.py", "zeros.py", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measurement"]
    assert (measured["certified"], measured["doubt"]) == (1.0, "weak_reference")
    (note,) = (line for line in done.stderr.splitlines() if line.startswith("note: "))
    assert note.startswith("note: a correct verdict says little here: the output is constant")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["judge", "--suite", "shipped", "--baselines", "eager", "--invariants"],
            "--invariants goes with one PROBLEM",
        ),
        (["judge", "--invariants"], "--invariants goes with one PROBLEM"),
        (["judge", "model.py", "faster.py", "--jsno"], "No such option: --jsno"),
        (["judge", "model.py", "faster.py", "--device", "gpu"], "'gpu' is not one of"),
        (["judge", "model.py", "faster.py", "--protocol", "fast"], "no protocol fast"),
        (["judge", "model.py", "faster.py", "--params", "x"], "x: cannot be read"),
        (["juge"], "No such command 'juge'"),
    ],
)
def test_a_mistyped_command_gives_one_line(arguments: list[str], said: str, run: Run) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_a_busy_device_gives_one_line_after_the_wait(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "locks"))
    with find_device(DeviceClass.CPU).locked():
        done = run("judge", "model.py", "faster.py", "--device", "cpu", "--wait", "0.1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "in use" in done.stderr


def test_our_own_failure_is_not_a_bad_verdict(environment: dict[str, str]) -> None:
    code = (
        "from cudal1 import cli\ncli.app.command('break')(lambda: {}['absent'])\ncli.app(['break'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "KeyError" in done.stderr


def test_a_killed_judge_leaves_no_folder_behind(
    command: list[str], environment: dict[str, str], faster_source: str, tmp_path: Path
) -> None:
    slow = faster_source.replace(
        "import torch\n", "import time\ntime.sleep(500)\nimport torch\n", 1
    )
    (tmp_path / "slow.py").write_text(slow)
    arguments = ["judge", "model.py", "slow.py", "--device", "cpu"]
    child = subprocess.Popen([*command, *arguments], cwd=tmp_path, env=environment)

    def folders() -> list[Path]:
        return list((tmp_path / "locks").glob("cudal1-*/"))

    def until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 600
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    until(lambda: any(list(folder.iterdir()) for folder in folders()))
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: not folders())
