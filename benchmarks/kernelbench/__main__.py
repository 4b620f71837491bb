"""Measure how much faster than KernelBench's own batch evaluation we judge the same 40 candidates.

python -m benchmarks.kernelbench.__main__ --checkout PATH --state DIR [--minutes M]

Ours is `cudal1 judge --suite kernelbench:PATH --candidates FILE` as any user gives it, from an
empty cache, with at least 100 correctness inputs. It runs under `cuda` and then under `cuda-quick`,
which rewards are made with. Its wall time is from the command's start to its end, trying references
and compiling included, without the null test that it adds by itself.

Theirs is `benchmarks.kernelbench.peer`, which says what of KernelBench is run and how. Its prebuilt
cache is off, as in its script. Its wall time is from that process's start to its last verdict,
except the moments between two candidates.

Both run on one GPU, one after the other, on problems as they are, with the candidates of
`benchmarks.kernelbench.candidates`. PATH is a checkout of
https://github.com/ScalingIntelligence/KernelBench, of which nothing is copied; its script needs
pydra-config, modal, openai, litellm and python-dotenv.

Finished work is in DIR, and goes on there on the same machine. Our side runs as a whole, and begins
again if it was cut off. Their side goes on candidate by candidate, and repeats one that was cut
off. Results are saved once our side has ended. Until theirs has, too, they are saved as `so_far`,
with a lower bound of our speedup, by their time so far.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from benchmarks.common import ROOT, chosen, note, options, save
from benchmarks.kernelbench.candidates import Entry, Kind, entries
from benchmarks.kernelbench.setup import Bench, problems_of
from benchmarks.kernelbench.table import collect, show
from cudal1.candidate import Candidate
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.protocol import EvalProtocol
from cudal1.settings import protocols

NUM_INPUTS = 100
"""Correctness inputs of a candidate, at least."""
PROTOCOLS = {"cpu": ["cpu"], "cuda": ["cuda", "cuda-quick"]}
"""Protocols by device, unless one is asked for."""
PEER = (sys.executable, "-m", "benchmarks.kernelbench.peer")
SOME_WITHOUT = 1
"""Exit code of `cudal1 judge` where candidates have no verdict; then there is no ratio."""
STOP_S = 20.0
"""Seconds for an interrupted command to end by itself."""


def main() -> None:
    """Go on, print the table, and write results/kernelbench_DEVICE.json or ..._so_far.json."""
    parser = options("kernelbench", __doc__)
    parser.set_defaults(device="cuda")
    parser.add_argument("--checkout", type=Path, required=True, help="of KernelBench")
    parser.add_argument("--state", type=Path, required=True, help="folder of what is done so far")
    parser.add_argument("--minutes", type=float, default=8.5, help="begin nothing after these")
    parser.add_argument("--arch", default="Hopper", help="KernelBench's name of it")
    parser.add_argument("--sizes", type=Path, help="with --device cpu: a rehearsal of our side")
    given = parser.parse_args()
    try:
        bench = _bench(given)
        with alone(bench) as lock:
            go_on(bench, minutes=given.minutes, keep_open=lock)
        found = collect(bench)
    except CudaL1Error as error:
        sys.exit(str(error))
    show(found)
    if len(found["ours"]) == len(bench.protocols) and found["theirs"]["num_evaluated"]:
        first = next(iter(bench.protocols.values()))
        so_far = "" if found["is_complete"] else "_so_far"
        save(f"kernelbench_{given.device}{so_far}", given.out, bench.device, first, **found)


def _bench(given: argparse.Namespace) -> Bench:
    device, _ = chosen(given)
    names = [given.protocol] if given.protocol else PROTOCOLS[given.device]
    return Bench(
        given.checkout.resolve(),
        given.state.resolve(),
        device,
        {Path(name).stem: _with_inputs(protocols.load(name)) for name in names},
        entries(),
        sizes=given.sizes.resolve() if given.sizes else None,
        arch=given.arch,
    )


def _with_inputs(protocol: EvalProtocol) -> EvalProtocol:
    stages = {*(n for n in protocol.correctness_stages if n < NUM_INPUTS), NUM_INPUTS}
    return protocol.model_copy(update={"correctness_stages": tuple(sorted(stages))})


@contextmanager
def alone(bench: Bench) -> Iterator[int]:
    """Hold the state folder; processes that may outlive a killed benchmark inherit the descriptor.

    Raises:
        ConfigError: another run has it, or it is of another device, checkout or set of candidates.
    """
    bench.state.mkdir(parents=True, exist_ok=True)
    with (bench.state / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{bench.state}: another run is at work; wait for it") from None
        subject, known = _subject(bench), bench.state / "subject.json"
        if not known.exists():
            known.write_text(json.dumps(subject), encoding="utf-8")
        for name, value in json.loads(known.read_text(encoding="utf-8")).items():
            if subject[name] != value:
                raise ConfigError(f"{bench.state}: is of another {name}; name another --state")
        yield lock.fileno()


def _subject(bench: Bench) -> dict[str, str]:
    """Return what all of one comparison must have in common."""
    problems = problems_of(bench)
    return {
        "device": bench.device.id,
        "protocol": " ".join(protocol.id for protocol in bench.protocols.values()),
        "checkout": next(iter(problems.values())).revision,
        "set of candidates": " ".join(
            Candidate(problem_id=problems[entry.name].id, source=entry.source).id
            for entry in bench.candidates
        ),
    }


def go_on(bench: Bench, *, minutes: float, keep_open: int) -> None:
    """Do what there is time for; processes inherit the descriptor `keep_open`."""
    deadline = time.monotonic() + 60 * minutes
    for name in bench.protocols:
        if not bench.ours_file(name).exists() and time.monotonic() < deadline:
            judge_ours(bench, name, deadline=deadline, keep_open=keep_open)
    known = bench.theirs()
    left = [entry for entry in bench.candidates if entry.name not in known]
    if left and time.monotonic() < deadline:
        evaluate_theirs(bench, left, deadline=deadline, keep_open=keep_open)


def judge_ours(bench: Bench, name: str, *, deadline: float, keep_open: int) -> None:
    """Judge all under the protocol of that name, from nothing; again if that takes too long.

    Raises:
        ConfigError: the command says that it cannot, or gave no verdict at all.
    """
    verdicts = bench.verdicts_file(name)
    folder = verdicts.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    rows = [
        {"level": entry.place.level, "problem_id": entry.place.number, "source": entry.source}
        for entry in bench.candidates
    ]
    bench.candidates_file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    protocol = folder / "protocol.yaml"
    protocol.write_text(yaml.safe_dump(bench.protocols[name].model_dump(mode="json")), "utf-8")
    command = [
        sys.executable,
        "-m",
        "cudal1.cli",
        "judge",
        "--suite",
        f"kernelbench:{bench.checkout}",
        "--candidates",
        str(bench.candidates_file),
        "--out",
        str(verdicts),
        "--protocol",
        str(protocol),
        "--device",
        bench.device.device_class.value,
        "--baselines",
        "none",
        *(("--sizes", str(bench.sizes)) if bench.sizes else ()),
    ]
    note(f"ours, {name}: {len(rows)} candidates")
    started = time.monotonic()
    code = _run(
        command,
        folder / "log.txt",
        deadline=deadline,
        keep_open=keep_open,
        environment={"XDG_CACHE_HOME": str(folder / "cache")},
    )
    wall_s = time.monotonic() - started
    said = (folder / "log.txt").read_text(encoding="utf-8")
    if code is None:
        note(f"ours, {name}: out of time; it begins again")
    elif code not in (0, SOME_WITHOUT) or not verdicts.read_text(encoding="utf-8"):
        raise ConfigError(f"cudal1 judge ended with {code}: {said[-2000:]}")
    else:
        done = json.dumps({"wall_s": wall_s, "said": said})
        bench.ours_file(name).write_text(done, encoding="utf-8")
        note(f"ours, {name}: {wall_s:.1f} s")


def evaluate_theirs(
    bench: Bench, left: Sequence[Entry], *, deadline: float, keep_open: int
) -> None:
    """Have the peer go on until the deadline, or somewhat longer: it finishes what it began.

    Raises:
        ConfigError: it failed.
    """
    folder = bench.state / "theirs"
    folder.mkdir(exist_ok=True)
    job = {
        "lines": str(bench.theirs_file),
        "folder": str(folder),
        "arch": bench.arch,
        "deadline": deadline,
        "began": time.monotonic(),
        "work": [
            {
                "name": entry.name,
                "level": entry.place.level,
                "problem_id": entry.place.number,
                "backend": "triton" if entry.kind is Kind.TRITON else "cuda",
                "source": entry.source,
            }
            for entry in left
        ],
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    note(f"theirs: {len(left)} candidates left")
    code = _run(
        [*PEER, str(folder / "job.json")],
        folder / "log.txt",
        keep_open=keep_open,
        environment={
            "PYTHONPATH": os.pathsep.join(
                [
                    str(ROOT),
                    str(bench.checkout / "src"),
                    str(bench.checkout / "scripts"),
                    os.environ.get("PYTHONPATH", ""),
                ]
            ),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            # one of its imports would look for prices on the network, each time and in vain
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
    if code != 0:
        said = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        raise ConfigError(f"KernelBench's process ended with {code}: {said[-2000:]}")
    note(f"theirs: {len(bench.theirs())} of {len(bench.candidates)} done")


def _run(
    command: Sequence[str],
    log: Path,
    *,
    environment: dict[str, str],
    keep_open: int,
    deadline: float | None = None,
) -> int | None:
    """Return the exit code of a command; None if it was interrupted at the deadline."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=stream,
            stderr=stream,
            pass_fds=(keep_open,),
        )
        try:
            return process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return None


if __name__ == "__main__":
    main()
