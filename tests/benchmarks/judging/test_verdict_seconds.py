"""Tests that the seconds of verdicts are split by the device's activity."""

from __future__ import annotations

from benchmarks.judging.verdict_seconds import in_words, seconds
from cudal1.verdict import Phases
from tests.benchmarks.test_release import verdict


def test_seconds_are_split_by_the_devices_activity() -> None:
    phases = Phases(starting_s=0.5, compiling_s=0.0, checking_s=1.0, measuring_s=2.0)
    found = seconds([verdict(judge_s=1.0, phases=phases), verdict(judge_s=3.0)])
    assert found is not None
    assert (found["median_s"], found["starting_s"], found["measuring_s"]) == (2.0, 0.5, 2.0)
    assert seconds([verdict()]) is None
    assert "measuring 2.00 s" in in_words(found)
