"""What is written beside a result about the machine that it was measured on."""

from __future__ import annotations

import os

import pytest

from benchmarks.machine import cpu_name


def test_a_part_of_the_cores_is_not_called_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(100_000)))
    everything = cpu_name()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    part = cpu_name()
    if " cores of " not in everything:
        pytest.skip("this kernel names no cores")
    assert " of " not in everything.partition(" cores of ")[0]
    assert part.startswith("1 of ") or os.cpu_count() == 1
