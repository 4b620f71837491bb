"""Tests of the thread that judges."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError, StoreError, WorkerError
from cudal1.serving import judging_loop
from cudal1.serving.messages import Answer, State
from cudal1.verdict import Status
from tests.serving.conftest import Judging, received, until
from tests.serving.played import RULES


def answers(judging: Judging, client: str, count: int) -> list[Answer]:
    """Return a client's answers, once there are so many."""
    until(lambda: len(judging.store.answered(client, after=0, limit=999)) >= count)
    return judging.store.answered(client, after=0, limit=999)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_loop, "RETRY_S", 0.01)


def test_each_submission_is_answered(judging: Judging) -> None:
    judging.submit("alice", "good", "wrong", "refuse")
    judging.loop.start()
    found = {each.id: each for each in answers(judging, "alice", 3)}
    good, wrong, refused = (found[received(text).id] for text in ("good", "wrong", "refuse"))
    assert (good.state, good.speedup) == (State.DONE, 4.0)
    assert wrong.verdict is not None
    assert (wrong.state, wrong.verdict.status) == (State.DONE, Status.INCORRECT)
    assert (refused.state, refused.reason) == (State.REFUSED, "too large")


def test_equal_sources_of_two_clients_are_judged_once(judging: Judging) -> None:
    judging.submit("alice", "same")
    judging.submit("bob", "same")
    judging.loop.start()
    (mine,), (other,) = answers(judging, "alice", 1), answers(judging, "bob", 1)
    assert judging.device.asked == [received("same").candidate.id]
    assert mine.verdict is not None
    assert other.verdict is not None
    assert mine.verdict.measurement == other.verdict.measurement


def test_a_known_verdict_takes_its_time_and_its_turn(
    judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(judging.loop, "_pause", paused.append)
    judging.submit("alice", "same")
    judging.loop.start()
    answers(judging, "alice", 1)
    one = received("same")
    spent_s = judging.store.spent_s(one.candidate.id, RULES.protocol.id)
    judging.submit("bob", "same", "other")
    found = answers(judging, "bob", 2)
    assert paused == [spent_s]
    assert [each.id for each in found] == [one.id, received("other").id]


def test_a_verdict_that_is_repeated_does_not_say_when_it_was_made(judging: Judging) -> None:
    judging.submit("alice", "same")
    judging.loop.start()
    (mine,) = answers(judging, "alice", 1)
    assert mine.verdict is not None
    assert mine.verdict.judged_at > "2026-01-01T00:00:00Z"  # the device says just that


def test_checks_alone_and_timing_are_asked_apart(judging: Judging) -> None:
    judging.submit("alice", "a", "b", timing=False)
    judging.submit("alice", "a")
    judging.loop.start()
    found = answers(judging, "alice", 3)
    assert sorted(each.speedup or 0 for each in found) == [0, 0, 4.0]
    assert judging.device.num_opened == 1


def test_another_protocol_has_other_judges(judging: Judging) -> None:
    judging.submit("alice", "a", "b", mode="eval")
    judging.submit("alice", "c", "d")
    judging.loop.start()
    found = answers(judging, "alice", 4)
    assert len({each.verdict.protocol_id for each in found if each.verdict}) == 2
    assert judging.device.num_opened == 2


def test_a_client_with_much_in_its_queue_does_not_hold_up_another(judging: Judging) -> None:
    judging.submit("alice", *(f"a{number}" for number in range(40)))
    judging.submit("bob", "b0", "b1")
    judging.loop.start()
    answers(judging, "alice", 40)
    order = judging.device.asked
    assert max(order.index(received(text).candidate.id) for text in ("b0", "b1")) < 8


def test_a_client_pays_for_the_keeping_of_its_verdicts(
    judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = judging.ledger.add_judged

    def slow(candidate: Candidate, *rest: Any) -> None:
        if "slow" in candidate.source:
            time.sleep(0.5)
        add(candidate, *rest)

    monkeypatch.setattr(judging.ledger, "add_judged", slow)
    judging.submit("alice", *(f"slow {number}" for number in range(6)))
    judging.submit("bob", *(f"b{number}" for number in range(12)))
    judging.loop.start()
    answers(judging, "bob", 12)
    assert len(answers(judging, "alice", 0)) < 6
    answers(judging, "alice", 6)


def test_a_busy_device_is_tried_until_it_is_free(judging: Judging) -> None:
    judging.device.failures += [DeviceError("device cpu is in use by process 7")] * 5
    judging.submit("alice", "a")
    judging.loop.start()
    (found,) = answers(judging, "alice", 1)
    assert found.state is State.DONE
    until(lambda: judging.loop.complaint is None)


def test_judges_that_die_start_again_and_others_are_judged(judging: Judging) -> None:
    judging.device.failures.append(WorkerError("every process that judged has died"))
    judging.submit("alice", "a", "b")
    judging.loop.start()
    assert [each.state for each in answers(judging, "alice", 2)] == [State.DONE] * 2


def test_a_candidate_with_which_judges_fail_each_time_is_refused(judging: Judging) -> None:
    judging.submit("alice", "deadly", "a")
    judging.submit("bob", "b", "c")
    judging.loop.start()
    found = {each.id: each for each in answers(judging, "alice", 2)}
    refused = found[received("deadly").id]
    assert (refused.state, refused.reason) == (State.REFUSED, "the judges failed with it: died")
    assert found[received("a").id].state is State.DONE
    assert [each.state for each in answers(judging, "bob", 2)] == [State.DONE] * 2


def test_a_verdict_that_was_not_answered_before_a_kill_is_not_made_again(
    judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise StoreError("killed between ledger and answer")

    with monkeypatch.context() as patch:
        patch.setattr(judging.store, "finish", killed)
        judging.submit("alice", "a")
        judging.loop.start()
        until(lambda: not judging.loop.is_alive)
    later = judging_loop.JudgingLoop(
        judging.store,
        judging.ledger,
        judging.loop._bench,
        judging.loop._problems,
        judging.loop._rules,
        share_of=lambda _: 1.0,
        settled=lambda *_: None,
        one_team=False,
    )
    later.start()
    (found,) = answers(judging, "alice", 1)
    later.stop()
    assert found.state is State.DONE
    assert len(judging.device.asked) == 1


def test_a_problem_that_the_server_has_not_is_a_reason(judging: Judging) -> None:
    judging.loop._problems = {}
    judging.submit("alice", "a")
    judging.loop.start()
    (found,) = answers(judging, "alice", 1)
    assert found.reason == "its problem is in none of the server's suites"
