"""Tests of a suite with odd references: each costs its own row, and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz.running import QUICK
from cudal1 import processes
from tests.cli.conftest import complaints

TRIAL_LIMIT_S = "15"
NUM_PROBLEMS = 40
PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * {number}


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""
CLASS, FORWARD, RETURN = "class Model", "    def forward(self, x):\n", "        return "
UNPICKLABLE = """class Own(Exception):
    def __str__(self):
        raise ValueError("said")

    def __reduce__(self):
        raise TypeError("no")


"""


def _before(place: str, lines: str) -> Callable[[str], str]:
    return lambda source: source.replace(place, f"{lines}\n{place}", 1)


def _in_forward(lines: str) -> Callable[[str], str]:
    return lambda source: source.replace(FORWARD, f"{FORWARD}        {lines}\n", 1)


def _unpicklable(source: str) -> str:
    return _in_forward("raise Own")(source.replace(CLASS, f"{UNPICKLABLE}{CLASS}", 1))


def _ended_child(source: str) -> str:
    """Make a source leave a process in its own session behind, and crash."""
    lines = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(3600)\nos.abort()"
    return _before(CLASS, lines)(source)


REFUSED: dict[str, tuple[Callable[[str], str], str]] = {
    "raises at import": (_before(CLASS, "raise ValueError('a\\nb')"), "raises ValueError: a b"),
    "exits": (_in_forward("raise SystemExit('bye')"), "exit status 1|SystemExit"),
    "hangs": (_in_forward("while True: pass"), "its reference does not return within 15 s"),
    "fills the memory": (_in_forward("torch.ones(1 << 36)"), "raises RuntimeError"),
    "cannot be pickled": (_unpicklable, "raises Own"),
    "shape follows data": (
        lambda source: source.replace(RETURN, f"{RETURN}x[x > 0] + ", 1).replace(
            "torch.tanh(x)", "1"
        ),
        "shape changes with the inputs",
    ),
    "kills its parent": (
        _in_forward("os = __import__('os'); os.kill(os.getppid(), 9); __import__('time').sleep(9)"),
        "crashes",
    ),
    "crashes and leaves a process": (_ended_child, r"crashes \(SIGABRT\)"),
}
JUDGED: dict[str, Callable[[str], str]] = {
    "patches torch": _before(CLASS, "torch.randn_like = torch.Tensor.__mul__ = None"),
    "prints": _in_forward("print('said'); __import__('os').write(1, b'Traceback\\n')"),
    "raises on a family": _in_forward("assert x.abs().max() < 50"),
}
EITHER = {"patches torch"}
"""References that may get a verdict or a line: one may do without the function that it patched."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("odd")
    level = folder / "suite" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (folder / "tmp").mkdir()
    changes = [*(change for change, _ in REFUSED.values()), *JUDGED.values()]
    rows: list[str] = []
    for number in range(1, NUM_PROBLEMS + 1):
        plain = source = PROBLEM.format(number=number)
        if number <= len(changes):
            source = changes[number - 1](plain)
            assert source != plain
        (level / f"{number}_p.py").write_text(source)
        candidate = re.sub(r"\bModel\b", "ModelNew", plain)
        rows.append(json.dumps({"level": 1, "problem_id": number, "source": candidate}))
    # the odd ones are judged first: problems go by number
    (folder / "answers.jsonl").write_text("\n".join(rows) + "\n")
    command = [sys.executable, *processes.FLAGS, str(QUICK), TRIAL_LIMIT_S, "judge"]
    command += ["--suite", "kernelbench:suite", "--candidates", "answers.jsonl", "--json"]
    command += ["--device", "cpu", "--checks-only"]
    return subprocess.run(
        command,
        cwd=folder,
        env=processes.sparse(TMPDIR=str(folder / "tmp")),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    ), folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_row_has_a_verdict_or_a_line(
    done: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    ran, folder = done
    verdicts = _verdicts(folder)
    lines = [line for line in complaints(ran) if not line.startswith("note: ")]
    reasons: dict[int, str] = {}
    for line in lines:
        match = re.fullmatch(r"kernelbench/L1/(\d+)_p: cannot be judged: (.+)", line)
        assert match, line
        assert int(match[1]) not in reasons
        reasons[int(match[1])] = match[2]
    assert ran.returncode == 1, ran.stderr
    assert verdicts.keys() | reasons.keys() == set(range(1, NUM_PROBLEMS + 1))
    assert not verdicts.keys() & reasons.keys()
    for number, (name, (_, said)) in enumerate(REFUSED.items(), start=1):
        assert re.search(said, reasons[number]), f"{name}: {reasons[number]}"
    good = range(len(REFUSED) + 1, NUM_PROBLEMS + 1)
    named = dict(zip(good, JUDGED, strict=False))
    wrong = {
        named.get(number, number): reasons.get(number) or verdicts[number]["reason"]
        for number in good
        if named.get(number) not in EITHER and verdicts.get(number, {}).get("status") != "correct"
    }
    assert wrong == {}
    said = json.loads(ran.stdout)
    assert (said["num_rows"], said["num_without"]) == (NUM_PROBLEMS, len(reasons))
    assert said["is_complete"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_odd_references_leave_nothing_behind(
    done: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, folder = done
    assert {path.name for path in folder.iterdir()} == {
        "suite",
        "tmp",
        "answers.jsonl",
        "answers.verdicts.jsonl",
    }
    left = [path.name for path in (folder / "tmp").iterdir()]
    # PyTorch makes an empty folder of its own wherever its compiler is imported
    assert [
        name for name in left if not re.match(r"cudal1-device-.*\.lock|torchinductor_", name)
    ] == []


def _verdicts(folder: Path) -> dict[int, dict[str, Any]]:
    lines = (folder / "answers.verdicts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    found = {row["problem_id"]: row["verdict"] for row in rows}
    assert len(found) == len(rows)
    return found
