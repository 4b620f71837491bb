"""Fresh processes load and compile beside other judges; what is timed has the device alone."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cudal1.harness.timing import sessions
from cudal1.harness.timing.sessions import Sessions
from cudal1.settings import protocols

if TYPE_CHECKING:
    from collections.abc import Iterator


class EnoughError(Exception):
    """The measurement would begin."""


def _order(monkeypatch: pytest.MonkeyPatch, num_lanes: int) -> list[str]:
    """Return what a session does, in order, up to its first timed burst."""
    done: list[str] = []

    class Quads:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def warm_up(self, *_: Any) -> None:
            done.append("warm up")

        def warm_up_again(self, *_: Any) -> None:
            done.append("warm up again")

        def measure(self, *_: Any, **__: Any) -> list[float]:
            raise EnoughError

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        done.append(name)
        yield

    monkeypatch.setattr(sessions, "Quads", Quads)
    stopwatch = SimpleNamespace(during=lambda _: nullcontext())
    seen = SimpleNamespace(copies_reference=False)
    progress = SimpleNamespace(stopwatch=stopwatch, samples=[], seen=seen)
    parts: dict[str, Any] = {
        "oracle": SimpleNamespace(traits=SimpleNamespace(weakness=None)),
        "runner": SimpleNamespace(await_calm=lambda _: True),
        "workers": SimpleNamespace(
            reference=lambda **_: nullcontext(), still=lambda: noted("still")
        ),
        "costs": SimpleNamespace(
            get_ready=lambda: None,
            empty_us=lambda _: 0.0,
            orient=lambda _, is_calm: done.append(f"orient, calm: {is_calm}"),
        ),
        "floor": SimpleNamespace(),
        "zygote": SimpleNamespace(settle=lambda: None),
        "turns": SimpleNamespace(timing=lambda: noted("alone")),
    }
    measuring = Sessions(**parts, protocol=protocols.load("cuda"), num_lanes=num_lanes)
    examination: Any = SimpleNamespace(progress=progress)
    worker: Any = SimpleNamespace(job=SimpleNamespace(seed=1))
    with pytest.raises(EnoughError):
        measuring.measure(worker, examination, session=0, is_fresh=False)
    return done


def test_beside_other_judges_processes_warm_up_before_the_device_is_had_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _order(monkeypatch, 6) == [
        "warm up",
        "alone",
        "still",
        "orient, calm: True",
        "warm up again",
    ]


def test_without_other_judges_nothing_else_runs_while_processes_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _order(monkeypatch, 1) == ["alone", "still", "orient, calm: True", "warm up"]
