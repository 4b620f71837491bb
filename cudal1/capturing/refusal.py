"""The error of a call that cannot become a problem file."""

from __future__ import annotations

from cudal1.errors import SuiteError


class CaptureError(SuiteError):
    """A call cannot be captured; the message names the cause and the remedy."""
