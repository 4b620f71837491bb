"""The bill: one record for each time that a request goes over the wire.

A request may be sent several times (429, timeouts, a kill). The provider may charge for a try that
got no answer. So a bill has two parts: costs that are known, and costs that are in doubt.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from cudal1.record import Record


class TryOutcome(StrEnum):
    """The outcome of one try."""

    SENT = "sent"
    """No outcome is known yet; a kill leaves such a try behind."""
    ANSWERED = "answered"
    """An answer came, and with it the cost."""
    REFUSED = "refused"
    """The server refused (4xx, 5xx) or could not be reached: nothing is charged."""
    LOST = "lost"
    """The try timed out, broke off, or its answer cannot be read: it may have been charged."""


class Try(Record):
    """One sending of one request."""

    request_id: str
    """Id of the completion or review that the request is to bring."""
    sent_at: str
    """UTC, ISO 8601 with microseconds. Together with `request_id` it names the try."""
    stage: str
    provider: str
    outcome: TryOutcome
    cost_usd: float | None = Field(default=None, ge=0)
    """US dollars that the try cost; None: between nothing and `at_most_usd`, in doubt."""
    at_most_usd: float | None = Field(ge=0)
    """US dollars that the try can cost at most; None where an answer's length has no limit."""
    said: str | None = None
    """The error, in one line."""
