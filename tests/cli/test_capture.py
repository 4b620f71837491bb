"""Tests of `cudal1 capture`: a program of one's own becomes problem files that can be judged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]

LAYERS = """import torch
import torch.nn as nn
from .ops import scaled


class Gate(nn.Module):
    def __init__(self, width, *, act=nn.SiLU, rate=0.1):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.act = act()
        self.drop = nn.Dropout(rate)
        self.register_buffer("shift", torch.linspace(0, 1, width))

    def forward(self, x, *, factors=None):
        y = self.drop(self.act(self.inner(x))) + self.shift
        return scaled(y) if factors is None else (scaled(y) * factors[0], factors[1] + y)
"""
OPS = "SCALE = 1.5\n\n\ndef scaled(x):\n    return x * SCALE\n"
PROGRAM = """import os
import sys

import torch
from mylib.layers import Gate

print("the program's own words")
assert "OPENAI_API_KEY" not in os.environ
gate = Gate(16).eval()
for rows in map(int, sys.argv[1:] or (4, 8)):
    x = torch.randn(rows, 16)
    gate(x, factors=(torch.randn_like(x), x + 1))
"""
RIGHT = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.register_buffer("shift", torch.linspace(0, 1, width))

    def forward(self, x, first, second):
        y = nn.functional.silu(self.inner(x)) + self.shift
        return y * 1.5 * first, second + y
"""


@pytest.fixture
def program(tmp_path: Path, command: list[str]) -> Path:
    library = tmp_path / "mylib"
    library.mkdir()
    (library / "__init__.py").touch()
    (library / "layers.py").write_text(LAYERS)
    (library / "ops.py").write_text(OPS)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


def test_captured_shapes_are_judged_together(run: Run, program: Path, tmp_path: Path) -> None:
    done = run(
        *("capture", "program.py", "--module", "mylib.layers:Gate", "--out", "captured"),
        OPENAI_API_KEY="secret",
    )
    assert done.returncode == 0, done.stderr
    files = [Path(line).name for line in done.stdout.splitlines()]
    assert files == ["gate_1.py", "gate_2.py"]
    assert "the program's own words" in done.stderr

    text = (tmp_path / "captured" / "gate_1.py").read_text()
    code, origin, _ = (
        text.partition('"""')[2].partition('"""')[2].partition("# cudal1: written from")
    )
    assert origin
    assert "mylib" not in code
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(RIGHT.replace("1.5", "(1.5 if len(x) == 4 else 1.6)"))

    judged = run("judge", "captured", "right.py", "--device", "cpu", "--checks-only")
    assert judged.returncode == 0, judged.stderr + judged.stdout
    assert [line.split()[:2] for line in judged.stdout.splitlines()] == [
        ["gate_1", "CORRECT;"],
        ["gate_2", "CORRECT;"],
    ]
    failed = run("judge", "captured", "wrong.py", "--device", "cpu", "--checks-only", "--json")
    assert failed.returncode == 1, failed.stderr
    verdicts = json.loads(failed.stdout)
    assert [verdicts[name]["status"] for name in ("gate_1", "gate_2")] == ["correct", "incorrect"]


def test_a_class_of_the_program_itself_is_captured(run: Run, program: Path, tmp_path: Path) -> None:
    source = "import torch\nfrom mylib.ops import scaled\n\n\nclass Own(torch.nn.Module):\n"
    source += "    def forward(self, x):\n        return scaled(x.exp())\n\n\n"
    program.write_text(source + "if __name__ == '__main__':\n    Own()(torch.randn(8, 8))\n")
    done = run("capture", "program.py", "--module", "__main__:Own", "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == [str(tmp_path / "out" / "own.py")]


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ((), ("absent.py", "--module", "mylib.layers:Gate"), "absent.py: there is no such program"),
        ((), ("program.py", "--module", "Gate"), "--module Gate: must be package.module:Class"),
        ((), ("program.py", "--module", "mylib.layers:Gat"), "no Gat; did you mean Gate?"),
        ((), ("program.py", "--module", "mylob.layers:Gate"), "give --path FOLDER"),
        (("gate(x", "str(x"), ("program.py", "--module", "mylib.layers:Gate"), "raises TypeError"),
        (
            ("gate(x, factors=(torch.randn_like(x), x + 1))", "pass"),
            (),
            "Gate was never called; run the part",
        ),
        (("print(", "os._exit(3) #"), (), "ends its process (exit status 3)"),
        ((".eval()", ""), (), "it draws random numbers in training mode (dropout?)"),
        (("torch.randn(rows", "torch.zeros(0"), (), "input x has no elements"),
    ],
    ids=lambda each: "-".join(map(str, each))[:30] if isinstance(each, tuple) else None,
)
def test_a_failed_capture_is_one_line_and_exit_code_two(
    change: tuple[str, str] | tuple[()],
    arguments: tuple[str, ...],
    said: str,
    run: Run,
    program: Path,
    tmp_path: Path,
) -> None:
    if change:
        assert change[0] in PROGRAM
        program.write_text(PROGRAM.replace(*change))
    asked = arguments or ("program.py", "--module", "mylib.layers:Gate")
    done = run("capture", *asked, "--out", "captured")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = [each for each in done.stderr.splitlines() if said in each]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "captured").exists(), line


def test_a_class_of_a_folder_is_judged_with_inputs_from_a_file(
    run: Run, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "inputs.py").write_text(
        "import torch\n\n\ndef get_inputs():\n    return [torch.randn(4, 16)]\n\n\n"
        "def get_init_inputs():\n    return [16]\n"
    )
    right = RIGHT.replace("x, first, second", "x").replace("y * 1.5 * first, second + y", "y * 1.5")
    (tmp_path / "right.py").write_text(right)
    (tmp_path / "wrong.py").write_text(right.replace("+ self.shift", ""))
    asked = ("mylib.layers:Gate", "--inputs", "inputs.py", "--path", ".", "--device", "cpu")
    asked = (*asked, "--mode", "eval", "--checks-only")
    for name, code in (("right.py", 0), ("wrong.py", 1)):
        done = run("judge", asked[0], name, *asked[1:])
        assert done.returncode == code, done.stderr + done.stdout

    (tmp_path / "inputs.py").write_text(
        "import torch\n\n\ndef get_inputs():\n    return [torch.randn(4, 16)]\n"
    )
    done = run("judge", asked[0], "right.py", *asked[1:])
    assert done.returncode == 2
    assert "return the constructor's arguments from get_init_inputs()" in done.stderr


HALF_PROGRAM = """import torch


class Half(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.nn.functional.gelu(self.inner(x))


Half(32).to(torch.bfloat16)(torch.randn(64, 32, dtype=torch.bfloat16))
"""
HALF = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, width, dtype=torch.bfloat16)

    def forward(self, x):
        y = self.inner(x)
        return torch.nn.functional.gelu(y)
"""


def test_a_half_precision_is_judged_as_the_program_has_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HALF_PROGRAM)
    done = run("capture", "program.py", "--module", "__main__:Half", "--out", "captured")
    assert done.returncode == 0, done.stderr
    (tmp_path / "right.py").write_text(HALF)
    (tmp_path / "wrong.py").write_text(HALF.replace("gelu(y)", "gelu(y * 1.1)"))
    for name, code in (("right.py", 0), ("wrong.py", 1)):
        judged = run("judge", "captured", name, "--device", "cpu", "--checks-only")
        assert judged.returncode == code, judged.stderr + judged.stdout
