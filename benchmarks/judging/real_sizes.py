"""Judge KernelBench's references against themselves at their own sizes: speed, load and errors.

python -m benchmarks.judging.real_sizes --checkout PATH --state DIR [--gpus 1 2] [--sample N]
                                        [--minutes M]

PATH is a checkout of https://github.com/ScalingIntelligence/KernelBench, of which nothing is copied
into this repository. Every reference of levels 1 to 3 is judged against itself by `cudal1 judge`
with its default baseline, from an empty cache. Measured are:

* verdicts a second and the time to the first verdict, trying references included;
* how long the GPUs computed, as the driver says from outside;
* the use of a verdict's seconds;
* the references that were called faster than themselves, which must be none, or slower.

Then the same is asked again, with caches as they are, up to the first verdict.

With `--gpus 1 2` all of it is done on one GPU and then on two of the same host, each from an empty
cache of its own. The ratio of wall times is given once both have ended. The option `--sample N`
takes N problems, the same ones in each run, by a hash of their source.

It begins nothing after --minutes. Verdicts are in DIR, and the same command goes on there; a run
that is begun again counts from its start. With --device cpu, sizes are cut to --largest by
`cudal1.suite.halving`: a rehearsal.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.ablation.memory import Lines
from benchmarks.common import chosen, note, options, print_table, save
from benchmarks.judging.verdict_seconds import in_words, seconds
from benchmarks.release import figures
from benchmarks.release.causes import kind_of_refusal, one_line
from benchmarks.release.command import WAIT_S, Files, cut_off, run
from benchmarks.release.figures import Figure
from benchmarks.release.state import State, lines_of
from cudal1 import processes
from cudal1.cli.verdicts.verdict_file import read_judged
from cudal1.errors import ConfigError, CudaL1Error, SuiteError
from cudal1.harness.device.device import Device
from cudal1.problem import DeviceClass, resize
from cudal1.protocol import EvalProtocol, PrecisionClass
from cudal1.record import content_id
from cudal1.suite.halving import shrunk
from cudal1.suite.loader import read_source
from cudal1.verdict import Verdict

LEVELS = (1, 2, 3)
"""Levels to judge. Level 4 asks a hub for its models' settings."""
ENDED = (0, 1)
"""Exit codes of a command that has judged all that can be judged."""


@dataclass(frozen=True)
class Bench:
    """One run: the references that are judged, and the folders for its results."""

    state: State
    device: Device
    protocol: EvalProtocol

    @property
    def suite(self) -> Path:
        """Return the folder of the problems, which `cudal1 judge` takes as a checkout."""
        return self.state.work / "suite"

    def way(self, num_gpus: int) -> Way:
        """Return the bench's part on `num_gpus` GPUs."""
        return Way(
            self,
            num_gpus,
            Files(folder := self.state.folder / f"gpus-{num_gpus}", folder / "verdicts.jsonl"),
        )


@dataclass(frozen=True)
class Way:
    """The references, judged on a number of GPUs."""

    bench: Bench
    num_gpus: int
    files: Files

    @property
    def runs_file(self) -> Path:
        """Return the file with a line for each run of the command."""
        return self.files.folder / "runs.jsonl"

    @property
    def warm_file(self) -> Path:
        """Return the file with a line for the run with warm caches, up to its first verdict."""
        return self.files.folder / "warm.jsonl"

    @property
    def has_ended(self) -> bool:
        """Return whether the last run came to its end."""
        runs = lines_of(self.runs_file)
        return bool(runs) and runs[-1]["code"] in ENDED

    @property
    def cache(self) -> Path:
        """Return the cache folder of the judged command."""
        return self.bench.state.work / f"cache-{self.num_gpus}"

    def environment(self) -> dict[str, str]:
        """Return the command's variables: a cache of its own, and its GPUs."""
        variables = {"XDG_CACHE_HOME": str(self.cache)}
        if self.bench.device.device_class is DeviceClass.CUDA:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(visible()[: self.num_gpus])
        return processes.sparse(**variables)

    def command(self, verdicts: Path) -> list[str]:
        """Return the command that judges every reference that has no verdict in a file."""
        folder = self.bench.state.work
        protocol = folder / "protocol.yaml"
        content = self.bench.protocol.model_dump(mode="json")
        protocol.write_text(yaml.safe_dump(content), encoding="utf-8")
        words = {
            "--suite": f"kernelbench:{self.bench.suite}",
            "--baselines": "eager",
            "--wait": str(WAIT_S),
            "--out": str(verdicts),
            "--protocol": str(protocol),
            "--device": self.bench.device.device_class.value,
        }
        given = [word for option in words.items() for word in option]
        return processes.python("cudal1.cli", "judge", *given, "--json")


def main() -> None:
    """Go on, print the figures, and write results/real_sizes_DEVICE.json."""
    given = _options().parse_args()
    try:
        _run(given)
    except CudaL1Error as error:
        sys.exit(str(error))


def _options() -> argparse.ArgumentParser:
    parser = options("real_sizes", __doc__)
    parser.set_defaults(device="cuda")
    add = parser.add_argument
    add("--checkout", type=Path, required=True, help="of KernelBench")
    add("--state", type=Path, required=True, help="folder of what is done so far")
    add("--work", type=Path, help="folder of sources, builds and caches; default: STATE/work")
    add("--gpus", type=int, nargs="+", default=[1], help="how many; 1 2 compares both")
    add("--sample", type=int, help="so many problems; default: all")
    add("--levels", type=int, nargs="+", default=list(LEVELS), help="only these")
    add("--precision", choices=list(PrecisionClass), default=PrecisionClass.HALF)
    add("--largest", type=int, default=64, help="size on a CPU (64)")
    add("--minutes", type=float, default=8.5, help="begin nothing after these")
    return parser


def _run(given: argparse.Namespace) -> None:
    deadline = time.monotonic() + 60 * given.minutes
    device, protocol = chosen(given)
    precision = PrecisionClass(given.precision)
    protocol = protocol.model_copy(update={"precision": precision})
    folder: Path = given.state.resolve()
    bench = Bench(State(folder, (given.work or folder / "work").resolve()), device, protocol)
    most = len(visible()) if device.device_class is DeviceClass.CUDA else 1
    if not all(1 <= each <= most for each in given.gpus):
        raise ConfigError(f"--gpus {max(given.gpus)}: there are {most} here")
    sources = problems(
        given.checkout,
        levels=given.levels,
        sample=given.sample,
        largest=None if device.device_class is DeviceClass.CUDA else given.largest,
    )
    subject = {
        "device": device.kind,
        "protocol": protocol.id,
        "set of problems": content_id(*sources.values()),
    }
    with bench.state.held(subject) as lock:
        write(sources, bench.suite)
        for num_gpus in given.gpus:
            go_on(bench.way(num_gpus), deadline=deadline, keep_open=lock)
    found = {str(each): outcome(bench.way(each)) for each in given.gpus}
    ratio = times_faster(found)
    save(
        f"real_sizes_{given.device}",
        given.out,
        device,
        protocol,
        num_problems=len(sources),
        levels=given.levels,
        problems=sorted(sources),
        ways=found,
        times_faster=ratio,
    )
    show(found, ratio)


def visible() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if names := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return names.split(",")
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def problems(
    checkout: Path, *, levels: Sequence[int], sample: int | None, largest: int | None
) -> dict[str, str]:
    """Return sources by place, such as `level1/1_name.py`.

    Args:
        checkout: of KernelBench.
        levels: those that are taken.
        sample: number of problems; None takes all.
        largest: what sizes are cut to, which leaves out some problems; None leaves them.

    Raises:
        ConfigError: there are none.
    """
    found = {
        f"{file.parent.name}/{file.name}": read_source(file)
        for level in levels
        for file in sorted((checkout / "KernelBench" / f"level{level}").glob("[0-9]*_*.py"))
    }
    if not found:
        raise ConfigError(f"{checkout}: no KernelBench/level1/1_name.py in it; give a checkout")
    taken = sorted(found, key=lambda place: content_id(found[place]))[:sample]
    if largest is None:
        return {place: found[place] for place in taken}
    cut: dict[str, str] = {}
    for place in taken:
        with suppress(SuiteError):  # its sizes are assigned in a way that cannot be replaced
            cut[place] = resize(found[place], shrunk(found[place], largest), where=place)
    return cut


def write(sources: Mapping[str, str], folder: Path) -> None:
    """Write problems as a checkout has them, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    for place, source in sources.items():
        file = folder / "KernelBench" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")


def go_on(way: Way, *, deadline: float, keep_open: int) -> None:
    """Judge what has no verdict yet; then ask for the first verdict with warm caches, once."""
    files = way.files
    files.folder.mkdir(parents=True, exist_ok=True)
    runs = Lines(way.runs_file)
    if (killed := cut_off(files)) is not None:
        runs.add({**killed, "complaints": []})
    if not way.has_ended and time.monotonic() < deadline:
        note(f"judging on {way.num_gpus} GPUs")
        is_cold = not way.cache.exists()
        told = run(
            way.command(files.verdicts),
            files,
            environment=way.environment(),
            deadline=deadline,
            keep_open=keep_open,
        )
        runs.add({**told, "is_cold": is_cold, "complaints": complaints(files.answer)})
        note(f"{told['wall_s']:.1f} s, ended with {told['code']}")
    if way.has_ended and not way.warm_file.exists() and time.monotonic() < deadline:
        again = way.bench.state.work / f"again-{way.num_gpus}"
        shutil.rmtree(again, ignore_errors=True)
        again.mkdir(parents=True)
        scratch = Files(again, again / "verdicts.jsonl")
        told = run(
            way.command(scratch.verdicts),
            scratch,
            environment=way.environment(),
            deadline=deadline,
            keep_open=keep_open,
            only_first=True,
        )
        Lines(way.warm_file).add(told)
        note(f"warm, the first verdict after {told['first_verdict_s']} s")


def complaints(answer: Path) -> list[str]:
    """Return the complaints of the command; nothing where it was killed."""
    try:
        return [one_line(each) for each in json.loads(answer.read_text("utf-8"))["complaints"]]
    except (ValueError, KeyError):
        return []


def outcome(way: Way) -> dict[str, Any]:
    """Return the results so far on one number of GPUs."""
    file = way.files.verdicts
    judged = read_judged(file) if file.exists() else []
    names = {each.verdict.problem_id: each.problem for each in judged}
    runs, warm = lines_of(way.runs_file), lines_of(way.warm_file)
    first = runs[0] if runs and runs[0].get("is_cold") else {}
    wall_s = sum(each["wall_s"] for each in runs)
    verdicts = [each.verdict for each in judged]
    return {
        "is_complete": way.has_ended,
        "num_runs": len(runs),
        "wall_s": wall_s,
        "num_verdicts": len(verdicts),
        "verdicts_a_second": len(verdicts) / wall_s if wall_s else None,
        "verdicts_a_second_judging": _rate_judging(runs, len(verdicts)),
        "first_verdict_s": first.get("first_verdict_s"),
        "first_verdict_warm_s": warm[-1]["first_verdict_s"] if warm else None,
        "busy": runs[0].get("busy") if len(runs) == 1 else None,
        "busy_judging": runs[0].get("busy_judging") if len(runs) == 1 else None,
        **null_test(verdicts),
        "seconds": seconds(verdicts),
        "refused": runs[-1]["complaints"] if runs else [],
        "verdicts": [
            {
                "problem": names[each.problem_id],
                "status": each.status.value,
                "reason": None if each.reason is None else one_line(each.reason),
                "certified": each.speedup,
                "estimate": each.measurement and round(each.measurement.speedup, 4),
                "reference_us": each.measurement and round(each.measurement.reference_us, 1),
                "judge_s": round(each.judge_s, 2),
            }
            for each in verdicts
        ],
    }


def _rate_judging(runs: Sequence[Mapping[str, Any]], num_verdicts: int) -> float | None:
    """Return verdicts a second after the first one, of a run in one piece."""
    if len(runs) != 1 or runs[0]["first_verdict_s"] is None:
        return None
    left_s = runs[0]["wall_s"] - runs[0]["first_verdict_s"]
    return (num_verdicts - 1) / left_s if left_s > 0 else None


def null_test(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Return the numbers of references that are timed, not correct, and called faster or slower."""
    speedups = [each.speedup for each in verdicts if each.speedup is not None]
    return {
        "num_timed": len(speedups),
        "num_not_correct": sum(not each.is_successful for each in verdicts),
        "num_faster": sum(each > 1.0 for each in speedups),
        "num_slower": sum(each < 1.0 for each in speedups),
    }


def times_faster(ways: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the wall time on one GPU over that on the most; None before both have ended."""
    most = max(ways, key=int)
    if "1" not in ways or most == "1" or not all(ways[each]["is_complete"] for each in ("1", most)):
        return None
    return ways["1"]["wall_s"] / ways[most]["wall_s"]


def figures_of(ways: Mapping[str, Mapping[str, Any]], ratio: float | None) -> list[Figure]:
    """Return the figures of the first number of GPUs, and the speedup of the last one."""
    one = next(iter(ways.values()))
    timed = one["num_timed"]
    slower = 100 * one["num_slower"] / timed if timed else None
    busy = None if one["busy"] is None else 100 * one["busy"]
    return [
        Figure("verdicts a second", one["verdicts_a_second"], 1.5),
        Figure("verdicts a second, after the first", one["verdicts_a_second_judging"], 1.5),
        Figure("first verdict, cold", one["first_verdict_s"], 30, is_most=True, unit="s"),
        Figure("first verdict, warm", one["first_verdict_warm_s"], 10, is_most=True, unit="s"),
        Figure("GPU busy while there is work", busy, 70, unit="%"),
        Figure(f"called faster, of {timed}", one["num_faster"] if timed else None, 0, is_most=True),
        Figure(f"called slower, of {timed}", slower, 1, is_most=True, unit="%"),
        Figure("two GPUs over one", ratio, 1.8),
    ]


def show(ways: Mapping[str, Mapping[str, Any]], ratio: float | None) -> None:
    """Print a line for each number of GPUs, why references were refused, and the figures."""
    rows = [
        [
            name,
            str(way["num_verdicts"]),
            str(way["num_not_correct"]),
            f"{way['wall_s']:.1f}",
            _number(way["verdicts_a_second"]),
            _number(way["first_verdict_s"]),
            _number(way["first_verdict_warm_s"]),
            _number(way["busy"]),
            _number(way["busy_judging"]),
            "" if way["is_complete"] else "PARTIAL: run again to go on",
        ]
        for name, way in ways.items()
    ]
    print_table(
        [
            "GPUs",
            "verdicts",
            "not correct",
            "s",
            "a second",
            "first",
            "warm",
            "busy",
            "judging",
            "",
        ],
        rows,
    )
    for name, way in ways.items():
        if way["seconds"]:
            print(f"{name}: a verdict takes {in_words(way['seconds'])}")
        for what, count in Counter(map(_kind, way["refused"])).most_common(10):
            print(f"{name}: {count} x {what}")
    figures.show(figures_of(ways, ratio))


def _kind(complaint: str) -> str:
    """Return a complaint without its problem and its numbers."""
    return kind_of_refusal(complaint.partition(": ")[2] or complaint)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
