"""Tests of what `check` says of a proof, with a judge that makes its verdicts up."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.errors import DeviceError, StoreError, SuiteError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.judgement import Judgement
from cudal1.kept import Kept, Proof, in_words
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.record import content_id
from cudal1.services import keeping
from cudal1.services.checking import slowdown
from cudal1.services.checking.check import check
from cudal1.services.checking.finding import WORSE, Finding, State, exit_code
from cudal1.services.checking.update import update
from cudal1.settings import protocols
from cudal1.suite.loader import load_file
from cudal1.verdict import Status
from tests.cli.conftest import FASTER, PROBLEM
from tests.services.kept_verdicts import judgement_of, verdict_of

SPREAD = 0.012


class Judge:
    """A judge that gives verdicts of such speedups, two measurements each."""

    def __init__(
        self, speedups: Iterator[float], *, statuses: Sequence[Status] = (Status.CORRECT,)
    ) -> None:
        self.speedups = speedups
        self.statuses = list(statuses)
        self.num_asked = 0

    def __call__(self, problem: Problem, candidate: Candidate, _: EvalProtocol) -> Judgement:
        status = self.statuses[min(self.num_asked, len(self.statuses) - 1)]
        self.num_asked += 1
        both = [next(self.speedups), next(self.speedups)]
        verdict = verdict_of(candidate, speedup=both[0], status=status)
        return judgement_of(verdict, both if status is Status.CORRECT else ())


def noisy(speedup: float, seed: int = 0) -> Iterator[float]:
    rng = random.Random(seed)
    while True:
        yield speedup * (1 + rng.gauss(0, SPREAD))


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudal1.services.checking.check.share_of_others", lambda: 0.01)


@pytest.fixture
def device() -> Device:
    return find_device(DeviceClass.CPU)


@pytest.fixture
def record(tmp_path: Path, device: Device) -> Path:
    """Write a record with a full baseline of 1.5."""
    (tmp_path / "model.py").write_text(PROBLEM)
    problem = load_file(tmp_path / "model.py", device_class=DeviceClass.CPU)
    candidate = Candidate(problem_id=problem.id, source=FASTER)
    sessions = noisy(1.5, seed=99)
    proof = keeping.proof_of(
        problem,
        "model.py",
        verdict_of(candidate),
        device=device,
        protocol=protocols.load("cpu"),
        inputs=("float32[64, 64]",),
        sessions=[next(sessions) for _ in range(slowdown.BASELINE)],
    )
    kept = Kept(
        version="model.faster.py",
        candidate_source_id=content_id(FASTER),
        replaces=None,
        proofs=(proof,),
    )
    return records.write(tmp_path, "model", FASTER, kept, header=["made by a test", "1.5x"])


Change = Callable[[Proof], Proof]


def changed(record: Path, **changes: object) -> None:
    kept = records.read(record)
    proofs = tuple(proof.model_copy(update=changes) for proof in kept.proofs)
    records.write_record(record, kept.model_copy(update={"proofs": proofs}))


def finding(record: Path, judge: Judge, device: Device) -> Finding:
    kept = records.read(record)
    return check(record, kept, kept.proofs[0], judge, device)


def test_a_version_as_fast_as_proven_is_fine_after_one_verdict(
    record: Path, device: Device
) -> None:
    judge = Judge(iter([1.5, 1.5]))
    found = finding(record, judge, device)
    assert found.state is State.FINE
    assert judge.num_asked == 1
    assert found.p_value is None
    assert found.speedup == pytest.approx(1.5)
    assert found.detects is not None
    assert found.detects < 0.06
    assert exit_code([found]) == 0


def test_a_slowdown_of_five_per_cent_is_found_and_unchanged_code_raises_no_alarm(
    record: Path, device: Device
) -> None:
    planted = [finding(record, Judge(noisy(1.5 / 1.05, seed)), device) for seed in range(60)]
    unchanged = [finding(record, Judge(noisy(1.5, seed)), device) for seed in range(200)]
    assert sum(found.state is State.SLOWER for found in planted) >= 57
    assert all(found.state is State.FINE for found in unchanged)
    assert exit_code(planted) == 1


def test_a_busy_machine_raises_no_alarm(
    record: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudal1.services.checking.check.share_of_others", lambda: 0.6)
    found = finding(record, Judge(noisy(1.4)), device)
    assert found.state is State.UNJUDGED
    assert "seems slower" in found.reason
    assert "other programs used 60% of the machine" in found.reason
    assert finding(record, Judge(noisy(1.5)), device).state is State.FINE


def test_two_series_must_say_slower(record: Path, device: Device) -> None:
    one = iter([1.4] * slowdown.SERIES + [1.5, 1.5])
    judge = Judge(one)
    found = finding(record, judge, device)
    assert found.state is State.FINE
    assert judge.num_asked == slowdown.SERIES // 2 + 1
    assert found.p_value is not None
    assert found.p_value <= slowdown.ALPHA


def test_a_wrong_version_is_wrong(record: Path, device: Device) -> None:
    found = finding(record, Judge(noisy(1.5), statuses=[Status.INCORRECT]), device)
    assert found.state is State.WRONG
    assert found.reason == "incorrect: an output differs"
    later = Judge(noisy(1.3), statuses=[Status.CORRECT, Status.CRASHED])
    found = finding(record, later, device)
    assert found.state is State.WRONG
    assert found.reason == "correct only sometimes: crashed: an output differs"
    assert exit_code([found]) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.py", "the reference model.py was changed since"),
        ("model.faster.py", "the version model.faster.py was edited since"),
    ],
)
def test_files_that_are_not_those_that_were_proven_are_said_to_be_changed(
    name: str, said: str, record: Path, device: Device
) -> None:
    file = record.with_name(name)
    file.write_text(file.read_text() + "\n# a word\n")
    found = finding(record, Judge(noisy(1.2)), device)
    assert found.state is State.CHANGED
    assert said in found.reason
    wrong = finding(record, Judge(noisy(1.2), statuses=[Status.INCORRECT]), device)
    assert wrong.state is State.WRONG
    assert said in wrong.reason
    assert exit_code([found]) == 1


def test_a_proof_of_other_code_is_said_to_be_changed(record: Path, device: Device) -> None:
    verdict = records.read(record).proofs[0].verdict.model_copy(update={"candidate_id": "0" * 16})
    changed(record, verdict=verdict)
    found = finding(record, Judge(noisy(1.5)), device)
    assert found.state is State.CHANGED
    assert "of another version" in found.reason


def test_a_header_of_comments_is_no_edit_and_code_before_the_mark_is(
    record: Path, device: Device
) -> None:
    file = record.with_name("model.faster.py")
    text = file.read_text()
    file.write_text("# one more comment\n" + text)
    assert finding(record, Judge(noisy(1.5)), device).state is State.FINE
    file.write_text("import os\n" + text)
    assert finding(record, Judge(noisy(1.5)), device).state is State.CHANGED


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device_class": DeviceClass.CUDA}, "proven on cuda; this check is on cpu"),
        ({"versions": {"processor": "Another One"}}, "proven on Another One; here is"),
    ],
)
def test_proofs_of_other_devices_are_not_judged_here(
    changes: dict[str, object], said: str, record: Path, device: Device
) -> None:
    changed(record, **changes)
    judge = Judge(noisy(1.0))
    found = finding(record, judge, device)
    assert found.state is State.ELSEWHERE
    assert said in found.reason
    assert judge.num_asked == 0
    assert exit_code([found]) == 2  # nothing was judged
    fine = found.model_copy(update={"state": State.FINE})
    assert exit_code([found, fine]) == 0


def test_a_refusal_is_a_finding_and_a_busy_device_ends_the_check(
    record: Path, device: Device
) -> None:
    def refuses(*_: object) -> Judgement:
        raise SuiteError("its reference does not end")

    kept = records.read(record)
    found = check(record, kept, kept.proofs[0], refuses, device)
    assert found.state is State.UNJUDGED
    assert found.reason == "its reference does not end"
    assert exit_code([found, found.model_copy(update={"state": State.FINE})]) == 2
    record.with_name("model.py").unlink()
    gone = check(record, kept, kept.proofs[0], refuses, device)
    assert gone.state is State.UNJUDGED
    assert "model.py" in gone.reason

    def is_busy(*_: object) -> Judgement:
        raise DeviceError("process 7 judges on it")

    record.with_name("model.py").write_text(PROBLEM)
    with pytest.raises(DeviceError):
        check(record, kept, kept.proofs[0], is_busy, device)


def test_a_record_with_few_sessions_is_compared_by_bounds(record: Path, device: Device) -> None:
    changed(record, sessions=())
    found = finding(record, Judge(noisy(1.5 / 1.05)), device)
    assert found.state is State.FINE
    assert "too few sessions" in found.reason
    judge = Judge(noisy(1.2))
    found = finding(record, judge, device)
    assert found.state is State.SLOWER
    assert judge.num_asked == 2
    assert "by the bounds of two verdicts" in found.reason


def test_changed_libraries_are_named(record: Path, device: Device) -> None:
    versions = {**keeping.versions_of(device), "torch": "1.0"}
    changed(record, versions=versions)
    found = finding(record, Judge(noisy(1.5)), device)
    assert found.changed_versions == (f"torch 1.0 → {keeping.versions_of(device)['torch']}",)


def test_update_writes_todays_verdict_and_a_full_baseline(record: Path, device: Device) -> None:
    slower = Judge(noisy(1.3))
    found = finding(record, slower, device)
    assert found.state is State.SLOWER
    (line,) = update(record, [found], slower, device)
    assert "proven anew" in line
    proof = records.read(record).proofs[0]
    assert len(proof.sessions) == slowdown.BASELINE
    assert finding(record, Judge(noisy(1.3, seed=5)), device).state is State.FINE


def test_update_keeps_a_record_of_a_wrong_or_slow_version(record: Path, device: Device) -> None:
    before = record.read_bytes()
    for judge in (
        Judge(noisy(1.5), statuses=[Status.INCORRECT]),
        Judge(noisy(1.0)),
        Judge(noisy(1.5), statuses=[Status.CORRECT, Status.INCORRECT]),
    ):
        found = finding(record, judge, device)
        (line,) = update(record, [found], judge, device)
        assert "left as it was" in line
        assert record.read_bytes() == before


def test_update_after_an_edit_takes_out_proofs_of_the_version_before(
    record: Path, device: Device
) -> None:
    kept = records.read(record)
    elsewhere = kept.proofs[0].model_copy(update={"device_class": DeviceClass.CUDA})
    both = {"proofs": (*kept.proofs, elsewhere)}
    records.write_record(record, kept.model_copy(update=both))
    file = record.with_name("model.faster.py")
    file.write_text(FASTER + "\n# edited\n")
    kept, judge = records.read(record), Judge(noisy(1.5))
    found = [check(record, kept, proof, judge, device) for proof in kept.proofs]
    assert [each.state for each in found] == [State.CHANGED, State.ELSEWHERE]
    lines = list(update(record, found, judge, device))
    assert "proven anew" in lines[0]
    assert "taken out" in lines[1]
    (proof,) = records.read(record).proofs
    assert proof.device_class is DeviceClass.CPU
    assert finding(record, Judge(noisy(1.5)), device).state is State.FINE


def test_a_verdict_without_a_gain_makes_no_proof(record: Path, device: Device) -> None:
    problem = load_file(record.with_name("model.py"), device_class=DeviceClass.CPU)
    candidate = Candidate(problem_id=problem.id, source=FASTER)
    for verdict in (
        verdict_of(candidate, speedup=1.0),
        verdict_of(candidate, status=Status.INCORRECT),
    ):
        with pytest.raises(ValueError, match="without a certified gain"):
            keeping.proof_of(
                problem,
                "model.py",
                verdict,
                device=device,
                protocol=protocols.load("cpu"),
                inputs=(),
            )


def test_sessions_take_the_shorter_of_two_bursts(record: Path) -> None:
    verdict = records.read(record).proofs[0].verdict
    assert keeping.session_speedups(judgement_of(verdict, (1.5, 1.25))) == pytest.approx(
        (1.5, 1.25)
    )
    assert keeping.session_speedups(judgement_of(verdict, ())) == ()


def test_arguments_are_told_in_words() -> None:
    import torch

    values = (torch.zeros(8, 1024), 3, None, "sum", [torch.zeros(2, dtype=torch.int64)], {"k": 1.5})
    assert in_words(values) == (
        "float32[8, 1024]",
        "3",
        "None",
        "'sum'",
        "[int64[2]]",
        "{'k': 1.5}",
    )


def test_a_full_disk_leaves_the_old_record(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, kept = record.read_bytes(), records.read(record)

    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.os, "fsync", fails)
    with pytest.raises(StoreError, match=r"cannot be written \(No space left on device\)"):
        records.write_record(record, kept)
    assert record.read_bytes() == before
    assert [path.name for path in record.parent.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no record of a kept version"),
        ("[]", "no record of a kept version"),
        ('{"version": "x"}', "candidate_source_id: Field required"),
        ("\x00", "no record of a kept version"),
    ],
)
def test_a_file_that_is_no_record_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.faster.json"
    path.write_text(text)
    with pytest.raises(StoreError) as error:
        records.read(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_absolute_paths_in_a_record_are_refused(record: Path) -> None:
    kept = records.read(record).model_copy(update={"version": "/etc/passwd"})
    with pytest.raises(SuiteError, match="relative to the record's folder"):
        records.read_version(record, kept)


def test_records_are_found_in_folders_but_not_in_hidden_ones(record: Path) -> None:
    for name in ("inner", ".hidden", "node_modules"):
        (record.parent / name).mkdir()
        (record.parent / name / "other.faster.json").write_text("{}")
    found = records.find(record.parent)
    assert [path.relative_to(record.parent).as_posix() for path in found] == [
        "model.faster.json",
        "inner/other.faster.json",
    ]
    assert records.find(record) == [record]


def test_states_that_are_worse_are_those_a_person_looks_at() -> None:
    assert {State.SLOWER, State.WRONG, State.CHANGED} == WORSE
