"""Tests that kills, damage, full disks and other versions lose no judged or paid result."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest

from cudal1.errors import StoreError
from cudal1.ledger import Ledger

pytestmark = pytest.mark.slow

WRITER = """
import sys
from pathlib import Path
from cudal1.candidate import Completion
from cudal1.errors import StoreError
from cudal1.ledger import Ledger
import resource

def answer(i):
    return Completion(
        id=str(i), stage="generate@x", provider="x", problem_id="p", prompt_id="q", template_id="t",
        attempt=i, text="t" * 5000, finish_reason="stop",
    )

with Ledger.open(Path(sys.argv[1])) as ledger:
    ledger.begin("generate@x")
    if sys.argv[2:]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
    try:
        for i in range(100_000):
            ledger.add_completion(answer(i), None, "none")
            print(i, flush=True)
    except StoreError as error:
        print(error, flush=True)
"""


def test_a_killed_writer_loses_no_append_that_returned(tmp_path):
    for kill in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(5 + 40 * kill)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
        writer.wait()
        writer.stdout.close()
        told = [line for line in told if line.endswith("\n")]
        with Ledger.open(tmp_path) as ledger:
            assert all(ledger.completion(line.strip()) is not None for line in told)
        (tmp_path / ".ledger.duckdb").unlink()
        with Ledger.open(tmp_path) as ledger:
            assert all(ledger.completion(line.strip()) is not None for line in told)


@pytest.mark.parametrize(("sabotage", "code"), [(None, 0), ("journal", 1), ("database", 1)])
def test_a_writer_killed_at_random_loses_nothing_unless_it_is_sabotaged(tmp_path, sabotage, code):
    kills = ["--sabotage", sabotage] if sabotage else ["--kills", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger.kills", "--out", str(tmp_path), *kills],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "num_lost" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_full_disk_gives_one_line_and_loses_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path), "400000"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    *told, message = done.stdout.splitlines()
    assert "free some space" in message
    assert len(told) > 10
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        assert ledger.sql("from completions").height >= len(told)
        ledger.adopt_completion("0")
        ledger.export()


def test_a_missing_database_is_rebuilt(filled, facts):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    (filled / ".ledger.duckdb").unlink()
    with Ledger.open(filled) as ledger:
        assert facts.content(ledger) == before


def test_a_corrupt_database_is_moved_aside_and_rebuilt(filled, facts, caplog):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    for number in (1, 2):
        caplog.clear()
        (filled / ".ledger.duckdb").write_bytes(b"junk" * 5000)
        with Ledger.open(filled) as ledger:
            assert facts.content(ledger) == before
        assert (filled / f".ledger.duckdb.corrupt-{number}").exists()
        assert len(caplog.messages) == 1
        assert f"corrupt-{number}" in caplog.messages[0]


@pytest.mark.parametrize("seed", range(12))
def test_damage_anywhere_in_the_database_changes_nothing(filled, facts, seed):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    path = filled / ".ledger.duckdb"
    damaged = bytearray(path.read_bytes())
    rng = random.Random(seed)
    if seed % 3 == 0:
        del damaged[rng.randrange(len(damaged)) :]
    else:
        start = rng.randrange(len(damaged))
        damaged[start : start + 64] = rng.randbytes(64)
    path.write_bytes(damaged)
    with Ledger.open(filled) as ledger:
        assert facts.content(ledger) == before


def test_a_truncated_line_is_skipped_and_the_next_append_is_whole(filled, facts):
    journal = filled / "journal" / "rl.jsonl"
    with journal.open("ab") as stream:
        stream.write(b'{"batches":[["completions",["completion_id"')
    with Ledger.open(filled) as ledger:
        ledger.begin("rl")
        ledger.add_completion(facts.completion("after"), None, "none")
    (filled / ".ledger.duckdb").unlink()
    with Ledger.open(filled) as ledger:
        assert ledger.completion("z") is not None
        assert ledger.completion("after") is not None


def test_a_killed_run_resumes_with_all_facts_that_it_had_used(filled, facts):
    with Ledger.open(filled) as ledger:
        ledger.begin("rl")
        ledger.export()
    shard = filled / "shards" / "rl"
    assert set(pl.read_parquet(shard / "completions.parquet")["completion_id"]) == {"a", "z"}
    assert pl.read_parquet(shard / "rewards.parquet").height == 1
    assert pl.read_parquet(shard / "timing_samples.parquet").height == 30


def test_another_run_forgets_the_killed_runs_use_and_keeps_its_facts(filled, facts):
    with Ledger.open(filled) as ledger:
        ledger.begin("rl", run="other parameters")
        assert ledger.sql("from rewards where stage = 'rl'").is_empty()
        ledger.add_steps(1, {"loss": 1.0})
        ledger.export()
    assert not (filled / "shards" / "rl" / "completions.parquet").exists()
    (filled / ".ledger.duckdb").unlink()
    with Ledger.open(filled) as ledger:
        assert ledger.completion("z") is not None
        assert facts.known(ledger, facts.candidate("z")) == facts.correct(facts.candidate("z"), 3.0)
        assert ledger.sql("from timing_samples").height == 54


def test_facts_that_a_later_run_does_not_use_outlive_the_database(filled, facts):
    for _ in range(2):
        with Ledger.open(filled) as ledger:
            ledger.begin("filter")
            ledger.add_protocol(facts.protocol)
            ledger.export()
    (filled / ".ledger.duckdb").unlink()
    with Ledger.open(filled) as ledger:
        assert {"a", "b", "c", "d", "e"} <= set(ledger.sql("from completions")["completion_id"])
        assert ledger.sql("from members where stage = 'filter'").height == 1


def test_facts_survive_when_dvc_removes_a_shard_before_its_stage_runs(filled, facts):
    shutil.rmtree(filled / "shards" / "filter")
    with Ledger.open(filled) as ledger:
        ledger.begin("filter")
    (filled / ".ledger.duckdb").unlink()
    with Ledger.open(filled) as ledger:
        assert {"a", "b", "c", "d", "e"} <= set(ledger.sql("from completions")["completion_id"])


def test_equal_facts_give_equal_bytes(tmp_path, facts):
    shards = []
    for name in ("one", "two"):
        folder = tmp_path / name
        with Ledger.open(folder) as ledger:
            ledger.begin("filter")
            facts.fill(ledger)
            first = ledger.export()
            written = {path.name: path.read_bytes() for path in first.iterdir()}
        (folder / ".ledger.duckdb").unlink()
        with Ledger.open(folder) as ledger:
            ledger.begin("filter")
            facts.fill(ledger)
            again = ledger.export()
            assert {path.name: path.read_bytes() for path in again.iterdir()} == written
        shards.append(written)
    assert shards[0] == shards[1]


def test_a_kill_in_the_middle_of_an_export_is_harmless(filled, facts):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    half = filled / "shards" / ".rl.new"
    half.mkdir()
    (half / "completions.parquet").write_bytes(b"PAR1 half")
    (filled / ".ledger.duckdb").unlink()
    with Ledger.open(filled) as ledger:
        assert facts.content(ledger) == before


def test_a_shard_that_changed_on_disk_is_read_again(filled, facts, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    with Ledger.open(other) as ledger:
        ledger.begin("filter")
        ledger.add_completion(facts.completion("from elsewhere"), None, "none")
        shard = ledger.export()
    shutil.rmtree(filled / "shards" / "filter")
    shutil.copytree(shard, filled / "shards" / "filter")
    with Ledger.read(filled) as ledger:
        assert ledger.completion("from elsewhere") is not None
    with Ledger.open(filled) as ledger:
        assert ledger.completion("from elsewhere") is not None
        assert ledger.completion("a") is not None
        assert ledger.sql("from members where stage = 'filter'")["key"].to_list() == [
            "from elsewhere"
        ]
        assert ledger.sql("from training_steps where stage = 'filter'").is_empty()


@pytest.mark.parametrize("content", [b"", b"junk", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_a_corrupt_shard_is_named_with_the_remedy(filled, content):
    path = filled / "shards" / "filter" / "verdicts.parquet"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="dvc checkout") as caught:
        Ledger.open(filled)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_shard_never_gives_an_odd_error(filled, seed):
    path = filled / "shards" / "filter" / "completions.parquet"
    damaged = bytearray(path.read_bytes())
    rng = random.Random(seed)
    start = rng.randrange(len(damaged))
    damaged[start : start + 16] = rng.randbytes(16)
    path.write_bytes(damaged)
    (filled / ".ledger.duckdb").unlink()
    said = str(path.parent)
    try:
        Ledger.open(filled).close()
    except StoreError as error:
        said = str(error)
    assert str(path.parent) in said


def test_a_shard_of_newer_code_is_refused(filled):
    path = filled / "shards" / "filter" / "verdicts.parquet"
    pl.read_parquet(path).write_parquet(path, metadata={"cudal1_ledger": "999"})
    with pytest.raises(StoreError, match="newer than this code's"):
        Ledger.open(filled)


def test_a_database_of_newer_code_is_refused_and_left_unchanged(filled):
    path = filled / ".ledger.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("update meta set value = '999' where name = 'schema'")
    with pytest.raises(StoreError, match="newer than this code's"):
        Ledger.open(filled)
    assert path.exists()


def test_a_database_of_older_code_is_rebuilt(filled, facts):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    with duckdb.connect(str(filled / ".ledger.duckdb")) as connection:
        connection.execute("update meta set value = '0' where name = 'schema'")
        connection.execute("alter table rewards drop column raw")
    with Ledger.open(filled) as ledger:
        assert facts.content(ledger) == before


def test_a_line_that_the_database_refuses_blocks_no_later_opening(tmp_path, facts, caplog):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        ledger.add_completion(facts.completion("a"), None, "none")
        odd = facts.completion("b").model_copy(update={"num_prompt_tokens": 3_000_000_000})
        with pytest.raises(StoreError):
            ledger.add_completion(odd, None, "none")
        ledger.add_completion(facts.completion("c"), None, "none")
    (tmp_path / ".ledger.duckdb").unlink()
    for _ in range(2):
        with Ledger.open(tmp_path) as ledger:
            ledger.begin("generate@x")
            assert ledger.completion("a") is not None
            assert ledger.completion("c") is not None
    assert "is refused" in caplog.text


@pytest.mark.parametrize("run", ["", "another"])
def test_an_answer_that_arrives_during_an_interrupt_outlives_the_next_run(
    tmp_path, facts, monkeypatch, run
):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        with monkeypatch.context() as patch:

            def interrupt(_):
                raise KeyboardInterrupt

            patch.setattr(ledger, "_insert", interrupt)
            with pytest.raises(KeyboardInterrupt):
                ledger.add_completion(facts.completion("a"), None, "none")
        ledger.add_answer(facts.completion("b"), facts.tries()[1])
        ledger.add_answer(facts.completion("c"))
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x", run=run)
        found = set(ledger.sql("select completion_id from completions")["completion_id"])
        assert found == {"a", "b", "c"}
        assert ledger.query("spent", provider="openai").item(0, "cost_usd") == 0.25


def test_an_export_drops_no_line_that_the_database_lacks(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        odd = facts.completion("b").model_copy(update={"num_prompt_tokens": 3_000_000_000})
        with pytest.raises(StoreError):
            ledger.add_completion(odd, None, "none")
        ledger.add_completion(facts.completion("c"), None, "none")
        with pytest.raises(StoreError, match="run the stage again"):
            ledger.export()
    with Ledger.open(tmp_path) as ledger:
        assert ledger.completion("c") is not None


def test_processes_that_only_open_the_ledger_read_a_journal_once(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        ledger.add_completion(facts.completion("a"), None, "none")
    marks = []
    for _ in range(2):
        with Ledger.open(tmp_path) as ledger:
            found = ledger.sql("select value from meta where name = 'journal/generate@x'")
            marks.append(int(found.item(0, 0)))
    assert marks[0] == marks[1] > 0
