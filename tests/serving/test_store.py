"""Tests of the durable queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.serving import store as stores
from cudal1.serving.messages import State
from cudal1.serving.store import CollisionError, FullError, SubmissionStore
from tests.services.test_reviewing import VERDICT
from tests.serving.conftest import received


def finish(store: SubmissionStore, client: str, said: object = VERDICT) -> None:
    (waiting,) = store.waiting(client, limit=1)
    store.finish(waiting, said)  # type: ignore[arg-type]


def test_equal_submissions_are_one_and_keep_their_answer(store: SubmissionStore) -> None:
    one = received("a")
    found, num_new = store.add("alice", [one, one], max_waiting=9)
    assert ([each.state for each in found], num_new) == ([State.WAITING] * 2, 1)
    finish(store, "alice")
    (again,), num_new = store.add("alice", [one], max_waiting=9)
    assert (again.state, again.verdict, num_new) == (State.DONE, VERDICT, 0)


def test_other_questions_about_a_source_are_other_submissions(store: SubmissionStore) -> None:
    given = [
        received("a"),
        received("a", timing=False),
        received("a", mode="eval"),
        received("a", contract="drop_in"),
        received("a", precision="half"),
        received("a", problem=1),
    ]
    _, num_new = store.add("alice", given, max_waiting=9)
    assert num_new == len(given)


def test_a_submission_outlives_the_connection(tmp_path: Path) -> None:
    first = SubmissionStore(tmp_path)
    first.add("alice", [received("a"), received("b")], max_waiting=9)
    finish(first, "alice")
    # a second connection sees what a killed process leaves: the first is not closed
    second = SubmissionStore(tmp_path)
    assert [each.candidate.source for each in second.waiting("alice", limit=9)] == ["b"]
    assert [each.verdict for each in second.answered("alice", after=0, limit=9)] == [VERDICT]
    second.close()
    first.close()


def test_clients_have_rows_of_their_own(store: SubmissionStore) -> None:
    one = received("a")
    store.add("alice", [one], max_waiting=9)
    finish(store, "alice")
    assert store.answer("bob", one.id) is None
    assert store.answered("bob", after=0, limit=9) == []
    (mine,), _ = store.add("bob", [one], max_waiting=9)
    assert (mine.state, mine.verdict) == (State.WAITING, None)


def test_a_full_queue_takes_nothing_of_a_batch(store: SubmissionStore) -> None:
    store.add("alice", [received("a")], max_waiting=2)
    with pytest.raises(FullError):
        store.add("alice", [received("b"), received("c")], max_waiting=2)
    assert store.num_waiting("alice") == 1
    store.add("bob", [received("b"), received("c")], max_waiting=2)
    found, _ = store.add("alice", [received("a")], max_waiting=1)
    assert found[0].state is State.WAITING


def test_a_refused_submission_waits_again_and_numbers_are_never_reused(
    store: SubmissionStore,
) -> None:
    one = received("a")
    store.add("alice", [one], max_waiting=9)
    finish(store, "alice", "too large")
    refused = store.answer("alice", one.id)
    assert refused is not None
    assert (refused.state, refused.reason, refused.number) == (State.REFUSED, "too large", 1)
    (again,), num_new = store.add("alice", [one], max_waiting=9)
    assert (again.state, again.number, num_new) == (State.WAITING, None, 1)
    finish(store, "alice")
    assert [each.number for each in store.answered("alice", after=1, limit=9)] == [2]


def test_an_answer_is_given_once(store: SubmissionStore) -> None:
    store.add("alice", [received("a")], max_waiting=9)
    (waiting,) = store.waiting("alice", limit=1)
    store.finish(waiting, VERDICT)
    store.finish(waiting, "too late")
    (answer,) = store.answered("alice", after=0, limit=9)
    assert answer.verdict == VERDICT


def test_a_second_source_of_one_id_is_refused(
    store: SubmissionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Candidate, "id", property(lambda _: "0123456789abcdef"))
    store.add("alice", [received("a")], max_waiting=9)
    with pytest.raises(CollisionError):
        store.add("bob", [received("b")], max_waiting=9)
    assert store.waiting_clients() == ["alice"]


def test_a_database_of_newer_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stores, "VERSION", 2)
        SubmissionStore(tmp_path).close()
    with pytest.raises(stores.StoreError, match="newer code"):
        SubmissionStore(tmp_path)
