"""Verdicts in files as the report wants them: by device and protocol, best of each problem."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from cudal1 import protocols
from cudal1.baseline import Baseline
from cudal1.cli.verdict_file import Judged, read_judged
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol, PrecisionClass
from cudal1.report import Provenance, ReportInput, inputs
from cudal1.verdict import Status

FAST_P = (0.5, 1.0, 1.5, 2.0)
ENDING = ".verdicts"
"""Of the names that `judge --candidates` gives its files."""
PROVIDER = "file"

Load = Callable[[DeviceClass], list[Problem]]
Line = tuple[str, Judged]
"""Whose verdict, by the file's name, and the verdict."""


@dataclass(frozen=True)
class Group:
    """Verdicts of one kind of device under one protocol."""

    suites: str
    """With their revisions."""
    device_kind: str
    protocol: EvalProtocol
    protocol_name: str
    given: ReportInput
    num_untimed: int
    """Candidates that are correct and were never timed."""

    @property
    def is_timed(self) -> bool:
        """Whether any candidate was, or any reference."""
        frames = self.given.verdicts, self.given.null_test, self.given.baselines
        return any(frame["speedup"].is_not_null().any() for frame in frames)


def read_groups(
    files: Sequence[Path], load: Load | None, protocol: EvalProtocol | None
) -> tuple[list[Group], list[str]]:
    """The verdicts of files, by kind of device and protocol, and a line on what is left out.

    Where files disagree on a candidate the first one counts.

    Args:
        files: that `judge --candidates` has written.
        load: the suite's problems, which count as failed where they have no verdict.
        protocol: that verdicts may be of, beside those that ship.

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


def common(groups: Sequence[Group]) -> tuple[dict[str, list[float | None]], int]:
    """By device, the best of each problem over the candidates that all have judged; how many."""
    is_known = (pl.col("status") != Status.CORRECT.value) | pl.col("certified").is_not_null()
    frames = [group.given.verdicts.filter(is_known) for group in groups]
    pairs = [set(frame.select("problem_id", "candidate_id").iter_rows()) for frame in frames]
    shared = set[tuple[str, str]].intersection(*pairs)
    problems = sorted({problem for problem, _ in shared})
    found: dict[str, list[float | None]] = {}
    for group, frame in zip(groups, frames, strict=True):
        best: dict[str, float | None] = dict.fromkeys(problems)
        for problem, candidate, certified in frame.select(
            "problem_id", "candidate_id", "certified"
        ).iter_rows():
            if (problem, candidate) in shared and certified is not None:
                best[problem] = max(certified, best[problem] or 0.0)
        found[group.device_kind] = list(best.values())
    return found, len(shared)


def _known(protocol: EvalProtocol | None) -> dict[str, tuple[str, EvalProtocol]]:
    """Names and protocols by the ids of their verdicts, timed or only checked."""
    found = [(name, protocols.load(name)) for name in protocols.names()]
    if protocol is not None:
        found.append(("its own", protocol))
    known: dict[str, tuple[str, EvalProtocol]] = {}
    for name, each in found:
        for precision in PrecisionClass:
            changed = each.model_copy(update={"precision": precision})
            is_changed = precision is not each.precision
            for id_ in (changed.id, changed.checks_only().id):
                known.setdefault(id_, (f"{name} ({precision})" if is_changed else name, changed))
    return known


def _named(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Files with names for people, as short as tells them apart."""
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
        {**_where(judged), "kind": flag.kind, "source": flag.source, "evidence": flag.evidence}
        for judged in verdicts
        for flag in judged.verdict.flags
    ]
    given = ReportInput(
        provenance=Provenance(
            title=suites, device_kind=device_kind, protocol=protocol, fast_p=FAST_P,
            generated_at=datetime.now(UTC).isoformat(timespec="seconds"), git_revision="",
        ),
        problems=_frame(_problems(verdicts, load, device_kind), inputs.PROBLEMS),
        completions=_frame([_answer(*line) for line in asked.values()], inputs.COMPLETIONS),
        candidates=_frame([], inputs.CANDIDATES),
        verdicts=_frame([_verdict(each) for each in verdicts], inputs.VERDICTS),
        flags=_frame(flags, inputs.FLAGS),
        null_test=_frame([_verdict(each) for each in null_test], inputs.NULL_TEST),
        baselines=_frame([_baseline(each) for each in others], inputs.BASELINES),
        transferred=_frame([], inputs.TRANSFERRED),
        samples=_frame([], inputs.SAMPLES),
        steps=_frame([], inputs.STEPS),
    )  # fmt: skip
    return Group(suites, device_kind, protocol, name, given, len(untimed))


def _first(judged: Iterable[Judged]) -> list[Judged]:
    """One verdict on each candidate: the first, but for a success that another one has timed."""
    found: dict[tuple[str, str], Judged] = {}
    for each in judged:
        known = found.setdefault(_key(each), each).verdict
        if known.is_successful and known.speedup is None and each.verdict.speedup is not None:
            found[_key(each)] = each
    return list(found.values())


def _key(judged: Judged) -> tuple[str, str]:
    return judged.verdict.problem_id, judged.verdict.candidate_id


def _problems(
    judged: Sequence[Judged], load: Load | None, device_kind: str
) -> list[dict[str, object]]:
    """Those that have a verdict, and those of a suite that have none.

    Raises:
        ConfigError: verdicts are on two versions of a problem, or on another one than the suite's.
    """
    ids: dict[tuple[str, int, int], str] = {}
    rows: list[dict[str, object]] = []
    for each in judged:
        key, id_ = (each.suite, each.level, each.problem_id), each.verdict.problem_id
        if ids.setdefault(key, id_) != id_:
            raise ConfigError(
                f"{each.problem}: verdicts on two versions of it cannot be counted together; judge "
                "again with another --out"
            )
        name = each.problem.rpartition("/")[2].partition("_")[2]
        rows.append(_problem(id_, *key, name))
    if load is not None:
        is_cpu = device_kind == DeviceClass.CPU.value
        rows += _others(load(DeviceClass.CPU if is_cpu else DeviceClass.CUDA), ids)
    return list({(row["suite"], row["level"], row["number"]): row for row in rows}.values())


def _others(
    suite: Sequence[Problem], ids: dict[tuple[str, int, int], str]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    others = {name for name, _, _ in ids} - {problem.suite for problem in suite}
    if others:
        raise ConfigError(f"--suite: another one; the verdicts are on {', '.join(sorted(others))}")
    for problem in suite:
        if ids.get(_place(problem), problem.id) != problem.id:
            raise ConfigError(
                f"--suite: its {problem.key} is not what was judged; give the revision, and the "
                "--sizes, that were"
            )
        rows.append(_problem(problem.id, *_place(problem), problem.name))
    return rows


def _place(problem: Problem) -> tuple[str, int, int]:
    return problem.suite, problem.level, problem.number


def _problem(id_: str, suite: str, level: int, number: int, name: str) -> dict[str, object]:
    return {
        "problem_id": id_, "suite": suite, "level": level, "number": number, "name": name,
        "split": Split.TRAIN.value, "source": "", "admitted": True, "rejection": None,
    }  # fmt: skip


def _answer(file: str, judged: Judged) -> dict[str, object]:
    return {
        "completion_id": f"{file}/{judged.verdict.candidate_id}", "stage": file,
        "provider": PROVIDER, "problem_id": judged.verdict.problem_id,
        "candidate_id": judged.verdict.candidate_id,
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
    if measured is None:
        return row
    names = set(inputs.VERDICTS.names()) & set(type(measured).model_fields)
    return row | {name: getattr(measured, name) for name in names}


def _baseline(judged: Judged) -> dict[str, object]:
    measured = judged.verdict.measurement
    return _verdict(judged) | {
        "baseline": judged.baseline, "at_most": None if measured is None else measured.at_most,
    }  # fmt: skip


def _frame(rows: list[dict[str, object]], schema: pl.Schema) -> pl.DataFrame:
    """What a row does not say is null."""
    whole = [{name: row.get(name) for name in schema.names()} for row in rows]
    return pl.DataFrame(whole, schema=schema, orient="row")
