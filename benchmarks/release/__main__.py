"""Judge the kernels that the authors of CUDA-L1 released, and say what is true of them.

python -m benchmarks.release --checkout PATH --out DIR [--kernelbench PATH]

PATH is a checkout of https://github.com/deepreinforce-ai/CUDA-L1, of which nothing is copied into
this repository. Of every row of a GPU kind's file that has code, these questions are asked:

* `judge`: what does cudal1 say of it, under the contract of KernelBench, in the class `half`? What
  is correct as constructed is the headline. What is not, and agrees with its reference in
  evaluation mode, is judged in that mode, too, since the authors' own script compares outputs in
  it; it is counted beside the others.
* `warm`: with caches as they are, after how many seconds does the first verdict come?
* `classes`: is what is correct in `half` correct in `strict`, and if not, in `tf32`?
* `check`: do its outputs agree with its reference's in a plain process, without our harness?
* `peer`: what does KernelBench's own evaluator say, and how long does it take? It needs
  --kernelbench, a checkout of https://github.com/ScalingIntelligence/KernelBench.

Their file of references as CUDA graphs is asked the same, but for `warm` and `peer`. In `check` and
`peer` released code runs unguarded, as under KernelBench: use a machine that holds nothing.

Classes are asked for in this order because it is cheap. A wider class has wider bounds, so what is
correct in `strict` is correct in all, and what is wrong in `half` is wrong in all. So all rows are
judged once, in `half`, and only there are they timed, beside a reference that may compute in TF32,
too.

The verdict's own note of the tightest bounds that it met does not answer for `strict`. There,
products may not be computed in TF32, in neither module, so a candidate that leaves its products to
PyTorch is as exact as its reference. What is correct is therefore checked again, without timing, in
`strict`, and what is wrong there in `tf32`.

It begins nothing after --minutes and ends what runs within a minute more. Answers are in DIR, row
by row, and the same command goes on there. `release_KIND.json` and `release_KIND.md` hold the
results so far: names of rows, numbers and reasons, no code. A short table of figures ends it.
`python -m benchmarks.release.page` makes a page of docs of the result.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from benchmarks.common import machine, note
from benchmarks.release import figures, summary
from benchmarks.release.checking import Checking, check, read_line
from benchmarks.release.evaluating import Evaluating, evaluate, known_evaluations
from benchmarks.release.findings import NARROWER, Finding, wants_eval
from benchmarks.release.judging import Audit, judge, protocol_of, time_first
from benchmarks.release.rows import Entry, Which, choose, chosen_places, read, revision
from benchmarks.release.state import State
from benchmarks.release.tables import markdown
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.harness.device.device import Device, find_device
from cudal1.problem import DeviceClass
from cudal1.protocol import HARNESS_VERSION, Contract, Mode, PrecisionClass

QUESTIONS = ("judge", "warm", "classes", "check", "peer")
GRACE_S = 45.0
"""Seconds after --minutes in which running work may end by itself; longer than `command.STOP_S`."""


class OverError(Exception):
    """The time of this run is over, and something still ran."""


@dataclass(frozen=True)
class Plan:
    """The questions of an audit, and their subject."""

    given: argparse.Namespace
    state: State
    device: Device
    entries: dict[Which, list[Entry]]
    questions: Sequence[str]
    deadline: float

    def audit(
        self,
        which: Which,
        mode: Mode = Mode.CONSTRUCTED,
        precision: PrecisionClass = PrecisionClass.HALF,
    ) -> Audit:
        """Return how sources are judged in a mode and a class."""
        given = self.given
        protocol = protocol_of(
            given.protocol, contract=Contract(given.contract), mode=mode, precision=precision
        )
        return Audit(self.state, which, protocol, self.device.device_class)

    def checking(self, which: Which) -> Checking:
        """Return how sources are checked."""
        given = self.given
        return Checking(
            self.state,
            which,
            self.device.device_class,
            beside=given.beside,
            limit_s=given.row_limit_s,
            threads=given.threads,
        )


def main() -> None:
    """Go on with the audit, print its tables, and write its result."""
    given = _options().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"ended; {given.out} has what is done"))
    try:
        _run(given)
    except CudaL1Error as error:
        sys.exit(str(error))


def _options() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m benchmarks.release",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--checkout", type=Path, required=True, help="of the authors' repository")
    add("--out", type=Path, required=True, help="folder of what is done so far, and of the result")
    add("--work", type=Path, help="folder of sources, builds and caches; default: OUT/work")
    add("--kind", default="h100", help="whose file: h100, a100, … (h100)")
    add("--sources", default="kernels,cuda_graph", help=f"of {', '.join(Which)}")
    add("--rows", help="only these, such as 1:1,2:14")
    add("--levels", type=int, nargs="+", default=[], help="only these")
    add("--only", choices=QUESTIONS, nargs="+", default=[], help="ask only this")
    add("--kernelbench", type=Path, help="a checkout of KernelBench, for `peer`")
    add("--limit-s", type=float, default=math.inf, help="seconds for `peer` in all; then a bound")
    add("--minutes", type=float, default=8.5, help="begin nothing after these")
    add("--device", choices=["cpu", "cuda"], default="cuda")
    add("--protocol", help="a name or a YAML file; default: the device's")
    add("--contract", choices=list(Contract), default=Contract.KERNELBENCH)
    add("--beside", type=int, default=6, help="rows that are checked at a time")
    add("--row-limit-s", type=float, default=300.0, help="seconds of a row's check")
    add("--threads", type=int, default=2, help="of PyTorch, in each check")
    return parser


def _run(given: argparse.Namespace) -> None:
    seconds = 60 * given.minutes
    deadline = time.monotonic() + seconds
    device = find_device(DeviceClass(given.device))
    given.protocol = given.protocol or given.device
    out: Path = given.out.resolve()
    state = State(out, (given.work or out / "work").resolve())
    plan = Plan(given, state, device, _entries(given), _questions(given), deadline)
    subject = {
        "device": device.kind,
        "kind": given.kind,
        "contract": str(given.contract),
        "release": revision(given.checkout, given.kind),
    }
    with state.held(subject) as lock:
        try:
            with _ending_after(seconds + GRACE_S):
                for which in plan.entries:
                    _ask(plan, which, keep_open=lock)
        except OverError:
            note("time is over: what still ran is asked again by the next run")
        finally:
            found = collect(plan, subject)
            _save(plan, found)
    print(markdown(found))
    if Which.KERNELS in plan.entries:
        figures.show(figures.of_release(found["sources"][Which.KERNELS]))


@contextmanager
def _ending_after(seconds: float) -> Iterator[None]:
    """Raise `OverError` in the block once `seconds` are over."""

    def end(*_: object) -> None:
        raise OverError

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _entries(given: argparse.Namespace) -> dict[Which, list[Entry]]:
    places = set() if given.rows is None else chosen_places(given.rows)
    found: dict[Which, list[Entry]] = {}
    for name in given.sources.split(","):
        if name not in set(Which):
            raise ConfigError(f"--sources {name!r}: must be of {', '.join(Which)}")
        entries = read(given.checkout, given.kind, Which(name))
        found[Which(name)] = choose(entries, places=places, levels=given.levels)
    return found


def _questions(given: argparse.Namespace) -> Sequence[str]:
    if "peer" in given.only and given.kernelbench is None:
        raise ConfigError("--only peer: give --kernelbench, a checkout of KernelBench")
    return given.only or QUESTIONS


def _ask(plan: Plan, which: Which, *, keep_open: int) -> None:
    """Ask all questions of some sources, as far as there is time."""
    entries, deadline, questions = plan.entries[which], plan.deadline, plan.questions

    def verdicts(audit: Audit, some: Sequence[Entry]) -> None:
        judge(audit, some, deadline=deadline, keep_open=keep_open)

    if "judge" in questions:
        verdicts(plan.audit(which), entries)
    # first verdicts and the ratio of wall times are measured on the kernels alone
    if "warm" in questions and which is Which.KERNELS:
        time_first(plan.audit(which), entries, deadline=deadline, keep_open=keep_open)
    if "check" in questions:
        check(plan.checking(which), entries, deadline=deadline)
    if "judge" in questions:
        again = [finding.entry for finding in findings(plan, which) if wants_eval(finding)]
        verdicts(plan.audit(which, Mode.EVAL), again)
    if "classes" in questions:
        for each in NARROWER:
            verdicts(plan.audit(which, precision=each), _of_unknown_class(plan, which))
    if "peer" in questions and plan.given.kernelbench and which is Which.KERNELS:
        given, device_class = plan.given, plan.device.device_class
        evaluating = Evaluating(plan.state, which, device_class, given.kernelbench, given.limit_s)
        evaluate(evaluating, entries, deadline=deadline)


def _of_unknown_class(plan: Plan, which: Which) -> list[Entry]:
    """Return what is correct in the loosest class and in no narrower one, as far as is known."""
    return [f.entry for f in findings(plan, which) if f.is_correct and f.precision is None]


def findings(plan: Plan, which: Which) -> list[Finding]:
    """Return the results of each row so far."""
    entries = plan.entries[which]
    constructed, in_eval = plan.audit(which), plan.audit(which, Mode.EVAL)
    verdicts, refused = constructed.verdicts(), constructed.refused()
    eval_verdicts = in_eval.verdicts()
    narrower = {each: plan.audit(which, precision=each).successes(entries) for each in NARROWER}
    checks, evaluations = plan.checking(which).known(), known_evaluations(plan.state, which)
    return [
        Finding(
            entry,
            verdicts.get((entry.problem_id, entry.candidate_id)),
            refused.get(entry.problem_id),
            eval_verdicts.get((entry.problem_id, entry.candidate_id)),
            read_line(checks[entry.place]) if entry.place in checks else {},
            evaluations.get(entry.place),
            {each: told[entry.place] for each, told in narrower.items() if entry.place in told},
        )
        for entry in entries
    ]


def collect(plan: Plan, subject: Mapping[str, str]) -> dict[str, Any]:
    """Return all results so far, ready to be shown and saved."""
    audits = {which: plan.audit(which) for which in plan.entries}
    protocol = next(iter(audits.values())).protocol
    sources: dict[str, Any] = {}
    for which, audit in audits.items():
        known = findings(plan, which)
        narrower = [plan.audit(which, precision=each) for each in NARROWER]
        sources[which.value] = {
            **summary.summarise(known),
            "walls": summary.walls(
                audit.lines(audit.runs_file),
                audit.lines(audit.warm_file),
                known,
                plan.checking(which).known().values(),
                [run for each in narrower for run in each.lines(each.runs_file)],
            ),
            "rows": [finding.as_dict() for finding in known if finding.entry.source],
        }
    return {
        "benchmark": "release",
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(plan.device),
        "kind": subject["kind"],
        "revision": subject["release"],
        "contract": subject["contract"],
        "harness_version": HARNESS_VERSION,
        "protocol_id": protocol.id,
        "protocol": protocol.model_dump(mode="json"),
        "sources": sources,
    }


def _save(plan: Plan, found: Mapping[str, Any]) -> None:
    file = plan.state.folder / f"release_{found['kind']}.json"
    text = json.dumps(found, indent=1, allow_nan=False)
    for place in (str(plan.state.work), str(plan.state.folder), sys.prefix):
        text = text.replace(place, ".")  # the state's place is private
    file.write_text(text + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(markdown(found), encoding="utf-8")
    note(f"{file}: what is known so far")


if __name__ == "__main__":
    main()
