"""Judge the whole corpus for real: cheats must be stopped, honest candidates must pass.

python -m benchmarks.judging.corpus [--device cpu|cuda] [--only inline_cpp itself] [--null 3]

Three figures belong together, since none means much alone: cheats stopped, honest twins passed, and
references that gained against themselves. The files and their expected verdicts are those of
tests/harness; problems for a CPU bring those for the fake asynchronous device along. Extensions are
compiled first, one at a time, by the builder that a file of candidates has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import chosen, options, save
from cudal1.candidate import Candidate
from cudal1.harness.builds.builder import Builder
from cudal1.harness.device.device import find_device
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem, resize
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Verdict
from tests.harness.conftest import problem_named
from tests.harness.corpus import CUDA_SIZES, Case, cases, class_of, is_lawful

GROUPS = ("exploits", "honest")
NUM_TRIES = {"exploits": 3, "honest": 4}
"""Most tries of each file. A cheat that may be judged correct is tried until it gains; an honest
twin is tried until its verdict is as it should be, as in the tests."""


@dataclass(frozen=True)
class Found:
    """One file of the corpus, or one reference as a candidate for itself, and its verdicts."""

    name: str
    group: str
    problem: str
    accepted: frozenset[str]
    verdicts: tuple[Verdict, ...]
    missing: str | None = None
    """The layer or tool that this machine lacks to try it."""

    @property
    def is_as_it_should_be(self) -> bool:
        """Return whether its verdicts have accepted classes: an honest file's last one, or all."""
        decisive = self.verdicts[-1:] if self.group == "honest" else self.verdicts
        return bool(decisive) and {class_of(verdict) for verdict in decisive} <= self.accepted


class Court:
    """A pool for each device and precision class, opened when it is first needed."""

    def __init__(self, protocol: EvalProtocol, builder: Builder, stack: ExitStack) -> None:
        self._protocol = protocol
        self._builder = builder
        self._stack = stack
        self._pool: Pool | None = None
        self._place: tuple[object, object] | None = None

    def judge(self, case: Case | None, problem: Problem, source: str) -> Verdict:
        """Return the verdict on a source; one pool is open at a time, since they share a core."""
        protocol = self._protocol
        if case is not None:
            protocol = protocol.model_copy(update={"precision": case.precision})
        place = (problem.device_class, protocol.precision)
        if self._pool is None or place != self._place:
            self._stack.close()
            self._pool = self._stack.enter_context(
                Pool(find_device(problem.device_class), protocol, wait_s=60)
            )
            self._place = place
        candidate = Candidate(problem_id=problem.id, source=source)
        is_to_build = self._builder.takes(candidate)
        not_built = self._builder.begin(problem, candidate).result() if is_to_build else None
        return self._pool.judge(
            problem, candidate, built=self._builder.content(candidate), not_built=not_built
        ).verdict


def main() -> None:
    """Judge, print a table, and write results/corpus_DEVICE.json."""
    parser = options("corpus", __doc__)
    names = {case.name for group in GROUPS for case in (*cases(group), *cases(f"{group}_cuda"))}
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=sorted(names), help="of these files alone"
    )
    parser.add_argument("--null", type=int, default=3, help="judgements of each reference")
    given = parser.parse_args()
    device, protocol = chosen(given)
    suffix = "_cuda" if given.device == "cuda" else ""
    found: list[Found] = []

    def add(one: Found) -> None:
        found.append(one)
        print(row(one), flush=True)
        save(
            f"corpus_{given.device}",
            given.out,
            device,
            protocol,
            sandbox=layers,
            summary=summary(found),
            verdicts=[as_record(one) for one in found],
        )

    with (
        tempfile.TemporaryDirectory() as folder,
        Builder([device], protocol, Path(folder), num_workers=1) as builder,
        ExitStack() as stack,
    ):
        court = Court(protocol, builder, stack)
        layers = layers_of(court, given.device)
        for group in GROUPS:
            wanted = [case for case in cases(group + suffix) if case.name in (given.only or names)]
            for case in sorted(wanted, key=lambda c: (c.precision, c.problem, c.name)):
                add(try_case(court, case, group, given.device, layers))
        for name in dict.fromkeys(one.problem for one in found):
            add(try_null(court, name, given.device, given.null))
    print("\n".join(summary(found)))


def problem_of(name: str, device: str) -> Problem:
    """Return a problem of the tests; on a GPU with the sizes for one."""
    problem = problem_named(name)
    if device == "cpu":
        return problem
    source = resize(problem.source, CUDA_SIZES[name], where=name)
    return problem.model_copy(update={"device_class": DeviceClass.CUDA, "source": source})


def layers_of(court: Court, device: str) -> tuple[str, ...]:
    """Return the layers around workers on this machine."""
    return court.judge(None, problem_of("silu", device), "class ModelNew: pass").sandbox


def try_case(court: Court, case: Case, group: str, device: str, layers: tuple[str, ...]) -> Found:
    """Judge one file, more than once where luck has a part in it."""
    missing, problem = case.missing(layers), problem_of(case.problem, device)
    accepted, verdicts = frozenset(case.accepted), list[Verdict]()
    is_honest = group == "honest"
    tries = 0 if missing else NUM_TRIES[group] if is_honest or "no_gain" in accepted else 1
    while len(verdicts) < tries:
        verdicts.append(court.judge(case, problem, case.source))
        if case.lawful is not None and class_of(verdicts[-1]) == "gain":
            honest = court.judge(case.lawful, problem, case.lawful.source)
            accepted |= {"gain"} if is_lawful(verdicts[-1], honest) else frozenset[str]()
        if (class_of(verdicts[-1]) in accepted) is is_honest:
            break
    return Found(case.name, group, case.problem, accepted, tuple(verdicts), missing)


def try_null(court: Court, name: str, device: str, tries: int) -> Found:
    """Judge a reference against itself; every gain is false, and the first one is kept."""
    problem, verdicts = problem_of(name, device), list[Verdict]()
    while len(verdicts) < tries and not (verdicts and class_of(verdicts[-1]) != "no_gain"):
        verdicts.append(court.judge(None, problem, problem.null_source))
    return Found("itself", "null", name, frozenset({"no_gain"}), tuple(verdicts))


def row(one: Found) -> str:
    """Return one line of the table."""
    mark = "  " if one.is_as_it_should_be else "- " if one.missing else "! "
    last = one.verdicts[-1] if one.verdicts else None
    measured = last.measurement if last else None
    said = (
        f"not tried: no {one.missing}"
        if last is None
        else f"{measured.speedup:.2f}, certified {measured.certified:.2f}"
        if measured
        else last.reason or ""
    )
    found = class_of(last) if last else ""
    return f"{mark}{one.group:<9}{one.name:<22}{one.problem:<16}{found:<10}{said[:70]}"


def summary(found: Iterable[Found]) -> list[str]:
    """Return the three figures."""
    lines: list[str] = []
    words = {
        "exploits": "cheats stopped",
        "honest": "honest twins passed",
        "null": "references without a gain against themselves",
    }
    for group, what in words.items():
        tried = [one for one in found if one.group == group and not one.missing]
        good = sum(one.is_as_it_should_be for one in tried)
        lines.append(f"{what}: {good}/{len(tried)}")
    return lines


def as_record(one: Found) -> dict[str, object]:
    """Return the file and its verdicts as JSON data."""
    return {
        "name": one.name,
        "group": one.group,
        "problem": one.problem,
        "missing": one.missing,
        "accepted": sorted(one.accepted),
        "as_it_should_be": one.is_as_it_should_be,
        "verdicts": [
            {
                "class": class_of(verdict),
                "reason": verdict.reason,
                "judge_s": verdict.judge_s,
                "flags": [f"{flag.source}: {flag.kind}" for flag in verdict.flags],
                "measurement": verdict.measurement and verdict.measurement.model_dump(mode="json"),
            }
            for verdict in one.verdicts
        ],
    }


if __name__ == "__main__":
    main()
