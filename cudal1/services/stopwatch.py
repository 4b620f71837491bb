"""Measure the parts of a training step's time as they pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from cudal1.harness.device.sharing import Sharing


class Part(StrEnum):
    """The work of the process that trains."""

    GENERATE = "generate"
    """The policy writes answers."""
    TRAIN = "train"
    """Log-probabilities of the reference policy, loss, update, checkpoint."""
    VERDICTS = "verdicts"
    """The process waits for verdicts."""
    OWN = "own"
    """Prompts, extraction, ledger."""


class Stopwatch:
    """A stopwatch for one step after the other, from its first prompt to that of the next.

    Args:
        sharing: the devices that work, and whether side by side.
        now: seconds, from any start.
    """

    def __init__(self, sharing: Sharing, now: Callable[[], float] = time.monotonic) -> None:
        self._sharing = sharing
        self._now = now
        self._since = now()
        self._spent_s = dict.fromkeys(Part, 0.0)

    def lap(self, part: Part) -> None:
        """Add the time since the last lap to a part."""
        now = self._now()
        self._spent_s[part] += now - self._since
        self._since = now

    def restart(self) -> None:
        """Begin a step, and forget earlier time."""
        self._since = self._now()
        self._spent_s = dict.fromkeys(Part, 0.0)

    def numbers(self, *, judge_s: float, build_s: float) -> dict[str, float]:
        """Return the seconds of the ended step's parts, and the idle share of its devices' time.

        `judge_s` is the time of new verdicts. `build_s` is the time that they waited for candidates
        to be built. Each is summed over devices. Where verdicts come beside the policy, the parts
        are together more than the step. `rest_s` is the time in which no device can be busy.

        `idle` counts every second in which a device neither writes, trains, checks nor measures,
        whether or not there was anything to do. An example is a step's end, when one judge works
        and others have finished.
        """
        spent_s, shared = self._spent_s, self._sharing
        wall_s = sum(spent_s.values())
        policy_s = spent_s[Part.GENERATE] + spent_s[Part.TRAIN]
        waited_s = spent_s[Part.VERDICTS] - (judge_s + build_s) / len(shared.devices)
        busy_s = shared.num_policies * policy_s + judge_s
        return {
            "generate_s": spent_s[Part.GENERATE],
            "build_s": build_s,
            "judge_s": judge_s,
            "train_s": spent_s[Part.TRAIN],
            "rest_s": spent_s[Part.OWN] + max(0.0, waited_s),
            "step_s": wall_s,
            "idle": max(0.0, 1 - busy_s / (shared.num_devices * wall_s)),
        }
