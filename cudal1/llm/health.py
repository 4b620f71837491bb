"""Whether a server is worth asking on: what its failures say of it, and not of one request."""

from __future__ import annotations

from cudal1.candidate import Completion
from cudal1.errors import ProviderDownError, ProviderError
from cudal1.llm.provider import has_failed

MAX_IN_A_ROW = 8
"""So many failures with no success between mean that a server is down or, if it has never answered
and refuses each request, that it will not have what we send."""


class Health:
    """Counts what a server's completions say of it."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url
        self._num_failed = self._num_refused = 0
        self.has_answered = False
        """Whether it ever did what it was asked."""

    def look(self, completion: Completion) -> ProviderError | None:
        """Take note of a completion; returns why nothing more should be asked, if so it is."""
        if not has_failed(completion):
            self.has_answered = True
            self._num_failed = self._num_refused = 0
        elif completion.is_refused:  # who refuses one request is alive
            self._num_failed = 0
            self._num_refused += 1
        else:
            self._num_failed += 1
        if self._num_failed >= MAX_IN_A_ROW:
            return ProviderDownError(
                f"provider {self._name}: {self._num_failed} requests in a row failed, the last "
                f"with {completion.finish_reason!r}; run again when {self._url} is well"
            )
        if self._num_refused >= MAX_IN_A_ROW and not self.has_answered:
            return ProviderError(
                f"provider {self._name}: {self._url} refuses whatever it is asked, the last with "
                f"{completion.finish_reason!r}; correct its settings"
            )
        return None
