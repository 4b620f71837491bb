"""Tests of how long something takes, in words for people."""

from __future__ import annotations

import pytest

from cudal1.services.telling import counted, duration, process_s


def test_a_process_has_run_for_some_time() -> None:
    before = process_s()
    assert 0 < before <= process_s()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (96, "1 min 36 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_times_are_written_for_people(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_the_time_left_is_said_once_something_is_done() -> None:
    assert counted("answers", 0, 4, 30.0) == "answers: 0 of 4, 30 s so far"
    assert counted("answers", 1, 4, 30.0) == "answers: 1 of 4, about 1 min 30 s left"
