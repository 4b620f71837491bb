"""Whether a server is worth asking on: what its failures say of it, and not of one request."""

from __future__ import annotations

from cudal1.candidate import Completion
from cudal1.errors import ProviderDownError, ProviderError
from cudal1.llm.provider import has_failed
from cudal1.llm.proxies import NamedProxy
from cudal1.provider_settings import OpenAISettings

MAX_IN_A_ROW = 8
"""So many failures with no success between mean that a server is down or, if it has never answered
and refuses each request, that it will not have what we send."""


class Health:
    """Counts what a server's completions say of it."""

    def __init__(self, name: str, settings: OpenAISettings, proxy: NamedProxy | None) -> None:
        """`proxy` is what stands between us and the server."""
        self._name = name
        self._settings = settings
        self._url = settings.base_url
        self._proxy = proxy
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

    def rejection(self, status: int, said: str, *, location: str | None) -> str | None:
        """Return what to mend where a status says that the server will never have us."""
        # once it has answered, a gateway may say 403 or 404 of one request
        is_first = not self.has_answered
        who = f"provider {self._name}: {self._url}"
        if 300 <= status < 400:
            return f"{who} redirects to {location}; correct base_url"
        if status == 401 or (status == 403 and is_first):
            return (
                f"{who} refuses the key in {self._settings.api_key_env or 'no variable'} ({said})"
            )
        if status == 404 and is_first:
            return f"{who} has no model {self._settings.model!r}, or no such path ({said})"
        if status == 407 and self._proxy is not None:
            return (
                f"provider {self._name}: the proxy that environment variable "
                f"{self._proxy.variable} names asks for a password ({said}); correct it"
            )
        return None

    def unreachable(self, why: str) -> str:
        """Return what to mend where nothing could be connected to."""
        place, remedy = self._url, "correct base_url or start the server"
        if self._proxy is not None:
            place += f" through the proxy that environment variable {self._proxy.variable} names"
            remedy = f"correct {self._proxy.variable}, or name the server's host in NO_PROXY"
        return f"provider {self._name}: cannot connect to {place} ({why}); {remedy}"
