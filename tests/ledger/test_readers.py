"""Tests that readers never stop a stage, and that a stage never refuses a reader."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from cudal1.ledger import Ledger, database

ROOT = Path(__file__).parents[2]
HELD = """
import sys
import duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reading")
connection.execute("begin")
print(connection.execute("select count(*) from verdicts").fetchall()[0][0], flush=True)
sys.stdin.read()
print(connection.execute("select count(*) from verdicts").fetchall()[0][0], flush=True)
"""
"""A program that holds the ledger open, in a transaction, until its standard input ends."""
STAGE = """
import sys
from pathlib import Path
from cudal1.ledger import Ledger
from tests.ledger.conftest import Facts

facts, name = Facts(), sys.argv[2]
with Ledger.open(Path(sys.argv[1])) as ledger:
    ledger.begin(name)
    facts.fill(ledger)
    candidate = facts.candidate(f"class ModelNew: {name!r}")
    ledger.add_completion(facts.completion(name, stage=name), candidate, None)
    ledger.add_verdict(facts.correct(candidate, 1.2), facts.samples())
    print("found", flush=True)
    sys.stdin.readline()
    ledger.export()
"""
"""A stage that tells when it has found something, and ends when it is told to."""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def holding(path: Path, mode: str = "reading") -> Generator[subprocess.Popen[str]]:
    program = python(HELD, str(path), mode)
    assert program.stdout is not None
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


@pytest.mark.slow
def test_stages_run_and_no_reader_is_refused_while_readers_hold_the_ledger_open(tmp_path):
    with Ledger.open(tmp_path):
        pass
    snapshot = tmp_path / database.SNAPSHOT
    with holding(snapshot) as first, holding(snapshot) as second:
        early = (first, second)
        counts = [reader.stdout.readline() for reader in early if reader.stdout]
        assert counts == ["0\n", "0\n"]
        for done, name in enumerate(("generate@x", "filter", "rl")):
            stage = python(STAGE, str(tmp_path), name)
            assert stage.stdout is not None
            assert stage.stdout.readline() == "found\n", stage.communicate()[1]
            with holding(snapshot) as reader:  # while the stage holds its own file
                assert reader.stdout is not None
                expected = 4 + done if done else 0
                assert reader.stdout.readline() == f"{expected}\n", reader.communicate()[1]
            with Ledger.read(tmp_path) as now:
                assert now.sql("from verdicts").height == 5 + done
            _, complaint = stage.communicate("go on\n", timeout=300)
            assert stage.returncode == 0, complaint
        for reader in early:  # it has the file that it opened
            said, complaint = reader.communicate(timeout=300)
            assert (said, reader.returncode) == ("0\n", 0), complaint
    with Ledger.read(tmp_path) as ledger:
        assert ledger.sql("from verdicts").height == 7


@pytest.mark.slow
def test_a_program_that_opened_the_ledger_for_writing_refuses_no_reader(filled):
    if os.geteuid() != 0:
        pytest.skip("the mode of the file already forbids it")
    snapshot = filled / database.SNAPSHOT
    with holding(snapshot, "writing") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "5\n"
        with Ledger.read(filled) as ledger:
            assert ledger.sql("from verdicts").height == 5
        with Ledger.open(filled) as ledger:
            ledger.begin("sft")
            ledger.add_steps(1, {"loss": 2.0})
            ledger.export()
        with Ledger.read(filled) as ledger:
            assert ledger.sql("from training_steps where stage = 'sft'").height == 1


def test_the_snapshot_of_a_finished_stage_is_read_without_a_word(filled, facts, caplog):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    with Ledger.read(filled) as ledger:
        assert facts.content(ledger) == before
    assert caplog.messages == []


def test_the_snapshot_cannot_be_opened_for_writing_by_its_mode(filled):
    assert (filled / database.SNAPSHOT).stat().st_mode & 0o777 == 0o444


def test_a_second_connection_of_one_process_sees_the_newer_snapshot(filled):
    with Ledger.read(filled) as early:
        with Ledger.open(filled) as ledger:
            ledger.begin("sft")
            ledger.add_steps(1, {"loss": 2.0})
            ledger.export()
        with Ledger.read(filled) as late:
            question = "select count(*) from training_steps where stage = 'sft'"
            assert (early.sql(question).item(), late.sql(question).item()) == (0, 1)


def test_a_run_that_begins_anew_hides_what_its_stage_used_before(filled, facts):
    shutil.rmtree(filled / "shards" / "filter")  # as DVC does before it runs a stage
    with Ledger.open(filled) as ledger:
        ledger.begin("filter", run="another")
        ledger.add_rewards(9, [("a", 1.0, 0.5)])
        with Ledger.read(filled) as reader:
            steps = reader.sql("select step from rewards where stage = 'filter'")["step"].to_list()
            assert steps == [9]
            assert facts.content(reader) == facts.content(ledger)


def test_a_lost_snapshot_is_read_from_shards_and_journals(filled, facts):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    (filled / database.SNAPSHOT).unlink()
    with Ledger.read(filled) as ledger:
        assert facts.content(ledger) == before
    (filled / database.SNAPSHOT).write_bytes(b"junk" * 5000)
    with Ledger.read(filled) as ledger:
        assert facts.content(ledger) == before


def test_a_snapshot_of_older_code_is_upgraded_in_a_copy(filled, facts):
    with Ledger.open(filled) as ledger:
        before = facts.content(ledger)
    snapshot = filled / database.SNAPSHOT
    snapshot.chmod(0o644)
    with duckdb.connect(str(snapshot)) as connection:
        connection.execute("update meta set value = 'older' where name = 'views'")
        connection.execute("drop view best")
    content = snapshot.read_bytes()
    with Ledger.read(filled) as ledger:
        assert facts.content(ledger) == before
        assert ledger.sql("from best").height > 0
    assert snapshot.read_bytes() == content


def test_a_snapshot_that_cannot_be_written_fails_no_stage(filled, monkeypatch, caplog):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    content = (filled / database.SNAPSHOT).read_bytes()
    with Ledger.open(filled) as ledger:
        ledger.begin("sft")
        ledger.add_steps(1, {"loss": 2.0})
        ledger.export()
        monkeypatch.setattr(database, "copy_file", full)
    assert (filled / database.SNAPSHOT).read_bytes() == content
    assert not list(filled.glob(".*.partial"))
    (message,) = caplog.messages
    assert "could not be renewed" in message
    assert "free some space" in message
    monkeypatch.undo()
    with Ledger.read(filled) as ledger:
        assert ledger.sql("from training_steps where stage = 'sft'").height == 1


@pytest.mark.slow
def test_a_writer_keeps_its_lock_until_the_snapshot_is_made(tmp_path, monkeypatch):
    code = "import sys, duckdb; duckdb.connect(sys.argv[1])"
    path = tmp_path / database.DATABASE
    copied = database.copy_file

    def held_meanwhile(*files: Path) -> None:
        copied(*files)
        refused = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
        )
        assert "Could not set lock" in refused.stderr

    with Ledger.open(tmp_path) as ledger:
        ledger.begin("sft")
        monkeypatch.setattr(database, "copy_file", held_meanwhile)
