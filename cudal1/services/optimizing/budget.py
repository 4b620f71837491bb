"""The budget of a search for one module, and what is used of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from pydantic import Field

from cudal1.errors import ConfigError
from cudal1.record import Record

DEFAULT_MINUTES = 5.0


class Budget(Record):
    """Limits of one run; the first that is reached ends it. None: no limit."""

    minutes: float | None = Field(default=None, gt=0)
    verdicts: int | None = Field(default=None, gt=0)
    """Number of new verdicts."""
    usd: float | None = Field(default=None, gt=0)

    def __str__(self) -> str:
        """Return the limits in words."""
        said = [
            "" if self.minutes is None else f"{self.minutes:g} minutes",
            "" if self.verdicts is None else f"{self.verdicts} verdicts",
            "" if self.usd is None else f"{self.usd:g} USD",
        ]
        return " or ".join(filter(None, said))


def budget_of(minutes: float | None, verdicts: int | None, usd: float | None) -> Budget:
    """Return the budget that options give.

    Raises:
        ConfigError: a limit leaves nothing to do.
    """
    given = {"minutes": minutes, "verdicts": verdicts, "usd": usd}
    for name, value in given.items():
        if value is not None and not value > 0:
            raise ConfigError(f"--{name} {value:g}: is no budget; give more than 0")
    if all(value is None for value in given.values()):
        return Budget(minutes=DEFAULT_MINUTES)
    return Budget.model_validate(given)


class Meter:
    """The used part of a run's budget.

    Args:
        budget: the limits.
        spent_usd: returns what the authors have cost so far by the ledger, in USD.
        now: seconds, from any start.
    """

    def __init__(
        self,
        budget: Budget,
        spent_usd: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = budget
        self._spent_usd = spent_usd
        self._now = now
        self._since = now()
        self._usd_before = spent_usd()
        self.num_verdicts = 0

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return self._now() - self._since

    @property
    def usd(self) -> float:
        """Return what this run has cost so far, in USD."""
        return self._spent_usd() - self._usd_before

    @property
    def verdicts_left(self) -> float:
        """Return the number of verdicts that are left; infinity without a limit."""
        most = self._budget.verdicts
        return float("inf") if most is None else most - self.num_verdicts

    @property
    def share_used(self) -> float:
        """Return the used share of the limit that is nearest, 0 to 1."""
        budget = self._budget
        used = [
            0.0 if budget.minutes is None else self.seconds / (60 * budget.minutes),
            0.0 if budget.verdicts is None else self.num_verdicts / budget.verdicts,
            0.0 if budget.usd is None else self.usd / budget.usd,
        ]
        return min(1.0, max(used))

    @property
    def used_up(self) -> str | None:
        """Return which limit is reached, in words; None: none is."""
        budget = self._budget
        if budget.minutes is not None and self.seconds >= 60 * budget.minutes:
            return f"the {budget.minutes:g} minutes are over"
        if self.verdicts_left <= 0:
            return f"the {budget.verdicts} verdicts are made"
        if budget.usd is not None and self.usd >= budget.usd:
            return f"the {budget.usd:g} USD are spent"
        return None
