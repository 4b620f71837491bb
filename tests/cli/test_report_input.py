"""Verdicts in files, as the report wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudal1 import protocols
from cudal1.cli.report_input import best, read_inputs
from cudal1.cli.verdict_file import Judged
from cudal1.errors import ConfigError
from cudal1.measurement import Baseline, Measurement
from cudal1.protocol import PrecisionClass
from cudal1.report import tables, tallies
from cudal1.verdict import Correctness, Status, Verdict

CPU, CUDA = protocols.load("cpu"), protocols.load("cuda")


def _judged(
    candidate: str, certified: float | None = 2.0, *, number: int = 1, protocol_id: str = CPU.id,
    kind: str = "cpu", **changes: Any,
) -> Judged:  # fmt: skip
    measured = None if certified is None else Measurement(
        baseline=Baseline.EAGER, speedup=certified, certified=certified, alpha=0.01, num_quads=9,
        bucket_medians=(certified,) * 7, bucket_variance=0.0, is_stable=True, reference_us=100.0,
        candidate_us=100.0 / certified,
    )  # fmt: skip
    verdict = Verdict(
        problem_id=f"{kind}{number}", candidate_id=candidate, protocol_id=protocol_id,
        device_kind=kind, device_id="d", judged_at="now", judge_s=1.0, measurement=measured,
        status=Status.CORRECT if certified else Status.CRASHED,
        reason=None if certified else "no",
        correctness=Correctness(num_inputs=9, stage=3, precision=PrecisionClass.STRICT),
    )  # fmt: skip
    return Judged.model_validate({
        "suite": "own", "revision": "r", "level": 1, "problem_id": number,
        "problem": f"own/L1/{number:02d}_x", "verdict": verdict, **changes,
    })  # fmt: skip


def _file(path: Path, *lines: Judged) -> Path:
    path.write_text("".join(line.model_dump_json() + "\n" for line in lines))
    return path


def test_the_best_of_each_problem_counts_and_a_problem_without_success_is_none(
    tmp_path: Path,
) -> None:
    path = _file(
        tmp_path / "a.jsonl", _judged("a"), _judged("b", 3.0), _judged("c", None, number=2)
    )
    (given,) = read_inputs([path], None, None)
    assert best(given) == {"own/L1/01_x": 3.0, "own/L1/02_x": None}


def test_references_are_the_null_test_and_no_candidates(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.jsonl", _judged("a", None), _judged("r", 1.0, is_reference=True))
    (given,) = read_inputs([path], None, None)
    assert best(given) == {"own/L1/01_x": None}
    assert given.null_test["certified"].to_list() == [1.0]
    names = [row.cells[0] for row in tables.speedup_table(given).rows]
    assert names == ["All", "Null test", "Paper"]


def test_with_a_suite_whoever_has_no_verdict_has_failed(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.jsonl", _judged("a"))
    (given,) = read_inputs([path], "shipped", None)
    found = best(given)
    assert found.pop("own/L1/01_x") == 2.0
    assert len(found) > 40
    assert not any(found.values())


def test_several_files_are_several_authors(tmp_path: Path) -> None:
    paths = [
        _file(tmp_path / "one.verdicts.jsonl", _judged("a")),
        _file(tmp_path / "two.jsonl", _judged("a"), _judged("b", None)),
    ]
    (given,) = read_inputs(paths, None, None)
    authors = [row.cells[:4] for row in tallies.provider_table(given).rows]
    assert authors == [
        ("one", "1", "1 (100 %)", "1 (100 %)"), ("two", "2", "2 (100 %)", "1 (50 %)"),
    ]  # fmt: skip


def test_devices_and_protocols_are_kept_apart(tmp_path: Path) -> None:
    other = CPU.model_copy(update={"seed": 7})
    path = _file(
        tmp_path / "a.jsonl", _judged("a"), _judged("a", 4.0, kind="GPU"),
        _judged("a", 5.0, protocol_id=other.id),
    )  # fmt: skip
    found = read_inputs([path], None, other)
    assert sorted(value for given in found for value in best(given).values()) == [2.0, 4.0, 5.0]


def test_successes_that_were_only_checked_count_as_no_speedup(tmp_path: Path) -> None:
    checked = _judged("a", protocol_id=CUDA.checks_only().id)
    untimed = checked.model_copy(
        update={"verdict": checked.verdict.model_copy(update={"measurement": None})}
    )
    (given,) = read_inputs([_file(tmp_path / "a.jsonl", untimed)], None, None)
    assert given.provenance.protocol == CUDA
    assert best(given) == {"own/L1/01_x": None}
    (row,) = [r for r in tallies.outcome_table(given).rows if r.cells[0] == "all"]
    assert row.cells == ("all", "1", "1")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "a.jsonl: holds no verdicts"),
        ([_judged("a", protocol_id="elsewhere")], "under protocol elsewhere"),
        ([_judged("a"), _judged("b", revision="q")], "different revisions of one suite"),
    ],
)
def test_what_cannot_be_counted_is_said(tmp_path: Path, lines: list[Judged], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_inputs([_file(tmp_path / "a.jsonl", *lines)], None, None)


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"level": 1}\n')
    with pytest.raises(ConfigError, match=r"a\.jsonl:1: not a verdict"):
        read_inputs([tmp_path / "a.jsonl"], None, None)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_inputs([tmp_path / "none.jsonl"], None, None)


def test_a_file_that_is_still_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.jsonl", _judged("a"), _judged("b", 3.0))
    path.write_bytes(path.read_bytes()[:-20])
    (given,) = read_inputs([path], None, None)
    assert best(given) == {"own/L1/01_x": 2.0}
