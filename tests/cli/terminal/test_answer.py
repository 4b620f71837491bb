"""Tests that standard output holds the answer alone, and that exit codes are true in any case."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import IO

import pytest

from cudal1.cli.terminal.answer import Descriptor, json_text
from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.ledger import Ledger
from cudal1.settings.protocols import load
from cudal1.verdict import Status, Verdict

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
UNREAD = 141
FULL = "standard output: cannot be written (No space left on device)\n"
COMMANDS = [
    "--help",
    "hacks show --help",
    "sql --json 'select 1'",
    "sql --views",
    "hacks list",
    "providers add paper --params own.yaml",
    "screen faster.py",
    "report a.verdicts.jsonl",
    "report a.verdicts.jsonl --json",
    "training memory --params own.yaml",
    "doctor",
    "doctor --json",
]

JUDGED = Judged(
    suite="own",
    revision="r",
    level=1,
    problem_id=1,
    problem="own/L1/01_x",
    verdict=Verdict(
        problem_id="p",
        candidate_id="a",
        protocol_id=load("cpu").id,
        device_kind="cpu",
        device_id="d",
        judged_at="now",
        judge_s=1.0,
        status=Status.CRASHED,
        reason="no",
    ),
)

Started = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def _filled(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "data"):
        pass
    (tmp_path / "a.verdicts.jsonl").write_text(JUDGED.model_dump_json() + "\n")
    (tmp_path / "own.yaml").write_text((ROOT / "params.yaml").read_text())


@pytest.fixture
def started(command: list[str], environment: dict[str, str], tmp_path: Path) -> Started:
    def run(
        arguments: list[str], *, redirected: str = "", stdout: int | IO[bytes] = subprocess.PIPE
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["bash", "-c", f'exec "$@" {redirected}', "bash", *command, *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=200,
            check=False,
        )

    return run


@pytest.fixture
def unread() -> int:
    """Return the write end of a pipe that has no reader."""
    receiver, sender = os.pipe()
    os.close(receiver)
    return sender


@pytest.mark.usefixtures("_filled")
@pytest.mark.parametrize("arguments", [shlex.split(each) for each in COMMANDS], ids=COMMANDS)
class TestEveryCommand:
    """Every command that answers without judging."""

    def test_exits_with_141_when_its_reader_is_gone(
        self, arguments: list[str], started: Started, unread: int
    ) -> None:
        done = started(arguments, stdout=unread)
        assert (done.returncode, done.stderr) == (UNREAD, b"")

    def test_reports_a_full_device_in_one_line(
        self, arguments: list[str], started: Started
    ) -> None:
        done = started(arguments, redirected="> /dev/full")
        assert (done.returncode, done.stderr.decode()) == (2, FULL)

    def test_exits_with_0_when_no_stream_is_open(
        self, arguments: list[str], started: Started
    ) -> None:
        assert started(arguments, redirected="<&- >&- 2>&-").returncode == 0


@pytest.mark.parametrize("redirected", ["2>&-", "2> /dev/full", "<&- >&- 2>&-"])
def test_a_complaint_that_cannot_be_written_changes_no_exit_code(
    redirected: str, started: Started
) -> None:
    done = started(["screen", "absent.py"], redirected=redirected)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_complaint_without_a_reader_changes_no_exit_code(started: Started, unread: int) -> None:
    assert started(["screen", "absent.py"], redirected="2>&1", stdout=unread).returncode == 2


@pytest.mark.usefixtures("_filled")
def test_a_reader_that_leaves_early_ends_a_long_answer(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    child = subprocess.Popen(
        [*command, "sql", "--json", "from range(1_000_000)"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.read(20) == b'[{"range": 0}, {"ran'
    child.stdout.close()
    assert (child.stderr.read(), child.wait(60)) == (b"", UNREAD)


@pytest.mark.parametrize(
    "arguments", [["judge", "model.py", "faster.py", "--checks-only"], ["null-test", "model.py"]]
)
def test_an_unread_success_exits_with_141(
    arguments: list[str], started: Started, unread: int
) -> None:
    done = started([*arguments, "--device", "cpu"], stdout=unread)
    assert (done.returncode, done.stderr) == (UNREAD, b"")


PRINTS = """
import ctypes, os, subprocess, sys
print("loading")
sys.__stdout__ and sys.__stdout__.write("loaded\\n")
ctypes.CDLL(None).puts(b"a library in C")
ctypes.CDLL(None).fflush(None)
os.write(1, b"to the descriptor\\n")
subprocess.run(["echo", "from a process"], check=True)
"""


def test_output_of_libraries_is_not_in_the_answer(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "faster.py").write_text("class ModelNew: pass\n")
    code = (
        "from cudal1 import cli\n"
        "from cudal1.harness.screen import screen\n"
        "given = screen.screen\n"
        f"screen.screen = lambda source: (exec({PRINTS!r}), given(source))[1]\n"
        "cli.app(['screen', 'faster.py', '--json'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    for said in ("loading", "loaded", "a library in C", "to the descriptor", "from a process"):
        assert said in done.stderr


def test_warnings_of_libraries_are_not_shown(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import warnings\nfrom cudal1 import cli\n"
        "def warn():\n    warnings.warn('of a library', UserWarning)\n"
        "    warnings.simplefilter('always')\n    warnings.warn('of two\\nlines', UserWarning)\n"
        "cli.app.command('warn')(warn)\ncli.app(['warn'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "UserWarning: of two lines\n")


@pytest.mark.parametrize(
    "raised",
    [
        "SystemExit(1)",
        "SystemExit('no')",
        "BrokenPipeError(32, 'x')",
        "EOFError()",
        "MemoryError()",
        "{}['absent']",
    ],
)
def test_our_own_failure_exits_with_2_and_one_line(
    raised: str, environment: dict[str, str]
) -> None:
    code = (
        "from cudal1 import cli\n"
        f"def fail():\n    raise {raised}\n"
        "cli.app.command('fail')(fail)\ncli.app(['fail'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("a failure of cudal1's own")


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted\n"),
        (signal.SIGTERM, -signal.SIGTERM, ""),
        (signal.SIGHUP, -signal.SIGHUP, ""),
    ],
)
def test_signals_end_a_command(
    sent: signal.Signals,
    code: int,
    said: str,
    command: list[str],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "never.py")
    child = subprocess.Popen(
        [*command, "screen", "never.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # `nohup make test` would ignore the signal
        preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL),
    )
    writer = _until_it_reads(tmp_path / "never.py")
    child.send_signal(sent)
    assert child.communicate(timeout=60) == ("", said)
    assert child.returncode == code
    os.close(writer)


def test_a_command_under_nohup_survives_the_closing_of_the_terminal(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "late.py")
    child = subprocess.Popen(
        ["nohup", *command, "screen", "late.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    writer = _until_it_reads(tmp_path / "late.py")
    child.send_signal(signal.SIGHUP)
    os.write(writer, b"class ModelNew: pass\n")
    os.close(writer)
    assert child.wait(60) == 0


def _until_it_reads(pipe: Path) -> int:
    """Return the other end of a pipe, once a process has opened it for reading, and reads.

    A signal that comes between Python's last check and the read that blocks goes unseen until the
    read ends.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.05)
        else:
            time.sleep(0.5)
            return writer
    raise AssertionError("nothing reads it")


def test_json_has_no_nan_and_keeps_pythons_other_types() -> None:
    value = {
        "nan": math.nan,
        "list": [math.inf, (-math.inf, 1.5)],
        "day": date(2026, 1, 2),
        "price": Decimal("1.10"),
        "many": Decimal(10**30),
        "path": Path("a"),
        "half": "\udcff",
        "record": JUDGED,
    }
    text = json_text(value)
    assert text.isascii()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert found.pop("record")["verdict"]["candidate_id"] == "a"
    assert found == {
        "nan": None,
        "list": [None, [None, 1.5]],
        "day": "2026-01-02",
        "price": 1.1,
        "many": 10**30,
        "path": "a",
        "half": "\udcff",
    }


def test_a_slow_reader_of_a_nonblocking_descriptor_gets_everything() -> None:
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    reader = subprocess.Popen(
        [sys.executable, "-c", "import sys, time; time.sleep(1); print(len(sys.stdin.read()))"],
        stdin=receiver,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(receiver)
    left = memoryview(b"x" * 1_000_000)
    descriptor = Descriptor(sender)
    while left:
        left = left[descriptor.write(left) :]
    os.close(sender)
    assert reader.communicate(timeout=60)[0] == "1000000\n"
    assert descriptor.failure is None
