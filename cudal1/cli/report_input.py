"""Verdicts in files as the report wants them: by device and protocol, best of each problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from cudal1 import protocols
from cudal1.cli.suites import load_named
from cudal1.cli.verdict_file import Judged, read_judged
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass, Split
from cudal1.protocol import EvalProtocol, PrecisionClass
from cudal1.report import Provenance, ReportInput, facts, inputs
from cudal1.verdict import Status

FAST_P = (0.5, 1.0, 1.5, 2.0)
ENDING = ".verdicts"
"""Of the names that `judge --candidates` gives its files."""

Line = tuple[str, Judged]
"""Whose verdict, by the file's name, and the verdict."""
Best = dict[str, float | None]
"""By a problem's key, the best certified speedup; None where no candidate succeeded."""


def read_inputs(
    files: Sequence[Path], suite: str | None, protocol: EvalProtocol | None
) -> list[ReportInput]:
    """One for each kind of device and protocol.

    Where files disagree on a candidate the first one counts.

    Args:
        files: that `judge --candidates` has written.
        suite: whose problems count as failed where they have no verdict.
        protocol: that verdicts may be of, beside those that ship.

    Raises:
        ConfigError: a file holds something else, or verdicts of a protocol that is not known.
        SuiteError: the suite cannot be read.
    """
    known = _known(protocol)
    groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for path in files:
        lines = read_judged(path)
        if not lines:
            raise ConfigError(f"{path}: holds no verdicts")
        for judged in lines:
            verdict = judged.verdict
            under = known.get(verdict.protocol_id)
            if under is None:
                raise ConfigError(
                    f"{path}: verdicts under protocol {verdict.protocol_id}, which none that ships "
                    "is in this version; give its file by --protocol"
                )
            name = path.stem.removesuffix(ENDING)
            groups[verdict.device_kind, under.id].append((name, judged))
    return [
        _input(lines, suite, device_kind, known[protocol_id])
        for (device_kind, protocol_id), lines in sorted(groups.items())
    ]


def best(given: ReportInput) -> Best:
    """The best of each problem."""
    rows = facts.best(given).to_dicts()
    return {facts.problem_key(row): row["certified"] for row in rows}


def _known(protocol: EvalProtocol | None) -> dict[str, EvalProtocol]:
    """By the ids of their verdicts, timed or only checked."""
    found = [protocols.load(name) for name in protocols.names()]
    found += [protocol] if protocol is not None else []
    changed = [
        each.model_copy(update={"precision": precision})
        for each in found
        for precision in PrecisionClass
    ]
    return {id_: each for each in changed for id_ in (each.checks_only().id, each.id)}


def _input(
    lines: Sequence[Line], suite: str | None, device_kind: str, protocol: EvalProtocol
) -> ReportInput:
    asked = {
        (name, *_key(judged)): (name, judged) for name, judged in lines if not judged.is_reference
    }
    verdicts = {_key(judged): judged for _, judged in reversed(asked.values())}
    references = {_key(judged): judged for _, judged in lines if judged.is_reference}
    revisions = sorted({f"{judged.suite} {judged.revision}" for _, judged in lines})
    if len(revisions) > len({judged.suite for _, judged in lines}):
        raise ConfigError(
            f"verdicts on different revisions of one suite ({', '.join(revisions)}) cannot be "
            "compared: report on each alone"
        )
    flags = [
        {**_where(judged), "kind": flag.kind, "source": flag.source, "evidence": flag.evidence}
        for judged in verdicts.values()
        for flag in judged.verdict.flags
    ]
    return ReportInput(
        provenance=Provenance(
            title=", ".join(revisions), device_kind=device_kind, protocol=protocol, fast_p=FAST_P,
            generated_at=datetime.now(UTC).isoformat(timespec="seconds"), git_revision="",
        ),
        problems=_frame(_problems(lines, suite, device_kind), inputs.PROBLEMS),
        completions=_frame([_answer(*line) for line in asked.values()], inputs.COMPLETIONS),
        candidates=_frame([], inputs.CANDIDATES),
        verdicts=_frame([_verdict(each) for each in verdicts.values()], inputs.VERDICTS),
        flags=_frame(flags, inputs.FLAGS),
        null_test=_frame([_verdict(each) for each in references.values()], inputs.NULL_TEST),
        transferred=_frame([], inputs.TRANSFERRED),
        samples=_frame([], inputs.SAMPLES),
        steps=_frame([], inputs.STEPS),
    )  # fmt: skip


def _key(judged: Judged) -> tuple[str, str]:
    return judged.verdict.problem_id, judged.verdict.candidate_id


def _problems(
    lines: Sequence[Line], suite: str | None, device_kind: str
) -> list[dict[str, object]]:
    """Those that have a verdict, and those of a suite that have none."""
    found: dict[tuple[str, int, int], dict[str, object]] = {}
    for _, judged in lines:
        name = judged.problem.rpartition("/")[2].partition("_")[2]
        found[judged.suite, judged.level, judged.problem_id] = _problem(
            judged.verdict.problem_id, judged.suite, judged.level, judged.problem_id, name
        )
    if suite is not None:
        is_cpu = device_kind == DeviceClass.CPU.value
        for problem in load_named(suite, DeviceClass.CPU if is_cpu else DeviceClass.CUDA):
            key = problem.suite, problem.level, problem.number
            found.setdefault(key, _problem(problem.id, *key, problem.name))
    return list(found.values())


def _problem(id_: str, suite: str, level: int, number: int, name: str) -> dict[str, object]:
    return {
        "problem_id": id_, "suite": suite, "level": level, "number": number, "name": name,
        "split": Split.TRAIN.value, "source": "", "admitted": True, "rejection": None,
    }  # fmt: skip


def _answer(name: str, judged: Judged) -> dict[str, object]:
    return {
        "completion_id": f"{name}/{judged.verdict.candidate_id}", "stage": name, "provider": name,
        "problem_id": judged.verdict.problem_id, "candidate_id": judged.verdict.candidate_id,
    }  # fmt: skip


def _where(judged: Judged) -> dict[str, object]:
    verdict = judged.verdict
    return {
        "problem_id": verdict.problem_id, "candidate_id": verdict.candidate_id,
        "device_kind": verdict.device_kind, "protocol_id": verdict.protocol_id,
    }  # fmt: skip


def _verdict(judged: Judged) -> dict[str, object]:
    verdict, measured = judged.verdict, judged.verdict.measurement
    exact = verdict.correctness.precision if verdict.correctness is not None else None
    row = _where(judged) | {
        "status": verdict.status.value, "reason": verdict.reason, "judge_s": verdict.judge_s,
        "precision": None if exact is None else exact.value,
    }  # fmt: skip
    if measured is None or verdict.status is not Status.CORRECT:
        return row
    names = set(inputs.VERDICTS.names()) & set(type(measured).model_fields)
    return row | {name: getattr(measured, name) for name in names}


def _frame(rows: list[dict[str, object]], schema: pl.Schema) -> pl.DataFrame:
    """What a row does not say is null."""
    whole = [{name: row.get(name) for name in schema.names()} for row in rows]
    return pl.DataFrame(whole, schema=schema, orient="row")
