"""Where the time of a training step goes: told part by part, as it passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from cudal1.harness.sharing import Sharing


class Part(StrEnum):
    """What the process that trains is doing."""

    GENERATE = "generate"
    """The policy writes answers."""
    TRAIN = "train"
    """Log-probabilities of the reference policy, loss, update, checkpoint."""
    VERDICTS = "verdicts"
    """It waits for them."""
    OWN = "own"
    """Prompts, extraction, ledger."""


class Stopwatch:
    """One step after the other, from its first prompt to that of the next.

    Args:
        sharing: which devices work, and whether side by side.
        now: seconds, from any start.
    """

    def __init__(self, sharing: Sharing, now: Callable[[], float] = time.monotonic) -> None:
        self._sharing = sharing
        self._now = now
        self._since = now()
        self._spent_s = dict.fromkeys(Part, 0.0)

    def lap(self, part: Part) -> None:
        """The time since the last lap went into this."""
        now = self._now()
        self._spent_s[part] += now - self._since
        self._since = now

    def restart(self) -> None:
        """A step begins: forget what was before."""
        self._since = self._now()
        self._spent_s = dict.fromkeys(Part, 0.0)

    def numbers(self, *, judge_s: float, build_s: float) -> dict[str, float]:
        """The step that ends now, in seconds, and which share of its devices' time none of it used.

        `judge_s` is what new verdicts took, `build_s` for how long they waited for candidates to
        be built, each summed over devices. Where verdicts come beside the policy, the parts are
        together more than the step. `rest_s` is what no device can be busy with. `idle` counts
        every second in which a device neither writes, trains, checks nor measures, whether or not
        there was anything to do: a step's end, when one judge works and others have finished, too.
        """
        spent_s, shared = self._spent_s, self._sharing
        wall_s = sum(spent_s.values())
        policy_s = spent_s[Part.GENERATE] + spent_s[Part.TRAIN]
        waited_s = spent_s[Part.VERDICTS] - (judge_s + build_s) / len(shared.devices)
        busy_s = shared.num_policies * policy_s + judge_s
        return {
            "generate_s": spent_s[Part.GENERATE], "build_s": build_s, "judge_s": judge_s,
            "train_s": spent_s[Part.TRAIN], "rest_s": spent_s[Part.OWN] + max(0.0, waited_s),
            "step_s": wall_s, "idle": max(0.0, 1 - busy_s / (shared.num_devices * wall_s)),
        }  # fmt: skip
