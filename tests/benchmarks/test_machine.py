"""Tests of the description of the machine beside a result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.machine import cpu_name


@pytest.mark.parametrize(("ours", "said"), [({0, 1}, "2 cores of A"), ({1}, "1 of 2 cores of A")])
def test_a_share_of_the_cores_is_not_described_as_all_cores(
    monkeypatch: pytest.MonkeyPatch, ours: set[int], said: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "model name\t: A\n" * 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: ours)
    assert cpu_name() == said
