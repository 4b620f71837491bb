"""Find files that our processes import from neither the installation nor our packages.

python -m benchmarks.judging.surroundings [--only judge suite stage night] [--out FOLDER]

Each command is run in a folder, and with an environment, that would steer a program that trusted
them. They hold modules with the names of all modules of the standard library and of every installed
package, settings of other servers, and a proxy at which no server listens. PYTHONPATH and the
user's packages hold a choice of these modules, since an interpreter that has them all does not even
begin.

Each command is run twice. In the first run, to its end, the modules note the processes that import
them. In the second run `strace` notes what every process opens. Python modules, shared libraries
and `.pth` files from elsewhere are counted. A candidate's process does not bear being traced, so
that this run may end early.

Processes of candidates, which are untrusted by design, are not counted. Files that the command
names are not counted either, among them a problem's, which a process of its own imports from a
folder of ours. The first interpreter has a column of its own: it is the user's, and imports what
the user's PYTHONPATH says, until an isolated one takes its place.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from pathlib import Path

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name
from cudal1.processes import FLAGS
from cudal1.start import OURS
from tests.flows.nights import make_night_project
from tests.hostile import MODULES, VARIABLES, make_hostile
from tests.project import make_project

RESULTS = Path(__file__).parents[1] / "results"
PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
CANDIDATE = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.softmax(-1)
"""
MODULE = """import os, sys
with open({note!r}, "a") as note:
    note.write(f"{{os.getpid()}}\\t{{__file__}}\\t{{' '.join(sys.orig_argv)}}\\n")
here, this = os.path.dirname(__file__), sys.modules.pop(__name__)
kept, sys.path[:] = sys.path[:], [each for each in sys.path if os.path.abspath(each) != here]
try:
    __import__(__name__)
except ImportError:
    sys.modules[__name__] = this
finally:
    sys.path[:] = kept
"""
"""Source of a module that notes its importer and gives it the real module, so that all imports
show."""
IMPORTED = re.compile(r"\.(py|pyc|pth)$|\.so(\.\d+)*$")
UNTRUSTED = "cudal1.harness.worker"
SYSTEM = ("/usr/lib", "/lib", "/usr/local/lib", "/usr/local/cuda", "/etc", "/proc", "/sys")
_CALL = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_PROBLEM = re.compile(r"/cudal1-(problem|trials)-\w+/([\w-]+/)?problem-\w+/problem_[0-9a-f]+\.py$")
_OPENED = re.compile(r'"(?P<asked>(?:[^"\\]|\\.)*)".*= \d+<(?P<path>[^>]*)>')


Command = tuple[list[str], Sequence[Path], Sequence[str]]
"""A command line, the folders that may be imported from, and the files that it names."""


@dataclass
class Process:
    """One process, and its origin."""

    words: str
    is_first: bool
    is_trusted: bool


@dataclass
class Seen:
    """Files that the processes of one command have imported from elsewhere, or opened for that."""

    exit_code: int
    by_first: Counter[str] = field(default_factory=Counter)
    by_others: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Counts by process and file."""


def main() -> None:
    """Run the commands, print a table, save what was seen."""
    parser = Parser(
        prog="python -m benchmarks.judging.surroundings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="*", choices=sorted(COMMANDS), default=sorted(COMMANDS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("strace is not installed: on Debian `apt-get install strace`")
    found: dict[str, object] = {}
    print(f"{'command':<8} {'run':<8} {'exit':>4} {'first interpreter':>17} {'others':>6}")
    for name in given.only:
        for run in (imports, opens):
            with tempfile.TemporaryDirectory(prefix="cudal1-") as folder:
                seen = run(name, Path(folder).resolve())
                what = {path.replace(folder, "…"): 0 for _, path in seen.by_others}
            print(
                f"{name:<8} {run.__name__:<8} {seen.exit_code:>4} {len(seen.by_first):>17} "
                f"{len(seen.by_others):>6}"
            )
            for (words, path), number in sorted(seen.by_others.items())[:20]:
                print(f"    {number} x {path}\n        by {words}")
            found[f"{name} {run.__name__}"] = {
                "exit_code": seen.exit_code,
                "by_first_interpreter": len(seen.by_first),
                "by_others": sorted(what),
            }
    given.out.mkdir(parents=True, exist_ok=True)
    content = {
        "benchmark": "surroundings",
        "measured": time.strftime("%Y-%m-%d"),
        "machine": {"cpu": cpu_name()},
        "commands": found,
    }
    (given.out / "surroundings.json").write_text(json.dumps(content, indent=1) + "\n")


def imports(name: str, scratch: Path) -> Seen:
    """Run a command to its end, and read what the modules have written."""
    command, _, _ = prepared(name, scratch)
    process, said = started(command, scratch)
    seen = Seen(process.wait())
    if seen.exit_code:
        print(said.read_text(errors="replace")[-2000:], file=sys.stderr)
    note = scratch / "note"
    for line in note.read_text().splitlines() if note.exists() else []:
        pid, path, words = line.split("\t")
        if int(pid) == process.pid and not re.search(r" -I( |$)", words):
            seen.by_first[path] += 1
        else:
            seen.by_others[words[:200], path] += 1
    return seen


def opens(name: str, scratch: Path) -> Seen:
    """Run a command under strace, and read what its processes have opened."""
    command, ours, named = prepared(name, scratch)
    log = scratch / "log"
    process, _ = started(
        [
            "strace",
            "-f",
            "-qq",
            "-y",
            "-s",
            "4096",
            "--decode-pids=pidns",
            "-o",
            str(log),
            "-e",
            "signal=none",
            "-e",
            "trace=openat,open,execve,clone,clone3,fork,vfork",
            *command,
        ],
        scratch,
    )
    seen = Seen(process.wait())
    installed = (str(Path(sys.executable).parents[1]), sys.base_prefix, *SYSTEM, *map(str, ours))
    with log.open(encoding="utf-8", errors="replace") as lines:
        read(lines, seen, installed, {str(scratch / "work" / each) for each in named})
    return seen


def prepared(name: str, scratch: Path) -> Command:
    """Return a command in a hostile folder."""
    work = scratch / "work"
    work.mkdir()
    command = COMMANDS[name](work)
    make_hostile(work, scratch / "note")
    for module in MODULES:
        shutil.rmtree(work / module, ignore_errors=True)
    every = {*sys.stdlib_module_names, *packages_distributions(), *MODULES} - {*OURS}
    put_modules(work, scratch / "note", every)
    return command


def started(command: Sequence[str], scratch: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a command in a hostile environment; return it, and the file with its output."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path, site = scratch / "path", scratch / "base" / "lib" / version / "site-packages"
    for each in (path, site):
        each.mkdir(parents=True)
        put_modules(each, scratch / "note", MODULES)
    (site / "theirs.pth").write_text("import queue\n")
    (scratch / "tmp").mkdir()
    environment = {
        **os.environ,
        **VARIABLES,
        "PYTHONPATH": str(path),
        "PYTHONUSERBASE": str(scratch / "base"),
        "PYTHONSTARTUP": str(path / "random.py"),
        "TMPDIR": str(scratch / "tmp"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    if "dvc" in command:
        del environment["DVC_SITE_CACHE_DIR"]  # a user's own `dvc` obeys it
    said = scratch / "output"
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=scratch / "work", env=environment, stdout=output, stderr=output
        )
    return process, said


def put_modules(folder: Path, note: Path, names: Iterable[str]) -> None:
    """Put a module of each name into a folder."""
    for name in {*names} - {*sys.builtin_module_names}:
        if name.isidentifier() and not (folder / name).exists():
            (folder / f"{name}.py").write_text(MODULE.format(note=str(note)))


# --- commands ---------------------------------------------------------------------------------


def _judge(work: Path) -> Command:
    (work / "model.py").write_text(PROBLEM)
    (work / "candidate.py").write_text(CANDIDATE)
    words = ["judge", "model.py", "candidate.py", "--device", "cpu", "--checks-only"]
    return ["cudal1", *words], [ROOT / "cudal1"], ["model.py", "candidate.py"]


def _suite(work: Path) -> Command:
    source = json.dumps({"level": 1, "problem_id": 3, "source": CANDIDATE})
    (work / "answers.jsonl").write_text(f"{source}\n")
    words = ["judge", "--suite", "shipped", "--candidates", "answers.jsonl", "--device", "cpu"]
    return ["cudal1", *words, "--checks-only"], [ROOT / "cudal1"], []


def _stage(work: Path) -> Command:
    make_project(work)
    return ["dvc", "repro", "generate@fuser"], _packages(work), []


def _night(work: Path) -> Command:
    make_night_project(work)
    words = [sys.executable, *FLAGS, "cudal1/start.py", "flows.nightly"]
    return words, _packages(work), []


ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, Callable[[Path], Command]] = {
    "judge": _judge,
    "suite": _suite,
    "stage": _stage,
    "night": _night,
}


def _packages(work: Path) -> list[Path]:
    return [work / name for name in ("cudal1", "tasks", "flows")]


# --- what strace has written ------------------------------------------------------------------


def read(lines: Iterator[str], seen: Seen, allowed: Sequence[str], named: set[str]) -> None:
    """Note files that trusted processes have opened for import, outside of what is allowed."""
    processes = dict[int, Process]()
    unfinished: dict[int, str] = {}
    for line in lines:
        if (resumed := _RESUMED.match(line)) is not None:
            pid = int(resumed["pid"])
            call = unfinished.pop(pid, "") + resumed["rest"]
            name = resumed["name"]
        elif (found := _CALL.match(line)) is not None:
            pid, name, call = int(found["pid"]), found["name"], found["rest"]
            if call.rstrip().endswith("<unfinished ...>"):
                unfinished[pid] = call.rstrip().removesuffix("<unfinished ...>")
                continue
        else:
            continue
        process = processes.get(pid)
        if process is None:
            process = processes[pid] = Process("", not processes, True)
        _take(name, call, pid, process, processes, seen, allowed, named)


def _take(
    name: str,
    call: str,
    pid: int,
    process: Process,
    processes: dict[int, Process],
    seen: Seen,
    allowed: Sequence[str],
    named: set[str],
) -> None:
    if name in ("clone", "clone3", "fork", "vfork"):
        # the latter number where the child is in a namespace of processes
        if (child := re.search(r"= (?:\d+ /\* )?(\d+)", call)) is not None:
            # a thread, or a process that is its parent's copy until it runs a program
            known = processes.get(int(child[1]))
            if known is None or not known.words:
                processes[int(child[1])] = Process(
                    process.words, process.is_first, process.is_trusted
                )
    elif name == "execve":
        if call.rstrip().endswith("= 0"):
            words = " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call)[1:])
            is_first = pid == next(iter(processes)) and not re.search(r" -I( |$)", words)
            processes[pid] = Process(
                words[:200], is_first, process.is_trusted and UNTRUSTED not in words
            )
    elif (opened := _OPENED.search(call)) is not None and process.is_trusted:
        path = opened["path"].removesuffix("(deleted)")
        is_theirs = path not in named and not _PROBLEM.search(path)
        if IMPORTED.search(path) and not path.startswith(tuple(allowed)) and is_theirs:
            if process.is_first:
                seen.by_first[path] += 1
            else:
                seen.by_others[process.words, path] += 1


if __name__ == "__main__":
    main()
