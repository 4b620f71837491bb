"""Rows of the report's frames, from verdicts in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.report import inputs

PROVIDER = "file"

Row = dict[str, object]
Load = Callable[[DeviceClass], list[Problem]]


def problems(judged: Sequence[Judged], load: Load | None, device_kind: str) -> list[Row]:
    """Return the problems that have a verdict, and those of a suite that have none.

    Raises:
        ConfigError: verdicts are on two versions of a problem, or on another one than the suite's.
    """
    ids: dict[tuple[str, int, int], str] = {}
    rows: list[Row] = []
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


def _others(suite: Sequence[Problem], ids: dict[tuple[str, int, int], str]) -> list[Row]:
    rows: list[Row] = []
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


def _problem(id_: str, suite: str, level: int, number: int, name: str) -> Row:
    return {
        "problem_id": id_,
        "suite": suite,
        "level": level,
        "number": number,
        "name": name,
        "split": Split.TRAIN.value,
        "source": "",
        "admitted": True,
        "rejection": None,
    }


def answer(file: str, judged: Judged) -> Row:
    """Return a row of `completions`: the file is the stage."""
    return {
        "completion_id": f"{file}/{judged.verdict.candidate_id}",
        "stage": file,
        "provider": PROVIDER,
        "problem_id": judged.verdict.problem_id,
        "candidate_id": judged.verdict.candidate_id,
    }


def where(judged: Judged) -> Row:
    """Return the columns that say what a verdict is about."""
    verdict = judged.verdict
    return {
        "problem_id": verdict.problem_id,
        "candidate_id": verdict.candidate_id,
        "device_kind": verdict.device_kind,
        "protocol_id": verdict.protocol_id,
    }


def verdict_row(judged: Judged) -> Row:
    """Return a row of `verdicts` or of `null_test`."""
    verdict, measured = judged.verdict, judged.verdict.measurement
    exact = verdict.correctness.precision if verdict.correctness is not None else None
    row = where(judged) | {
        "status": verdict.status.value,
        "reason": verdict.reason,
        "judge_s": verdict.judge_s,
        "compiling_s": verdict.phases.compiling_s if verdict.phases is not None else None,
        "precision": None if exact is None else exact.value,
    }
    if verdict.properties is not None:
        row |= dict(verdict.properties)
    if measured is None:
        return row
    names = set(inputs.VERDICTS.names()) & set(type(measured).model_fields)
    return row | {name: getattr(measured, name) for name in names}


def baseline_row(judged: Judged) -> Row:
    """Return a row of `baselines`."""
    measured = judged.verdict.measurement
    return verdict_row(judged) | {
        "baseline": judged.baseline,
        "at_most": None if measured is None else measured.at_most,
    }


def over_baselines(judged: Judged, at_most: Mapping[str, Mapping[str, float]]) -> Row:
    """Return a success's speedup over each baseline of its problem, like the ledger's view.

    Args:
        judged: any verdict.
        at_most: the baselines' speedups over eager, read upwards, by the problem's id and their
            names.
    """
    mine = judged.verdict
    if not mine.is_successful or mine.measurement is None:
        return {}
    certified = mine.measurement.certified
    return {
        "over_baselines": [
            {"baseline": name, "certified_over": certified / has}
            for name, has in at_most.get(mine.problem_id, {}).items()
        ]
    }


def at_most(baselines: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Return correct baselines' speedups over eager, read upwards, by problem and name."""
    found: dict[str, dict[str, float]] = {}
    for each in baselines:
        measured = each.verdict.measurement
        if each.verdict.is_successful and measured is not None and each.baseline is not None:
            found.setdefault(each.verdict.problem_id, {})[each.baseline.value] = measured.at_most
    return found


def frame(rows: list[Row], schema: pl.Schema) -> pl.DataFrame:
    """Return rows as a frame; values that a row lacks are null."""
    whole = [{name: row.get(name) for name in schema.names()} for row in rows]
    return pl.DataFrame(whole, schema=schema, orient="row")
