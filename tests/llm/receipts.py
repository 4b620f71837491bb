"""Hold receipts in memory, for providers without a ledger."""

from __future__ import annotations

from cudal1.billing import Try
from cudal1.candidate import Completion


class Kept:
    """Receipts in memory."""

    def __init__(self, spent_usd: float = 0.0) -> None:
        """Start with an amount that earlier runs have spent."""
        self.tries: dict[tuple[str, str], Try] = {}
        self.completions: list[Completion] = []
        self.spent_before_usd = spent_usd

    def tried(self, attempt: Try) -> None:
        """Keep the latest state of a try."""
        self.tries[attempt.request_id, attempt.sent_at] = attempt

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """Keep a completion and its try."""
        self.completions.append(completion)
        if paid is not None:
            self.tried(paid)

    def spent_usd(self, provider: str) -> float:
        """Return the amount given at the start."""
        return self.spent_before_usd

    @property
    def outcomes(self) -> list[str]:
        """Return the outcome of each try, in the order in which the tries left."""
        return [self.tries[key].outcome.value for key in sorted(self.tries, key=lambda k: k[1])]

    @property
    def cost_usd(self) -> float:
        """Return the known part of the bill."""
        return sum(attempt.cost_usd or 0.0 for attempt in self.tries.values())
