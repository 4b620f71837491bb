"""Tests of reading verdicts from files for the report."""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.cli.verdicts.report_input import Group, common, read_groups
from cudal1.cli.verdicts.report_rows import Load
from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.measurement import Measurement
from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.protocol import Contract, Mode, PrecisionClass
from cudal1.report import facts
from cudal1.report.tables import devices, speedups, tallies
from cudal1.report.tables.cells import AS_ONE
from cudal1.report.tables.properties import MEANINGS, property_table
from cudal1.settings import protocols
from cudal1.suite.loader import load_suite
from cudal1.verdict import Correctness, Properties, Status, Verdict

CPU = protocols.load("cpu")


def _judged(
    candidate: str,
    certified: float | None = 2.0,
    *,
    number: int = 1,
    protocol_id: str = CPU.id,
    kind: str = "cpu",
    **changes: Any,
) -> Judged:
    measured = (
        None
        if certified is None
        else Measurement(
            baseline=Baseline.EAGER,
            speedup=certified,
            certified=certified,
            alpha=0.01,
            num_quads=9,
            bucket_medians=(certified,) * 7,
            bucket_variance=0.0,
            is_stable=True,
            reference_us=100.0,
            candidate_us=100.0 / certified,
        )
    )
    verdict = Verdict(
        problem_id=f"p{number}",
        candidate_id=candidate,
        protocol_id=protocol_id,
        device_kind=kind,
        device_id="d",
        judged_at="now",
        judge_s=1.0,
        measurement=measured,
        status=Status.CORRECT if certified else Status.CRASHED,
        reason=None if certified else "no",
        correctness=Correctness(num_inputs=9, stage=3, precision=PrecisionClass.STRICT),
    )
    return Judged.model_validate(
        {
            "suite": "own",
            "revision": "r",
            "level": 1,
            "problem_id": number,
            "problem": f"own/L1/{number:02d}_x",
            "verdict": verdict,
            **changes,
        }
    )


def _file(path: Path, *lines: Judged) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(line.model_dump_json() + "\n" for line in lines))
    return path


def _group(*paths: Path) -> Group:
    (group,), complaints = read_groups(paths, None, None)
    assert not complaints
    return group


def _best(group: Group) -> dict[str, float | None]:
    return {facts.problem_key(row): row["certified"] for row in facts.best(group.given).to_dicts()}


def _untimed(candidate: str) -> Judged:
    checked = _judged(candidate, protocol_id=CPU.checks_only().id)
    verdict = checked.verdict.model_copy(update={"measurement": None})
    return checked.model_copy(update={"verdict": verdict})


def test_the_best_of_each_problem_counts_and_a_problem_without_success_is_null(
    tmp_path: Path,
) -> None:
    path = _file(
        tmp_path / "a.jsonl", _judged("a"), _judged("b", 3.0), _judged("c", None, number=2)
    )
    assert _best(_group(path)) == {"own/L1/01_x": 3.0, "own/L1/02_x": None}


def test_references_count_in_the_null_test_and_not_as_candidates_or_problems(
    tmp_path: Path,
) -> None:
    path = _file(
        tmp_path / "a.jsonl",
        _judged("a", None),
        _judged("r", 1.0, baseline=Baseline.EAGER),
        _judged("s", 1.0, number=2, baseline=Baseline.EAGER),
    )
    group = _group(path)
    assert _best(group) == {"own/L1/01_x": None}
    assert group.given.null_test["certified"].to_list() == [1.0, 1.0]
    names = [row.cells[0] for row in speedups.speedup_table(group.given, AS_ONE).rows]
    assert names == ["All", "Null test", "Paper"]


def test_a_speedup_over_a_baseline_equals_the_ledger_s(tmp_path: Path) -> None:
    """The view `over_baselines` implements the same rule."""
    own, compiled = _judged("a", 3.0), _judged("k", 2.0, baseline=Baseline.COMPILE)
    raised = compiled.verdict.measurement.model_copy(update={"upper": 2.4})  # pyright: ignore[reportOptionalMemberAccess] - it has one
    compiled = compiled.model_copy(
        update={"verdict": compiled.verdict.model_copy(update={"measurement": raised})}
    )
    given = _group(_file(tmp_path / "a.jsonl", own, compiled)).given
    problem = Problem(
        suite="own",
        level=1,
        number=1,
        name="x",
        split=Split.TRAIN,
        device_class=DeviceClass.CPU,
        revision="r",
        source="class Model: ...",
    )
    with Ledger.open(tmp_path / "data") as ledger:
        ledger.begin("filter")
        ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        for judged in (own, compiled):
            candidate = Candidate(problem_id=problem.id, source=judged.verdict.candidate_id)
            if judged.baseline is not None:
                ledger.add_baseline(candidate, judged.baseline)
            ids = {"problem_id": problem.id, "candidate_id": candidate.id}
            ledger.add_verdict(judged.verdict.model_copy(update=ids), [])
        kept = ledger.sql("select certified_over from over_baselines").to_series().to_list()
    over = facts.best_over(given, Baseline.COMPILE)["over"].to_list()
    assert over == kept == [pytest.approx(3.0 / 2.4)]


def test_several_files_are_told_apart_and_the_first_counts(tmp_path: Path) -> None:
    paths = [
        _file(tmp_path / "x" / "one.verdicts.jsonl", _judged("a", 3.0)),
        _file(tmp_path / "y" / "one.verdicts.jsonl", _judged("a", None), _judged("b", None)),
        _file(tmp_path / "policy.jsonl", _judged("b", None)),
    ]
    group = _group(*paths, paths[0])
    assert _best(group) == {"own/L1/01_x": 3.0}
    files = [row.cells[:4] for row in tallies.file_table(group.given).rows]
    assert sorted(files) == sorted(
        [(str(paths[0]), "1", "1", "0"), (str(paths[1]), "2", "1", "1"), ("policy", "1", "0", "1")]
    )


def test_devices_and_protocols_are_kept_apart(tmp_path: Path) -> None:
    other = CPU.model_copy(update={"seed": 7})
    path = _file(
        tmp_path / "a.jsonl",
        _judged("a"),
        _judged("a", 4.0, kind="GPU"),
        _judged("a", 5.0, protocol_id=other.id),
    )
    groups, _ = read_groups([path], None, other)
    assert sorted(value or 0 for group in groups for value in _best(group).values()) == [2, 4, 5]
    assert {group.protocol_name for group in groups} == {"cpu", "its own"}


def test_devices_are_compared_on_the_same_candidates(tmp_path: Path) -> None:
    path = _file(
        tmp_path / "a.jsonl",
        _judged("a"),
        _judged("b", 9.0),
        _judged("c", None, number=2),
        _judged("a", 4.0, kind="GPU"),
        _judged("c", 3.0, number=2, kind="GPU"),
        _judged("d", 3.0, number=3, kind="GPU"),
    )
    groups, _ = read_groups([path], None, None)
    found, count = common(groups)
    best = {each.provenance.device_kind: facts.best(each)["certified"].to_list() for each in found}
    assert (best, count) == ({"GPU": [4.0, 3.0], "cpu": [2.0, None]}, 2)


def test_devices_are_compared_over_the_baselines_and_null_tests_of_the_same_problems(
    tmp_path: Path,
) -> None:
    path = _file(
        tmp_path / "a.jsonl",
        _judged("a"),
        _judged("a", 4.0, kind="GPU"),
        _judged("d", 3.0, number=2, kind="GPU"),
        _judged("k", 2.0, kind="GPU", baseline=Baseline.COMPILE),
        _judged("l", 9.0, number=2, kind="GPU", baseline=Baseline.COMPILE),
        _judged("r", 1.0, kind="GPU", baseline=Baseline.EAGER),
        _judged("s", 9.0, number=2, kind="GPU", baseline=Baseline.EAGER),
    )
    table = devices.across_devices(*common(read_groups([path], None, None)[0]), AS_ONE)
    cells = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert table.columns[1:] == ("GPU", "cpu")
    assert cells["eager: Max"] == ("4.00×", "2.00×")
    assert cells["compile: Max"] == ("2.00×", "–")
    assert cells["Null test: Max"] == ("1.00×", "–")


def test_an_untimed_candidate_has_no_speedup_and_hides_no_other_s(tmp_path: Path) -> None:
    group = _group(_file(tmp_path / "a.jsonl", _untimed("a"), _judged("b", None)))
    assert (group.is_timed, group.num_untimed) == (False, 1)
    assert [row.cells[:3] for row in tallies.precision_table(group.given).rows] == [
        ("strict", "2", "1 (50 %)")
    ]
    timed = _file(tmp_path / "b.jsonl", _judged("a", 3.0))
    both = _group(tmp_path / "a.jsonl", timed)
    assert (both.num_untimed, _best(both)) == (0, {"own/L1/01_x": 3.0})


def test_verdicts_of_another_version_are_left_out_and_named(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.jsonl", _judged("a"), _judged("b", protocol_id="old"))
    (group,), complaints = read_groups([path], None, None)
    assert _best(group) == {"own/L1/01_x": 2.0}
    (said,) = complaints
    assert "a.jsonl: 1 verdicts under protocol old are left out" in said


def test_two_problems_with_identical_text_have_one_answer_each(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.jsonl", _judged("a"), _judged("b", problem_id=2))
    (row,) = tallies.file_table(_group(path).given).rows
    assert row.cells[1] == "2"


@pytest.mark.parametrize(
    ("lines", "suite", "said"),
    [
        ([], None, "a.jsonl: holds no verdicts"),
        ([_judged("a", protocol_id="elsewhere")], None, "under protocol elsewhere"),
        ([_judged("a"), _judged("b", number=2, problem_id=1)], None, "two versions of it"),
        ([_judged("a")], load_suite, "--suite: another one; the verdicts are on own"),
        ([_judged("a", suite="cudal1")], load_suite, "is not what was judged"),
    ],
)
def test_files_that_cannot_be_counted_together_are_refused(
    tmp_path: Path, lines: list[Judged], suite: Load | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read_groups([_file(tmp_path / "a.jsonl", *lines)], suite, None)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"level": 1}\n')
    for name, said in (("a.jsonl", r"a\.jsonl:1: not a verdict"), ("none.jsonl", "cannot be read")):
        with pytest.raises(ConfigError, match=said):
            read_groups([tmp_path / name], None, None)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_groups([tmp_path / ("x" * 300)], None, None)


def test_an_unfinished_file_is_read_up_to_its_last_line(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.jsonl", _judged("a"), _judged("b", 3.0))
    path.write_bytes(path.read_bytes()[:-20])
    assert _best(_group(path)) == {"own/L1/01_x": 2.0}


def test_properties_of_candidates_and_references_are_counted(tmp_path: Path) -> None:
    seen = Properties(follows_weights=False, fresh_outputs=True)
    candidate, reference = _judged("a"), _judged("r", 1.0, baseline=Baseline.EAGER)
    lines = [
        line.model_copy(update={"verdict": line.verdict.model_copy(update={"properties": seen})})
        for line in (candidate, reference)
    ]
    group = _group(_file(tmp_path / "mine.verdicts.jsonl", *lines))
    table = property_table(group.given)
    assert table.columns == ("Property", "mine", "Null test")
    cells = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert cells[MEANINGS["follows_weights"]] == ("0 / 1 / 0",) * 2
    assert cells[MEANINGS["deterministic"]] == ("0 / 0 / 1",) * 2


def test_verdicts_under_another_contract_and_mode_form_their_own_group(tmp_path: Path) -> None:
    changes = {"contract": Contract.DROP_IN, "mode": Mode.EVAL}
    other = CPU.model_copy(update=changes)
    file = _file(tmp_path / "a", _judged("a"), _judged("b", protocol_id=other.id))
    groups, complaints = read_groups([file], None, None)
    assert not complaints
    told = {group.protocol_name: group.protocol for group in groups}
    assert told == {"cpu": CPU, "cpu (drop_in, eval)": other}
