"""Turns verdicts in files into the report's input: by device and protocol, best of each problem."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import polars as pl

from cudal1.baseline import Baseline
from cudal1.cli.verdicts import report_rows as rows
from cudal1.cli.verdicts.report_rows import Load
from cudal1.cli.verdicts.verdict_file import Judged, read_judged
from cudal1.errors import ConfigError
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass
from cudal1.report import Provenance, ReportInput, inputs
from cudal1.settings import protocols
from cudal1.verdict import Status

FAST_P = (0.5, 1.0, 1.5, 2.0)
ENDING = ".verdicts"
"""Suffix of the names that `judge --candidates` gives its files."""

Line = tuple[str, Judged]
"""The source of a verdict, as the file's name, and the verdict."""


@dataclass(frozen=True)
class Group:
    """Verdicts of one kind of device under one protocol."""

    suites: str
    """Names of the suites with their revisions."""
    device_kind: str
    protocol: EvalProtocol
    protocol_name: str
    given: ReportInput
    num_untimed: int
    """Candidates that are correct and were never timed."""

    @property
    def is_timed(self) -> bool:
        """True if any candidate or reference was timed."""
        frames = self.given.verdicts, self.given.null_test, self.given.baselines
        return any(frame["speedup"].is_not_null().any() for frame in frames)


def read_groups(
    files: Sequence[Path], load: Load | None, protocol: EvalProtocol | None
) -> tuple[list[Group], list[str]]:
    """Return the verdicts of files by device kind and protocol, and a line on what is left out.

    Where files disagree on a candidate the first one counts.

    Args:
        files: files that `judge --candidates` has written.
        load: the suite's problems, which count as failed where they have no verdict.
        protocol: a protocol that verdicts may be of, beside those that ship.

    Raises:
        ConfigError: a file holds something else, or nothing that can be counted, or verdicts on
            other problems than the suite's.
        SuiteError: the suite cannot be read.
    """
    known = _known(protocol)
    groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
    unknown = Counter[tuple[Path, str]]()
    complaints: list[str] = []
    for name, path in _named(list({os.path.realpath(path): path for path in files}.values())):
        lines = read_judged(path)
        if not lines:
            complaints.append(f"{path}: holds no verdicts")
        for judged in lines:
            under = known.get(judged.verdict.protocol_id)
            if under is None:
                unknown[path, judged.verdict.protocol_id] += 1
            else:
                groups[judged.verdict.device_kind, under[1].id].append((name, judged))
    complaints += [
        f"{path}: {count} verdicts under protocol {id_} are left out: it is another version's, or "
        "name its file by --protocol or --params"
        for (path, id_), count in unknown.items()
    ]
    if not groups:
        raise ConfigError(complaints[0])
    found = [
        _group(lines, load, device_kind, *known[protocol_id])
        for (device_kind, protocol_id), lines in sorted(groups.items())
    ]
    return found, complaints


def common(groups: Sequence[Group]) -> tuple[list[ReportInput], int]:
    """Return inputs of the candidates that all groups have judged, and their number.

    Each input holds those candidates and their problems.
    """
    is_known = (pl.col("status") != Status.CORRECT.value) | pl.col("certified").is_not_null()
    ids = ["problem_id", "candidate_id"]
    shared = groups[0].given.verdicts.filter(is_known).select(ids)
    for group in groups[1:]:
        shared = shared.join(group.given.verdicts.filter(is_known), on=ids, how="semi")
    found = [
        group.given.model_copy(
            update={
                "verdicts": group.given.verdicts.join(shared, on=ids, how="semi"),
                **{
                    name: getattr(group.given, name).join(shared, on="problem_id", how="semi")
                    for name in ("problems", "null_test", "baselines")
                },
            }
        )
        for group in groups
    ]
    return found, shared.height


def _known(protocol: EvalProtocol | None) -> dict[str, tuple[str, EvalProtocol]]:
    """Map the ids of verdicts, timed or only checked, to names and protocols."""
    found = [(name, protocols.load(name)) for name in protocols.names()]
    if protocol is not None:
        found.append(("its own", protocol))
    known: dict[str, tuple[str, EvalProtocol]] = {}
    for name, each in found:
        for precision, contract, mode in product(PrecisionClass, Contract, Mode):
            changes = {"precision": precision, "contract": contract, "mode": mode}
            said = ", ".join(
                value for part, value in changes.items() if value is not getattr(each, part)
            )
            changed = each.model_copy(update=changes)
            for id_ in (changed.id, changed.checks_only().id):
                known.setdefault(id_, (f"{name} ({said})" if said else name, changed))
    return known


def _named(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the files with names for people, as short as tells them apart."""
    short = [path.stem.removesuffix(ENDING) for path in paths]
    times = Counter(short)
    return [
        (name if times[name] == 1 else str(path), path)
        for name, path in zip(short, paths, strict=True)
    ]


def _group(
    lines: Sequence[Line], load: Load | None, device_kind: str, name: str, protocol: EvalProtocol
) -> Group:
    asked = {
        (file, *_key(judged)): (file, judged) for file, judged in lines if judged.baseline is None
    }
    verdicts = _first(judged for _, judged in asked.values())
    references = _first(judged for _, judged in lines if judged.baseline is not None)
    null_test = [each for each in references if each.baseline is Baseline.EAGER]
    others = [each for each in references if each.baseline is not Baseline.EAGER]
    suites = ", ".join(sorted({f"{judged.suite} {judged.revision}" for _, judged in lines}))
    untimed = [v for v in verdicts if v.verdict.is_successful and v.verdict.speedup is None]
    flags = [
        {**rows.where(judged), "kind": flag.kind, "source": flag.source, "evidence": flag.evidence}
        for judged in verdicts
        for flag in judged.verdict.flags
    ]
    at_most = rows.at_most(others)
    given = ReportInput(
        provenance=Provenance(
            title=suites,
            device_kind=device_kind,
            protocol=protocol,
            fast_p=FAST_P,
            generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
            git_revision="",
        ),
        problems=rows.frame(rows.problems(verdicts, load, device_kind), inputs.PROBLEMS),
        completions=rows.frame([rows.answer(*line) for line in asked.values()], inputs.COMPLETIONS),
        candidates=rows.frame([], inputs.CANDIDATES),
        verdicts=rows.frame(
            [rows.verdict_row(each) | rows.over_baselines(each, at_most) for each in verdicts],
            inputs.VERDICTS,
        ),
        flags=rows.frame(flags, inputs.FLAGS),
        null_test=rows.frame([rows.verdict_row(each) for each in null_test], inputs.NULL_TEST),
        baselines=rows.frame([rows.baseline_row(each) for each in others], inputs.BASELINES),
        transferred=rows.frame([], inputs.TRANSFERRED),
        samples=rows.frame([], inputs.SAMPLES),
        steps=rows.frame([], inputs.STEPS),
    )
    return Group(suites, device_kind, protocol, name, given, len(untimed))


def _first(judged: Iterable[Judged]) -> list[Judged]:
    """Return one verdict on each candidate: the first, unless only another one was timed."""
    found: dict[tuple[str, str], Judged] = {}
    for each in judged:
        known = found.setdefault(_key(each), each).verdict
        if known.is_successful and known.speedup is None and each.verdict.speedup is not None:
            found[_key(each)] = each
    return list(found.values())


def _key(judged: Judged) -> tuple[str, str]:
    return judged.verdict.problem_id, judged.verdict.candidate_id
