"""What asking costs: one record for each time that a request goes over the wire.

A request may be sent several times (429, timeouts, a kill), and whoever charges for it may have
charged for a try whose answer never came. So a bill has two parts: what is known, and what is in
doubt.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from cudal1.record import Record


class TryOutcome(StrEnum):
    """What became of a try."""

    SENT = "sent"
    """Nothing is known yet; what a kill leaves behind."""
    ANSWERED = "answered"
    """An answer came, and with it what it cost."""
    REFUSED = "refused"
    """The server said no (4xx, 5xx), or could not be reached: nothing is charged."""
    LOST = "lost"
    """It timed out, broke off, or what came cannot be read: it may have been charged."""


class Try(Record):
    """One request, sent once."""

    request_id: str
    """Of the completion or review that it is to bring."""
    sent_at: str
    """UTC, ISO 8601 with microseconds; with the request's id, its name."""
    stage: str
    provider: str
    outcome: TryOutcome
    cost_usd: float | None = Field(default=None, ge=0)
    """None: in doubt, nothing to `at_most_usd`."""
    at_most_usd: float | None = Field(ge=0)
    """The most that it can cost; None where the length of an answer has no limit."""
    said: str | None = None
    """What went wrong, in one line."""
