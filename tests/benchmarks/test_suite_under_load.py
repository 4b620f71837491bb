"""Tests of suite runs beside busy processes: fresh clones, and every failure with its test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import suite_under_load
from tests.project import git_commit

MAKEFILE = """
dev:
\tenv > $(LOG)/environment
\ttest ! -e made-by-a-run
\ttouch made-by-a-run
test: dev2
\t{python} suite.py $(LOG) $(ARGS)
dev2:
"""
SUITE = """
import sys
from pathlib import Path

log, asked, report = Path(sys.argv[1]), sys.argv[2:-1], sys.argv[-1].removeprefix("--junitxml=")
number = len(list(log.glob("run-*"))) + 1
(log / f"run-{number}").write_text(" ".join(asked))
failed = number == 2
body = '<failure message="assert 28 == 29&#10;more"/>' if failed else ""
Path(report).write_text(
    "<testsuites><testsuite>"
    f'<testcase classname="tests.flows.test_pipeline" name="test_a">{body}</testcase>'
    '<testcase classname="tests.test_b" name="test_b"><skipped/></testcase>'
    '<testcase classname="tests.test_b" name="test_c"/>'
    "</testsuite></testsuites>"
)
sys.exit(failed)
"""
WAITS_FOR_ANOTHER = """
import sys, time
from pathlib import Path

log, report = Path(sys.argv[1]), sys.argv[-1].removeprefix("--junitxml=")
mark = log / Path(report).name
mark.touch()
ends = time.monotonic() + 300
while len(list(log.glob("*.xml"))) < 2 and time.monotonic() < ends:
    time.sleep(0.05)
Path(report).write_text('<testsuites><testsuite><testcase name="a"/></testsuite></testsuites>')
sys.exit(len(list(log.glob("*.xml"))) < 2 or mark.name == "clone-1.xml")
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository in which the second run of `make test` fails."""
    made = tmp_path / "checkout"
    made.mkdir()
    (tmp_path / "log").mkdir()
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    subprocess.run(["git", "init", "--quiet"], cwd=made, check=True)
    (made / "Makefile").write_text(MAKEFILE.format(python=sys.executable))
    (made / "suite.py").write_text(SUITE)
    git_commit(made)
    return made


def run(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    arguments = ["--checkout", str(checkout), "--out", str(tmp_path), "--work", str(tmp_path / "w")]
    monkeypatch.setattr(sys, "argv", ["x", *arguments, "--keep", "LOG", *more])
    with pytest.raises(SystemExit) as ended:
        suite_under_load.main()
    return int(ended.value.code or 0)


def test_each_run_has_its_own_clone_and_each_failure_is_named(
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(checkout, tmp_path, monkeypatch, "--runs", "3", "--args", "-k 'a b'") == 1
    found = json.loads((tmp_path / "suite_under_load.json").read_text())
    assert (found["num_failed_runs"], found["is_complete"]) == (1, True)
    assert [each["returncode"] != 0 for each in found["runs"]] == [False, True, False]
    assert found["runs"][0]["counts"] == {"passed": 2, "skipped": 1}
    (failure,) = found["runs"][1]["failures"]
    assert failure == {
        "test": "tests.flows.test_pipeline::test_a",
        "kind": "failure",
        "said": "assert 28 == 29 more",
    }
    assert (tmp_path / "log" / "run-1").read_text() == "-k a b"
    said = capsys.readouterr().out
    assert "1 of 3: tests.flows.test_pipeline::test_a\n1 of 3 runs with a failure\n" in said
    assert str(tmp_path) not in json.dumps(found)
    # only failed runs have logs
    assert [path.name for path in (tmp_path / "w").glob("*.log")] == ["clone-2.log"]


def test_earlier_runs_count_on_request_each_with_its_commit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(checkout, tmp_path, monkeypatch, "--runs", "1") == 0
    (checkout / "new").touch()
    git_commit(checkout)
    assert run(checkout, tmp_path, monkeypatch, "--runs", "3", "--go-on") == 1
    found = json.loads((tmp_path / "suite_under_load.json").read_text())
    assert [each["returncode"] != 0 for each in found["runs"]] == [False, True, False]
    first, second, third = (each["commit"] for each in found["runs"])
    assert first != second == third


def test_a_run_sees_nothing_of_our_environment(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(checkout, tmp_path, monkeypatch, "--runs", "1") == 0
    seen = (tmp_path / "log" / "environment").read_text()
    assert "SECRET_OF_OURS" not in seen
    assert {line.split("=")[0] for line in seen.splitlines()} >= {"PATH", "HOME", "LOG"}


def test_a_command_that_fails_without_a_report_is_a_failure(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "made-by-a-run").touch()
    git_commit(checkout)
    assert run(checkout, tmp_path, monkeypatch, "--runs", "1") == 1
    (done,) = json.loads((tmp_path / "suite_under_load.json").read_text())["runs"]
    (failure,) = done["failures"]
    assert (failure["test"], failure["kind"]) == ("", "command")
    assert "Error" in failure["said"]


def test_parallel_runs_see_each_other_and_a_failed_run_ends_no_other(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "suite.py").write_text(WAITS_FOR_ANOTHER)
    git_commit(checkout)
    assert run(checkout, tmp_path, monkeypatch, "--runs", "2", "--together", "2") == 1
    found = json.loads((tmp_path / "suite_under_load.json").read_text())
    assert sorted(each["returncode"] != 0 for each in found["runs"]) == [False, True]
    assert {each["num_together"] for each in found["runs"]} == {2}


def test_busy_processes_run_during_the_suite_and_end_after_it() -> None:
    with suite_under_load.hogs(2) as busy:
        assert len({process.pid for process in busy}) == 2
        assert all(process.poll() is None for process in busy)
    assert not any(psutil.pid_exists(process.pid) for process in busy)
