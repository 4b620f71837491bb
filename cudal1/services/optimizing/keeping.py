"""Measure a search's best a second time, and keep it beside the module.

A search picks the largest of many measurements, and the largest is partly luck. So the choice is
measured again, in fresh processes, and only this second verdict is stated. Nothing is kept that it
does not prove faster. Further sessions of fresh processes are what `cudal1 check` compares with.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from cudal1 import processes
from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness.device.device import Device
from cudal1.kept import MARK, Kept
from cudal1.ledger import Ledger
from cudal1.origin import origin_of
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from cudal1.record import content_id
from cudal1.services.checking.sessions import IncorrectAgain
from cudal1.services.judging import VerdictSource
from cudal1.services.keeping import proof_of
from cudal1.services.optimizing.places import Places, written
from cudal1.services.optimizing.state import Find
from cudal1.verdict import Verdict

Sessions = Callable[[Problem, Candidate], tuple[float, ...]]
"""A function that measures a version's sessions. It raises IncorrectAgain where one of its verdicts
is not correct, and SuiteError where it cannot judge."""

MOST_TRIED = 3
"""Number of a search's best finds that are measured again until one is proven."""
FORMAT_LIMIT_S = 30.0
LINE_LENGTH = 100


@dataclass(frozen=True)
class ProvenFind:
    """A find that a second measurement proved faster."""

    find: Find
    """The version as it is kept, with its second verdict."""
    sessions: tuple[float, ...]
    """Speedups of further measurements in fresh processes; empty where they could not be made."""


def proven(
    ledger: Ledger,
    source: Callable[[], AbstractContextManager[VerdictSource]],
    sessions_of: Sessions,
    problem: Problem,
    gains: Sequence[Find],
    say: Callable[[str], None],
    *,
    better_than: float,
) -> ProvenFind | None:
    """Return the first of the best finds that further measurements prove; None if none is.

    The second verdict is on the formatted source, and comes from processes of its own. The sessions
    come after it, from further processes: the second verdict was chosen for its gain.

    Args:
        ledger: open, in the search's stage.
        source: opens a source of verdicts that has judged nothing yet.
        sessions_of: measures the sessions of a version, once no source of verdicts is open.
        problem: the module.
        gains: finds with a certified gain, the largest first.
        say: told what is done.
        better_than: certified speedup of the version that is kept already; 1 without one.
    """
    for find in gains[:MOST_TRIED]:
        say(f"measuring {find.author}'s version, {find.speedup:.2f}x, a second time")
        candidate = finished(find)
        ledger.add_candidate(candidate)
        with source() as judge:
            (verdict,) = judge.judge_all([(problem, candidate)])
        speedup = verdict.speedup or 0.0
        if speedup <= 1:
            continue
        if speedup <= better_than:
            return None
        began = time.monotonic()
        try:
            sessions = sessions_of(problem, candidate)
        except IncorrectAgain as again:
            say(f"{find.author}'s version is left out: {again}")
            continue
        except SuiteError as error:
            say(f"note: no sessions: {error}; cudal1 check --update measures them")
            sessions = ()
        if sessions:
            say(
                f"{len(sessions)} sessions for cudal1 check, {min(sessions):.3f}x to "
                f"{max(sessions):.3f}x, took {time.monotonic() - began:.0f} s"
            )
        return ProvenFind(Find(candidate, verdict, find.author), sessions)
    return None


def finished(find: Find) -> Candidate:
    """Return a find as it is kept: formatted, below a line that names its author."""
    line = f"# Written by {find.author}, kept by cudal1 optimize.\n"
    source = line + formatted(find.candidate.source)
    return Candidate(problem_id=find.candidate.problem_id, source=source)


def formatted(source: str) -> str:
    """Return a source as ruff formats it; unchanged where ruff cannot.

    Threat: the source is hostile. Ruff reads it and runs nothing of it.
    """
    from ruff import find_ruff_bin

    try:
        done = subprocess.run(
            [find_ruff_bin(), "format", "--isolated", f"--line-length={LINE_LENGTH}", "-"],
            input=source.encode("utf-8", "surrogatepass"),
            capture_output=True,
            env=processes.sparse(),
            cwd="/",
            timeout=FORMAT_LIMIT_S,
            check=True,
        )
        return done.stdout.decode("utf-8")
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return source


def keep(
    places: Places,
    problem: Problem,
    found: ProvenFind,
    protocol: EvalProtocol,
    *,
    device: Device,
    inputs: Sequence[str],
    invariants: Sequence[str],
    again: str,
) -> Kept:
    """Write a proven find and its record beside the module; return the record.

    Args:
        places: where they go.
        problem: the module.
        found: the version, with its second verdict and sessions.
        protocol: the verdict's protocol.
        device: the device that it was judged on.
        inputs: the arguments of a call in words.
        invariants: what holds of the inputs in every draw.
        again: the command that judges the version again.

    Raises:
        StoreError: a file cannot be written.
    """
    find = found.find
    proof = proof_of(
        problem,
        places.module.name,
        find.verdict,
        device=device,
        protocol=protocol,
        inputs=inputs,
        sessions=found.sessions,
        invariants=invariants,
    )
    origin = origin_of(problem.source)
    kept = Kept(
        version=places.version.name,
        candidate_source_id=content_id(find.candidate.source),
        replaces=None if origin is None else origin.replaces,
        replaces_source_id=None if origin is None else origin.source_id,
        proofs=(proof,),
    )
    places.record.unlink(missing_ok=True)  # a kill between the files leaves no false record
    head = header(places, find.verdict, proof.versions, again)
    written(places.version, f"{head}{MARK}\n{find.candidate.source}")
    written(places.record, kept.model_dump_json(indent=1) + "\n")
    return kept


def header(places: Places, verdict: Verdict, versions: dict[str, str], again: str) -> str:
    """Return the comment lines above a kept version: what is proven, where, and how to check it."""
    measured, seen = verdict.measurement, verdict.correctness
    assert measured is not None
    assert seen is not None
    certain = "" if measured.alpha is None else f" at {100 * (1 - measured.alpha):g} % confidence"
    lines = [
        f"A proven faster version of {places.module.name}.",
        f"Verdict: correct on {seen.num_inputs} inputs within {seen.precision}; certified "
        f"{measured.certified:.2f}x faster{certain}, estimated {measured.speedup:.3f}x: "
        f"{measured.reference_us:.4g} us to {measured.candidate_us:.4g} us a call.",
        f"Device: {verdict.device_kind}. Protocol: {verdict.protocol_id}. "
        f"Judged: {verdict.judged_at}.",
        f"Versions: {', '.join(f'{name} {known}' for name, known in versions.items())}.",
        f"To judge it again: {again}",
    ]
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)
