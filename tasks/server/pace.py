"""Seconds of stages are kept after each, so that the next run says what may be left.

`data/seconds.json` has the seconds of each stage when it last ran, and those of the latest run.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from cudal1.services.telling import duration
from tasks.stage import DATA

FILE = DATA / "seconds.json"
SHOWN_SHARE = 0.01
"""Share of a run's time below which a part is counted among the rest."""


class Pace:
    """The stages of one run of a flow, and their seconds.

    Args:
        stages: all of them, in their order.
        now: the clock, seconds.
    """

    def __init__(self, stages: Sequence[str], *, now: Callable[[], float] = time.monotonic) -> None:
        self._stages = list(stages)
        self._now = now
        self._begun = now()
        self._known: dict[str, float] = _read().get("known", {})
        self._spent: dict[str, float] = {}

    def place(self, stage: str) -> str:
        """Return the stage's number among all."""
        return f"{self._stages.index(stage) + 1} of {len(self._stages)}"

    def so_far(self, stage: str) -> str:
        """Return the time since the run's beginning, and what may be left with this stage.

        A stage that never ran here has no expected time. Then nothing is said of what is left.
        """
        said = f"{duration(self._now() - self._begun)} so far"
        rest = self._stages[self._stages.index(stage) :]
        if any(other not in self._known for other in rest):
            return said
        return f"{said}, about {duration(math.fsum(self._known[other] for other in rest))} left"

    def add(self, stage: str, seconds: float) -> None:
        """Keep the seconds of a stage that has run to its end."""
        self._known[stage] = self._spent[stage] = round(seconds, 1)
        FILE.parent.mkdir(parents=True, exist_ok=True)
        content = {"known": self._known, "latest": self._spent}
        FILE.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def took(total_s: float, spent_s: dict[str, float]) -> str:
    """Return a whole wait and its parts, in their order; small ones are among the rest.

    Args:
        total_s: seconds that the user has waited.
        spent_s: seconds of each part that is known.
    """
    shown = {part: s for part, s in spent_s.items() if s >= SHOWN_SHARE * total_s}
    rest = total_s - math.fsum(shown.values())
    parts = [f"{duration(seconds)} {part}" for part, seconds in shown.items()]
    if parts and rest >= 1:
        parts.append(f"{duration(rest)} for the rest, such as starting programs")
    return f"took {duration(total_s)}" + (f": {', '.join(parts)}" if parts else "")


def latest() -> dict[str, float]:
    """Return the seconds of the stages that ran in the latest run."""
    return _read().get("latest", {})


def forget_latest() -> None:
    """Begin a run in which no stage has run yet."""
    content = _read()
    if content.get("latest"):
        FILE.write_text(json.dumps({**content, "latest": {}}) + "\n", encoding="utf-8")


def _read() -> dict[str, Any]:
    try:
        return json.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent, or cut off by a kill: only an estimate is lost
        return {}
