"""Tests that each second of a device's judges counts once, and a wait only during judging."""

from __future__ import annotations

import time

import pytest

from benchmarks.judging import judge_seconds
from benchmarks.judging.judge_seconds import JUDGING, MEASURING, PREPARING, TRYING, WAITS, shares
from cudal1.harness.reference.forked import Forked

END = "waiting for ends"


class Judge:
    def judge(self) -> None:
        time.sleep(0.02)
        self.wait()

    def wait(self) -> None:
        time.sleep(0.03)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    class Watched(Judge):
        pass

    monkeypatch.setattr(judge_seconds, "DOES", {JUDGING: (Watched, "judge")})
    monkeypatch.setattr(judge_seconds, "WAITS", {END: (Watched, "wait")})
    monkeypatch.setattr(judge_seconds, "PARTS", ((Watched, "wait"),))
    monkeypatch.setattr(judge_seconds, "_notes", None)
    judge_seconds.watch()
    judge_seconds.watch_parts()
    return Watched()


def test_a_wait_counts_only_while_the_judge_judges(judge: Judge) -> None:
    judge.wait()
    assert judge_seconds.spent_s() == {JUDGING: 0.0, END: 0.0}
    judge.judge()
    burst_times = judge_seconds.spent_s()
    assert 0.03 <= burst_times[END] < burst_times[JUDGING]
    assert burst_times[JUDGING] >= 0.05
    judge_seconds.forget()
    assert judge_seconds.spent_s() == {JUDGING: 0.0, END: 0.0}


def test_every_call_of_a_part_counts_while_the_judge_judges(judge: Judge) -> None:
    judge.wait()
    assert judge_seconds.parts() == {}
    judge.judge()
    judge.judge()
    (calls, took_s) = judge_seconds.parts()["Watched.wait"]
    assert calls == 2
    assert 0.06 <= took_s <= judge_seconds.spent_s()[JUDGING]
    judge_seconds.forget()
    assert judge_seconds.parts() == {}


def test_work_of_forked_processes_counts_with_the_rest(judge: Judge) -> None:
    judge.judge()
    for _ in range(2):
        forked = Forked(lambda: judge)
        forked.ask("judge")
        forked.close()
    assert judge_seconds.parts()["Watched.wait"][0] == 3
    assert judge_seconds.spent_s()[JUDGING] >= 0.15


def test_a_failed_judgement_counts_too(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError("ours")

    monkeypatch.setattr(judge, "wait", fails)
    with pytest.raises(ValueError, match="ours"):
        judge.judge()
    assert judge_seconds.spent_s()[JUDGING] >= 0.02
    assert judge_seconds._doing == []


def test_shares_of_two_judges_sum_to_one_and_waits_are_not_measuring() -> None:
    one = {JUDGING: 6.0, PREPARING: 1.0, END: 2.0}
    other = {JUDGING: 3.0, TRYING: 4.0}
    found = shares([one, other], 10.0)
    assert found[MEASURING] == pytest.approx(7 / 20)
    assert found[END] == pytest.approx(2 / 20)
    assert found[TRYING] == pytest.approx(4 / 20)
    assert found["nothing to judge"] == pytest.approx(6 / 20)
    assert sum(found.values()) == pytest.approx(1)
    assert set(WAITS) <= set(found)
    in_lanes = shares([one, other], 5.0, num_lanes=2)
    assert in_lanes == found


def test_every_watched_function_exists() -> None:
    for owner, name in (*judge_seconds.DOES.values(), *WAITS.values(), *judge_seconds.PARTS):
        assert callable(getattr(owner, name))
