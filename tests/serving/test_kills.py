"""Tests of a server that is killed: nothing that was received is lost, nothing is judged twice."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from cudal1.ledger.journal import entries
from cudal1.serving.client import RemoteJudge
from cudal1.serving.messages import Answer, State, Submission
from tests.serving.conftest import free_port, new_folder, running, until
from tests.serving.played import PROBLEMS

pytestmark = pytest.mark.slow

NUM = 60


def test_submissions_outlive_a_killed_server(tmp_path: Path) -> None:
    tokens, port = new_folder(tmp_path, "alice"), free_port()
    given = [Submission(problem=PROBLEMS[0].key, source=f"s{number}") for number in range(NUM)]
    found: list[Answer] = []
    with running(tmp_path, tokens, port, delay_s=0.05) as first:

        def ask() -> None:
            with RemoteJudge(first.url, tokens["alice"]) as judge:
                found.extend(judge.judge_many(given))

        asking = threading.Thread(target=ask)
        asking.start()
        judged = tmp_path / "judged"
        until(lambda: judged.exists() and judged.read_text().count("\n") > NUM // 4)
        first.process.kill()
        first.process.wait()
        kept = {
            "/".join((key.split("/")[0], key.split("/")[2]))
            for entry in entries(tmp_path / "journal" / "serve@1.jsonl")
            for batch in entry.batches
            if batch.table == "verdicts"
            for key in batch.keys
        }
    with running(tmp_path, tokens, port, delay_s=0.0):
        asking.join()
    made = Counter(judged.read_text().replace(" ", "/").split("\n")[:-1])
    assert [each.state for each in found] == [State.DONE] * NUM
    assert len(made) == NUM
    assert kept
    assert {made[each] for each in kept} == {1}


def test_a_server_that_ended_in_order_leaves_a_shard_and_the_next_one_another(
    tmp_path: Path,
) -> None:
    tokens, port = new_folder(tmp_path, "alice"), free_port()
    for number in (1, 2):
        with (
            running(tmp_path, tokens, port, delay_s=0.0) as server,
            RemoteJudge(server.url, tokens["alice"]) as judge,
        ):
            judge.judge(PROBLEMS[0].key, f"life {number}")
        assert server.process.returncode == 0
        assert (tmp_path / "shards" / f"serve@{number}" / "verdicts.parquet").exists()
        assert (tmp_path / "journal" / f"serve@{number}.jsonl").stat().st_size == 0
    with running(tmp_path, tokens, port, delay_s=0.0) as server, server.client("alice") as alice:
        assert len(alice.get("/v1/answers").json()["answers"]) == 2
