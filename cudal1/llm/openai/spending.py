"""Money: the rest of a provider's budget, and a receipt for every time that a request is sent.

A request reserves the most that it can cost before it leaves. A try's cost is booked when it is
known. A try without an answer stays booked in full, since it may have been charged. So the budget
holds whatever a server does, and whenever we are killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from cudal1.billing import Try, TryOutcome
from cudal1.errors import BudgetError
from cudal1.llm.provider import Receipts, Request


class Purse:
    """A provider's budget: money that is spent, and money that requests in flight reserve."""

    def __init__(self, name: str, budget_usd: float | None, *, spent_usd: float) -> None:
        self._name = name
        self._budget_usd = budget_usd
        self._spent_usd = spent_usd
        self._reserved_usd = 0.0
        self._num_reserved = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserved(self, usd: float) -> AsyncGenerator[None]:
        """Hold money for one request; wait for money that requests in flight give back.

        Raises:
            BudgetError: nothing is in flight, and less than `usd` is left.
        """
        async with self._changed:
            while not self._has(usd):
                if not self._num_reserved:
                    raise BudgetError(
                        f"provider {self._name}: {self._spent_usd:.4f} of "
                        f"{self._budget_usd:g} USD are spent, and the next request could cost "
                        f"{usd:.4f}; raise its budget_usd to go on"
                    )
                await self._changed.wait()
            self._reserved_usd += usd
            self._num_reserved += 1
        try:
            yield
        finally:
            self._reserved_usd -= usd
            self._num_reserved -= 1
            async with self._changed:
                self._changed.notify_all()

    def book(self, usd: float) -> None:
        """Count money as spent."""
        self._spent_usd += usd

    @property
    def is_overdrawn(self) -> bool:
        """True if the rest is less than what is reserved: no request may try again."""
        return not self._has(0.0)

    def _has(self, usd: float) -> bool:
        budget = self._budget_usd
        # rounding must not refuse the last request of a budget that fits exactly
        return budget is None or self._spent_usd + self._reserved_usd + usd <= budget * (1 + 1e-9)


class Tries:
    """The tries of one request, each recorded before it leaves and when it has ended."""

    def __init__(
        self,
        request: Request,
        provider: str,
        *,
        at_most_usd: float | None,
        receipts: Receipts,
        purse: Purse,
    ) -> None:
        self._request = request
        self._provider = provider
        self._at_most_usd = at_most_usd
        self._receipts = receipts
        self._purse = purse
        self._open: Try | None = None
        self._has_left = False
        self.has_begun = False
        """True if there was a try at all."""
        self.paid: Try | None = None
        """The try that was answered; `Receipts.arrived` takes it with the answer."""

    def begin(self) -> None:
        """Note that a try is about to leave; the try before it, if open, was lost.

        Raises:
            BudgetError: lost tries have used up the budget.
        """
        self.end_unanswered("no answer")
        if self._purse.is_overdrawn:
            raise BudgetError(f"provider {self._provider}: lost tries have used up its budget")
        self._has_left, self.has_begun = False, True
        self._open = Try(
            request_id=self._request.id,
            stage=self._request.stage,
            provider=self._provider,
            sent_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            outcome=TryOutcome.SENT,
            at_most_usd=self._at_most_usd,
        )
        self._receipts.tried(self._open)

    def leave(self) -> None:
        """Note that the open try went over the wire: from this moment it may cost."""
        self._has_left = True

    def end(self, outcome: TryOutcome, *, cost_usd: float | None, said: str | None = None) -> None:
        """Note the outcome of the open try, if there is one."""
        if self._open is None:
            return
        if self._at_most_usd == 0.0:
            cost_usd = 0.0  # no cost is in doubt
        changes = {"outcome": outcome, "cost_usd": cost_usd, "said": said}
        ended, self._open = self._open.model_copy(update=changes), None
        self._purse.book((self._at_most_usd or 0.0) if cost_usd is None else cost_usd)
        if outcome is TryOutcome.ANSWERED:
            self.paid = ended
        else:
            self._receipts.tried(ended)

    def end_unanswered(self, said: str) -> None:
        """Note that no answer will come to the open try: lost, unless it never left."""
        if self._has_left:
            self.end(TryOutcome.LOST, cost_usd=None, said=said)
        else:
            self.end(TryOutcome.REFUSED, cost_usd=0.0, said=said)
