"""Receipts in memory, for providers without a ledger."""

from __future__ import annotations

from cudal1.billing import Try
from cudal1.candidate import Completion


class Kept:
    """Receipts in memory."""

    def __init__(self, spent_usd: float = 0.0) -> None:
        """So much was spent before."""
        self.tries: dict[tuple[str, str], Try] = {}
        self.completions: list[Completion] = []
        self.spent_before_usd = spent_usd

    def tried(self, attempt: Try) -> None:
        """Keep the latest that is said of a try."""
        self.tries[attempt.request_id, attempt.sent_at] = attempt

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """Keep both."""
        self.completions.append(completion)
        if paid is not None:
            self.tried(paid)

    def spent_usd(self, provider: str) -> float:
        """What it was made with."""
        return self.spent_before_usd

    @property
    def outcomes(self) -> list[str]:
        """What became of each try, in the order in which they left."""
        return [self.tries[key].outcome.value for key in sorted(self.tries, key=lambda k: k[1])]

    @property
    def cost_usd(self) -> float:
        """What is known of the bill."""
        return sum(attempt.cost_usd or 0.0 for attempt in self.tries.values())
