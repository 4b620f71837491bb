"""Tests of winners judged again: on the named device only, if they fit; and of merged results."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError
from cudal1.harness.device.device import Device
from cudal1.ledger import Ledger
from cudal1.problem import Admission, DeviceClass
from cudal1.report.inputs import NULL_TEST
from cudal1.report.tables.devices import device_table
from cudal1.settings.params import Params
from tasks import products, report, transfer
from tasks.stage import Stage
from tests.tasks.played import TOO_LARGE, PlayedPool, judged, toys

pytestmark = pytest.mark.slow

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")
KINDS = {"cpu": "cpu", "nvidia-h200": "NVIDIA H200"}
"""The device's kind, by the device's name in params.yaml."""
PROBLEMS = toys("large", "rows", "softmax")
EACH_IS_FASTER = {"num_winners": 3, "mean_certified": 4.0, "null_test_max": 4.0}
"""Numbers of the stage where each candidate, references too, is judged four times as fast."""
WINNERS = [Candidate(problem_id=p.id, source="class ModelNew: ...\n") for p in PROBLEMS]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make the data of a run up to `filter`: its shards and products, no database."""
    data = tmp_path / "home"
    with Ledger.open(data) as ledger:
        ledger.begin("problems", run="r")
        for problem in PROBLEMS:
            ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        ledger.export()
        ledger.write_product("problems", data / "problems.parquet")
    with Ledger.open(data) as ledger:
        ledger.begin("filter", run="r")
        ledger.add_protocol(PARAMS.protocol)
        for winner in WINNERS:
            ledger.add_candidate(winner)
            ledger.add_verdict(judged(winner, PARAMS.protocol, "cpu").verdict, [])
        ledger.export()
    (data / ".ledger.duckdb").unlink()
    return data


def find_a_faster_one(home: Path, stage: str) -> Candidate:
    """Let a stage find a candidate for the first problem that is certified at nine times."""
    faster = Candidate(problem_id=PROBLEMS[0].id, source=f"class ModelNew: '{stage}'\n")
    verdict = judged(faster, PARAMS.protocol, "cpu").verdict
    assert verdict.measurement is not None
    said = verdict.measurement.model_copy(update={"certified": 9.0})
    with Ledger.open(home) as ledger:
        ledger.begin(stage, run="r")
        ledger.add_candidate(faster)
        ledger.add_verdict(verdict.model_copy(update={"measurement": said}), [])
        ledger.export()
    return faster


Run = Callable[..., dict[str, float | int]]


@pytest.fixture
def run(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the stage as on another machine, which has pulled the data; return its numbers."""

    def at(name: str, *, where: str | None = None, too_large: Sequence[str] = ()) -> object:
        data = tmp_path / name
        if not data.exists():
            shutil.copytree(home, data)
        kind = KINDS[where or name]
        device = Device(device_class=DeviceClass.CPU, kind=kind, id="0", worker_core=None)
        ids = {problem.id for problem in PROBLEMS if problem.name in too_large}
        monkeypatch.setattr(PlayedPool, "too_large", ids)
        monkeypatch.setattr("cudal1.services.judging.OneDevice", PlayedPool)
        monkeypatch.setattr(transfer, "find_device", lambda _: device)
        monkeypatch.setattr("cudal1.harness.device.sharing.find_devices", lambda _: [device])
        for module in (products, transfer):
            monkeypatch.setattr(module, "DATA", data)
        return transfer.judge_again(Stage(f"transfer@{name}", name, PARAMS, "r"))

    return at  # pyright: ignore[reportReturnType] - numbers only


def test_the_stage_refuses_to_run_on_another_device(run: Run, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="judges on cpu; run this stage where nvidia-h200 is"):
        run("nvidia-h200", where="cpu")
    assert not (tmp_path / "nvidia-h200" / ".ledger.duckdb").exists(), "nothing was begun"


def test_winners_are_judged_again_once(run: Run, tmp_path: Path) -> None:
    assert run("cpu") == EACH_IS_FASTER | {"num_refused": 0}
    with Ledger.read(tmp_path / "cpu") as ledger:
        before = ledger.sql("from verdicts order by all").rows()
    assert len(before) == 9, "under a protocol of their own, and the references with them"
    assert run("cpu")["num_winners"] == 3
    with Ledger.read(tmp_path / "cpu") as ledger:
        assert ledger.sql("from verdicts order by all").rows() == before


def test_a_faster_candidate_of_a_night_or_of_a_removed_provider_is_no_winner(
    run: Run, home: Path, tmp_path: Path
) -> None:
    """The report does not show them, and its own winners have to be measured again."""
    for stage in ("duel", "generate@removed"):
        find_a_faster_one(home, stage)
    run("cpu")
    again = pl.read_parquet(tmp_path / "cpu" / "transfer" / "cpu.parquet")
    winners = again.filter(~pl.col("is_null_test"))["candidate_id"]
    assert set(winners) == {winner.id for winner in WINNERS}


@pytest.mark.parametrize("stage", ["policy", "sft", "selfsup@r1", "rl", "search@vanilla-sft"])
def test_a_winner_of_any_stage_of_the_run_is_judged_again(
    run: Run, home: Path, tmp_path: Path, stage: str
) -> None:
    faster = find_a_faster_one(home, stage)
    run("cpu")
    again = pl.read_parquet(tmp_path / "cpu" / "transfer" / "cpu.parquet")
    assert faster.id in again["candidate_id"]
    assert WINNERS[0].id not in again["candidate_id"]


def test_a_winner_that_is_too_large_costs_one_line_and_no_other_verdict(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = run("nvidia-h200", too_large=["large"])
    assert found == EACH_IS_FASTER | {"num_refused": 1}
    (said,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert said == (
        f"transfer@nvidia-h200: {PROBLEMS[0].key}: cannot be judged on NVIDIA H200: {TOO_LARGE}; "
        "`dvc repro -f -s transfer@nvidia-h200` tries again"
    )
    with Ledger.read(tmp_path / "nvidia-h200") as ledger:
        rows = ledger.sql("select problem_id from verdicts where device_kind = 'NVIDIA H200'")
    assert set(rows["problem_id"]) == {problem.id for problem in PROBLEMS[1:]}


def test_a_winner_that_was_too_large_is_judged_when_there_is_room(run: Run) -> None:
    run("nvidia-h200", too_large=["large"])
    assert run("nvidia-h200")["num_refused"] == 0


def test_the_stage_ends_where_no_winner_fits(run: Run, tmp_path: Path) -> None:
    found = run("nvidia-h200", too_large=[problem.name for problem in PROBLEMS])
    assert found == {
        "num_winners": 3,
        "num_refused": 3,
        "mean_certified": 0.0,
        "null_test_max": 0.0,
    }
    assert (tmp_path / "nvidia-h200" / "transfer" / "nvidia-h200.parquet").exists()


def test_results_of_several_machines_are_merged(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dvc pull` brings each machine's shard and product, and no database."""
    for name, too_large in (("cpu", []), ("nvidia-h200", ["large"])):
        run(name, too_large=too_large)
        part = f"shards/transfer@{name}"
        shutil.copytree(tmp_path / name / part, home / part)
        (home / "transfer").mkdir(exist_ok=True)
        shutil.copy(tmp_path / name / "transfer" / f"{name}.parquet", home / "transfer")
    monkeypatch.setattr(report, "DATA", home)
    no_null_test = pl.DataFrame(schema={**NULL_TEST, "candidate_id": pl.String})
    with Ledger.open(home) as ledger:
        rows = ledger.sql(
            "select device_kind, count(*) as n from verdicts where protocol_id <> ? group by all",
            [PARAMS.protocol.id],
        ).rows()
        given = report.gathered(
            ledger,
            report._provenance(PARAMS, "cpu"),
            no_null_test,
            baselines=[],
            stages=["filter", *(f"transfer@{name}" for name in KINDS)],
            problems=[problem.id for problem in PROBLEMS],
        )
    assert dict(rows) == {"cpu": 6, "NVIDIA H200": 4}, "winners and references"
    told = given.transferred.group_by("device_kind").agg(pl.col("is_null_test").sum())
    assert dict(told.rows()) == {"cpu": 3, "NVIDIA H200": 2}
    table = device_table(given, failed_as=0.0)
    assert set(table.columns[1:]) == set(KINDS.values()), "a column for each"
    for side in ("eager", "Null test"):
        (means,) = [row.cells[1:] for row in table.rows if row.cells[0] == f"{side}: Mean"]
        assert means == ("4.00×", "4.00×")  # noqa: RUF001 (readers see ×)
