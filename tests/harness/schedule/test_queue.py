"""Candidates go to devices by problem, each once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.schedule.queue import ByProblem


def _queue(*runs: str) -> ByProblem[str]:
    """Return a queue of items such as a0 and a1; a letter is a problem."""
    return ByProblem(
        (f"{run[0]}{i}" for run in runs for i in range(len(run))), lambda item: item[0]
    )


def test_a_device_goes_on_with_its_problem() -> None:
    queue = _queue("aaa", "bbb")
    taken = [queue.take(device) for device in (1, 2, 2, 1, 1, 2)]
    assert taken == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_a_device_without_a_problem_takes_from_the_end_of_the_longest_run() -> None:
    queue = _queue("a", "bbbb", "cc")
    assert [queue.take(device) for device in (1, 2, 3, 1)] == ["a0", "b0", "c0", "b3"]
    assert [queue.take(device) for device in (2, 3, 1, 1, 2)] == ["b1", "c1", "b2", None, None]


def test_a_device_that_takes_from_others_stays_with_one_problem() -> None:
    queue = _queue("aaaa", "bbbb")
    assert [queue.take(1), queue.take(2)] == ["a0", "b0"]
    assert [queue.take(3) for _ in range(4)] == ["a3", "a2", "a1", "b3"]


def test_an_item_of_an_excluded_problem_is_left_in_its_place() -> None:
    queue = _queue("aaa", "bb")
    assert [queue.take(1), queue.take(2, "a")] == ["a0", "b0"]
    assert [queue.take(2, "a") for _ in range(2)] == ["b1", None]
    assert [queue.take(each, "a") for each in (1, 3)] == [None, None]
    assert [queue.take(2), queue.take(1)] == ["a2", "a1"]
    assert not queue.is_any_left()


def test_runs_of_excluded_problems_are_passed_over() -> None:
    queue = _queue("aa", "bb")
    queue.add("c0")
    queue.add("d0")
    assert [queue.take(1, "ac"), queue.take(2, "ac"), queue.take(3, "ac")] == ["d0", "b0", "b1"]
    assert [queue.take(each) for each in (1, 2, 3)] == ["c0", "a0", "a1"]


def test_a_device_that_went_to_a_problem_helps_there_once_no_run_is_left_to_begin() -> None:
    queue = _queue("aaa", "bbb", "c")
    assert [queue.take(1), queue.take(2)] == ["a0", "b0"]
    queue.went_to(1, "b")
    assert [queue.take(1), queue.take(2), queue.take(2), queue.take(2)] == ["a1", "b1", "b2", "c0"]
    queue.went_to(1, "b")
    assert queue.take(1) == "a2"  # no item is left there
    queue = _queue("aaa", "bbb")
    assert [queue.take(1), queue.take(2)] == ["a0", "b0"]
    queue.went_to(1, "b")
    assert (queue.num_held(), [queue.take(1) for _ in range(4)]) == (4, ["b2", "b1", "a1", "a2"])


@pytest.mark.slow
@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 5), st.randoms())
def test_each_item_is_taken_once_by_any_device(lengths: list[int], num_devices: int, rng) -> None:
    items = [(problem, i) for problem, length in enumerate(lengths) for i in range(length)]
    queue = ByProblem(items, lambda item: item[0])
    taken: list[tuple[int, int]] = []
    while (item := queue.take(rng.randrange(num_devices))) is not None:
        taken.append(item)
        queue.went_to(rng.randrange(num_devices), rng.randrange(len(lengths)))
        if rng.random() < 0.1:
            queue.release(rng.randrange(num_devices))
    assert sorted(taken) == items


def test_runs_are_read_as_they_are_needed() -> None:
    asked: list[str] = []

    def items() -> Iterator[str]:
        for item in ("a0", "a1", "b0", "c0"):
            asked.append(item)
            yield item

    queue = ByProblem(items(), lambda item: item[0])
    queue.take(1)
    assert asked == ["a0", "a1", "b0"]  # a run ends where the next one begins


def test_asking_for_a_run_does_not_take_it() -> None:
    queue = _queue("aa", "b", "c")
    assert [queue.has_runs(), queue.has_runs(), queue.take(1), queue.take(2)] == [
        True,
        True,
        "a0",
        "b0",
    ]
    assert [queue.has_runs(), queue.take(2), queue.has_runs()] == [True, "c0", False]
    queue.add("d0")
    assert queue.has_runs()


def test_a_device_goes_on_with_a_problem_of_held_or_added_items() -> None:
    queue = _queue("aa", "b")
    assert not queue.goes_on(1, "a")
    queue.take(1), queue.take(2)
    assert (queue.goes_on(1, "a"), queue.goes_on(1, "b"), queue.goes_on(2, "b")) == (
        True,
        False,
        False,
    )
    queue.take(1)
    queue.add("b9")
    assert (queue.goes_on(1, "a"), queue.goes_on(2, "b"), queue.goes_on(2, "c")) == (
        False,
        True,
        False,
    )


def test_items_that_a_device_holds_may_be_left_to_others() -> None:
    queue = _queue("aaa", "b", "c")
    assert [queue.take(1), queue.take(2)] == ["a0", "b0"]
    queue.release(1)
    queue.release(3)
    taken = [queue.take(2) for _ in range(4)]
    assert (taken, queue.is_any_left()) == (["a1", "a2", "c0", None], False)


def test_items_left_to_others_are_dropped_with_their_problem() -> None:
    queue = _queue("aaa", "b")
    queue.take(1)
    queue.release(1)
    assert (queue.drop("a"), queue.take(2)) == (["a1", "a2"], "b0")


def test_a_problem_is_left_while_it_is_held_or_was_added() -> None:
    queue = _queue("aa", "b")
    queue.take(1)
    queue.add("c0")
    assert [queue.is_left(problem) for problem in "abcd"] == [True, True, True, False]
    queue.take(1), queue.take(1), queue.take(1)
    assert not any(queue.is_left(problem) for problem in "abc")


def test_a_problem_is_dropped_wherever_it_is_held() -> None:
    queue = _queue("aaa", "bb")
    assert [queue.take(1), queue.take(2)] == ["a0", "b0"]
    assert queue.drop("a") == ["a1", "a2"]
    assert [queue.take(1), queue.take(1)] == ["b1", None]


def test_an_added_item_joins_its_problem_at_the_device_that_holds_it() -> None:
    queue = _queue("aa", "b")
    assert queue.take(1) == "a0"
    queue.add("a9")
    queue.add("c0")
    assert [queue.take(1) for _ in range(5)] == ["a1", "a9", "c0", "b0", None]


def test_the_run_of_an_added_item_comes_before_runs_that_wait() -> None:
    queue = _queue("a", "b", "cc", "d")
    assert queue.take(1) == "a0"
    queue.add("c9")
    queue.add("e0")
    assert [queue.take(1) for _ in range(7)] == ["c0", "c1", "c9", "e0", "b0", "d0", None]


def test_a_device_first_takes_added_items_of_its_problem() -> None:
    queue = _queue("a", "b")
    assert [queue.take(1), queue.take(2)] == ["a0", "b0"]
    for item in ("c0", "b9", "a9"):
        queue.add(item)
    assert [queue.take(1), queue.take(2), queue.take(1)] == ["a9", "b9", "c0"]


def test_added_items_are_dropped_with_their_problem() -> None:
    queue = _queue()
    for item in ("a0", "b0", "a1"):
        queue.add(item)
    assert queue.drop("a") == ["a0", "a1"]
    assert [queue.take(1), queue.take(1)] == ["b0", None]


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 3), st.randoms())
def test_an_added_item_is_taken_once_by_any_device(problems: list[int], devices: int, rng) -> None:
    items = list(enumerate(problems))
    first, later = items[: len(items) // 2], items[len(items) // 2 :]
    queue = ByProblem(first, lambda item: item[1])
    taken: list[tuple[int, int]] = []
    for item in later:
        queue.add(item)
        if (one := queue.take(rng.randrange(devices))) is not None:
            taken.append(one)
    while (one := queue.take(rng.randrange(devices))) is not None:
        taken.append(one)
    assert sorted(taken) == items
