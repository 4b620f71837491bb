"""Run the test suite again and again on a machine that has other things to do.

python -m benchmarks.suite_under_load [--runs 5] [--together 1] [--hogs 2] [--work DIR]
                                      [--args "-m 'not slow'"] [--go-on]

Each run does what a newcomer does: a clone of what is committed, with an environment that has PATH
and HOME alone, in which `make test` installs and tests. Beside it, processes that only compute keep
the cores busy, and with `--together` other runs do. A test that fails in one run of many depends on
a race of its own, or has found a race in the product. The result file is written after each run;
logs of runs that failed stay. With `--go-on` it counts the runs of the result file, too, each of
which has its commit: five runs take longer than a machine may be had.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
KEPT = ("PATH", "HOME")
BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(10**6):
        pass
"""
"""Code of a process that computes for as long as its parent lives."""
SAID_CHARACTERS = 300
"""Most characters of the message of a failed test or command."""


def main() -> None:
    """Run the suite several times; write suite_under_load.json; exit with 1 if a run failed."""
    given = _options().parse_args()
    work = Path(given.work or tempfile.mkdtemp(prefix="cudal1-suite-"))
    work.mkdir(parents=True, exist_ok=True)
    commit = _git(given.checkout, "rev-parse", "HEAD")
    if _git(given.checkout, "status", "--porcelain"):
        print("what is not committed is not tested", flush=True)
    environment = {name: os.environ[name] for name in (*KEPT, *given.keep) if name in os.environ}
    runs: list[dict[str, Any]] = []
    result = given.out / "suite_under_load.json"
    if given.go_on and result.exists():
        runs += json.loads(result.read_text(encoding="utf-8"))["runs"]
    for run in several_runs(given, work, environment, first=len(runs) + 1):
        said = {"commit": commit, "measured": time.strftime("%Y-%m-%d")}
        runs.append({**said, "num_hogs": given.hogs, "num_together": given.together, **run})
        show(len(runs), run)
        content = {
            "benchmark": "suite_under_load",
            "cpu": cpu_name(),
            "num_cores": len(os.sched_getaffinity(0)),
            "versions": versions("pytest", "torch", "duckdb"),
            "arguments": given.args or "",
            "is_complete": len(runs) == given.runs,
            "num_failed_runs": sum(run["returncode"] != 0 for run in runs),
            "runs": runs,
        }
        given.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=1).replace(str(work), ".")
        result.write_text(text + "\n", encoding="utf-8")
    show_all(runs)
    raise SystemExit(any(run["returncode"] for run in runs))


def _options() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m benchmarks.suite_under_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=5, help="in all")
    parser.add_argument("--go-on", action="store_true", help="count those of the result file, too")
    parser.add_argument("--together", type=int, default=1, help="runs at a time")
    parser.add_argument("--hogs", type=int, default=2, help="processes that only compute")
    parser.add_argument("--args", help="of pytest, as in `make test ARGS=…`")
    parser.add_argument("--keep", nargs="*", default=[], help="variables that a run sees, too")
    parser.add_argument("--work", help="folder for clones and logs; default: a temporary one")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="what is cloned")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    return parser


def _git(checkout: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=checkout, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def several_runs(
    given: argparse.Namespace, work: Path, environment: Mapping[str, str], *, first: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield the result of each run from `first` on, as it ends; their processes end with us."""
    going = set[subprocess.Popen[bytes]]()

    def in_a_clone(number: int) -> dict[str, Any]:
        clone = work / f"clone-{number}"
        subprocess.run(["git", "clone", "--quiet", given.checkout, clone], check=True)
        done = one_run(clone, environment, going, num_hogs=given.hogs, arguments=given.args or "")
        shutil.rmtree(clone, ignore_errors=True)
        return done

    with ThreadPoolExecutor(given.together) as pool:
        asked = [pool.submit(in_a_clone, number) for number in range(first, given.runs + 1)]
        try:
            for each in as_completed(asked):
                yield each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(going):
                os.killpg(process.pid, signal.SIGKILL)


def one_run(
    clone: Path,
    environment: Mapping[str, str],
    going: set[subprocess.Popen[bytes]],
    *,
    num_hogs: int,
    arguments: str,
) -> dict[str, Any]:
    """Return the result of one `make test`, in a fresh clone, beside busy processes."""
    log, report = clone.with_suffix(".log"), clone.with_suffix(".xml")
    report.unlink(missing_ok=True)
    started = time.monotonic()
    code = _make(clone, ["dev"], environment, log, going)
    installed_s = time.monotonic() - started
    if code == 0:
        with hogs(num_hogs):
            asked = f"ARGS={arguments} {shlex.quote(f'--junitxml={report}')}"
            code = _make(clone, ["test", asked], environment, log, going)
    counts, failures = read_report(report) if report.exists() else ({}, [])
    if code and not failures:
        said = log.read_text(encoding="utf-8", errors="replace")[-SAID_CHARACTERS:]
        failures = [{"test": "", "kind": "command", "said": said}]
    if not code:
        log.unlink()
    return {
        "returncode": code,
        "installed_s": round(installed_s, 1),
        "tested_s": round(time.monotonic() - started - installed_s, 1),
        "counts": counts,
        "failures": failures,
    }


@contextmanager
def hogs(number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep `number` cores busy meanwhile; these processes end with the context, or with us."""
    busy = [
        subprocess.Popen([sys.executable, "-I", "-c", BUSY, str(os.getpid())])
        for _ in range(number)
    ]
    try:
        yield busy
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _make(
    clone: Path,
    words: list[str],
    environment: Mapping[str, str],
    log: Path,
    going: set[subprocess.Popen[bytes]],
) -> int:
    """Return the exit code of `make`, which is in `going` for as long as it runs."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            ["make", *words],
            cwd=clone,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    going.add(process)
    try:
        return process.wait()
    finally:
        going.discard(process)


def read_report(path: Path) -> tuple[dict[str, int], list[dict[str, str]]]:
    """Return the numbers of tests by outcome, and the failed tests, from JUnit's XML."""
    counts, failures = Counter[str](), list[dict[str, str]]()
    for case in ElementTree.parse(path).iter("testcase"):
        bad = [each for each in case if each.tag in ("failure", "error")]
        outcome = bad[0].tag if bad else "skipped" if case.find("skipped") is not None else "passed"
        counts[outcome] += 1
        failures += [
            {
                "test": f"{case.get('classname')}::{case.get('name')}",
                "kind": each.tag,
                "said": " ".join((each.get("message") or "").split())[:SAID_CHARACTERS],
            }
            for each in bad
        ]
    return dict(counts), failures


def show(number: int, run: Mapping[str, Any]) -> None:
    """Print the result of one run."""
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(run["counts"].items()))
    print(f"run {number}: exit {run['returncode']}, {run['tested_s']:.0f} s: {said}", flush=True)
    for failure in run["failures"]:
        print(f"  {failure['kind']} {failure['test']}: {failure['said']}", flush=True)


def show_all(runs: list[dict[str, Any]]) -> None:
    """Print each test that failed in any run, with the number of runs, the most frequent first."""
    failed = Counter(test for run in runs for test in {each["test"] for each in run["failures"]})
    for test, count in failed.most_common():
        print(f"{count} of {len(runs)}: {test or 'the command itself'}")
    print(f"{sum(run['returncode'] != 0 for run in runs)} of {len(runs)} runs with a failure")


if __name__ == "__main__":
    main()
