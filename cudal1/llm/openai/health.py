"""The health of a server, judged by the failures of all its requests together."""

from __future__ import annotations

from cudal1.candidate import Completion
from cudal1.errors import ProviderDownError, ProviderError
from cudal1.llm.openai.proxies import NamedProxy
from cudal1.llm.provider import has_failed
from cudal1.settings.provider_settings import OpenAISettings

MAX_IN_A_ROW = 8
"""Failures in a row that mean that a server is down. As many refusals mean that it accepts nothing
that we send, if it has never answered."""


class Health:
    """A count of a server's failures and refusals since its last success."""

    def __init__(self, name: str, settings: OpenAISettings, proxy: NamedProxy | None) -> None:
        """Start with no failures; `proxy` stands between us and the server."""
        self._name = name
        self._settings = settings
        self._url = settings.base_url
        self._proxy = proxy
        self._num_failed = self._num_refused = 0
        self.has_answered = False
        """True if the server has answered a request."""

    def look(self, completion: Completion) -> ProviderError | None:
        """Take note of a completion; return why nothing more should be asked, or None."""
        if not has_failed(completion):
            self.has_answered = True
            self._num_failed = self._num_refused = 0
        elif completion.is_refused:  # a server that refuses one request is alive
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

    def rejection(self, status: int, said: str, *, location: str | None) -> str | None:
        """Return what to mend if a status says that the server will never accept us; else None."""
        # once the server has answered, a gateway may say 403 or 404 of one request
        is_first = not self.has_answered
        place = f"provider {self._name}: {self._url}"
        if 300 <= status < 400:
            return f"{place} redirects to {location}; correct base_url"
        if status == 401 or (status == 403 and is_first):
            return (
                f"{place} refuses the key in {self._settings.api_key_env or 'no variable'} ({said})"
            )
        if status == 404 and is_first:
            return f"{place} has no model {self._settings.model!r}, or no such path ({said})"
        if status == 407 and self._proxy is not None:
            return (
                f"provider {self._name}: the proxy that environment variable "
                f"{self._proxy.variable} names asks for a password ({said}); correct it"
            )
        return None

    def unreachable(self, why: str) -> str:
        """Return what to mend where no connection could be made."""
        place, remedy = self._url, "correct base_url or start the server"
        if self._proxy is not None:
            place += f" through the proxy that environment variable {self._proxy.variable} names"
            remedy = f"correct {self._proxy.variable}, or name the server's host in NO_PROXY"
        return f"provider {self._name}: cannot connect to {place} ({why}); {remedy}"
